"""Write docs/api.md: public names, signatures and first sentences, as griffe reads them.

`make api` runs it; tests/test_docs.py holds the page to what it makes. The source is read, not
imported.
"""

import argparse
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/api.md"
HEAD = """# Public names
What other code may count on; the rest may move. `make api` writes this page from the docstrings, which say more: shapes, units, frames, errors. How the parts are used: [library.md](library.md), [deploy.md](deploy.md), [add_your_own_task.md](add_your_own_task.md), [add_your_own_robot.md](add_your_own_robot.md).
"""  # noqa: E501

PUBLIC = {  # by module; where no names are given, those of its `__all__`
    "td3_robot": None,
    "td3_robot.vec_env": ("VecEnv", "GoalVecEnv", "Step"),
    "td3_robot.config": None,
    "td3_robot.evaluation": None,
    "td3_robot.training.trainer": ("Trainer",),
    "td3_robot.data.batch_source": ("BatchSource",),
    "td3_robot.data.collector": ("Collector",),
    "td3_robot.data.offline": ("Dataset",),
    "td3_robot.training.callbacks": ("Callback", "Run", "StopWhenSolved", "KeepCheckpoints"),
    "td3_robot.loggers.base": ("Tracker",),
    "td3_robot.replay": None,
    "td3_robot.errors": ("Td3RobotError", "ConfigError", "CheckpointError", "EnvError"),
    "td3_robot.deploy": None,
    "envs": None,
    "envs.arm_env": None,
    "envs.config.env_options": ("EnvOptions",),
    "envs.robots": None,
    "envs.tasks.task": ("Task", "Outcome"),
    "envs.tasks.registry": ("register_task", "make_task", "list_tasks"),
    "envs.tasks.layout": ("Column",),
    "envs.tasks.measures": ("Measure",),
    "envs.tasks.shapes": ("Shape",),
    "envs.controllers": None,
    "envs.evaluation": None,
    "envs.view": None,
    "envs.gymnasium_ids": None,
    "envs.from_gymnasium": None,
    "envs.collision": None,
    "envs.kinematics": None,
}


def page() -> str:
    """Return the text of docs/api.md."""
    loader = griffe.GriffeLoader(search_paths=[ROOT], allow_inspection=False)
    for package in ("td3_robot", "envs"):
        loader.load(package, submodules=True)
    loader.resolve_aliases()
    modules = {name: loader.modules_collection[name] for name in PUBLIC}
    things = {
        name: [target(module[key]) for key in PUBLIC[name] or exports(module)]
        for name, module in modules.items()
    }
    known = {thing.path for listed in things.values() for thing in listed}
    return HEAD + "".join(section(module, things[name], known) for name, module in modules.items())


def exports(module: griffe.Module) -> list[str]:
    """Return the functions and classes of `__all__`."""
    return [
        str(name) for name in module.exports or () if not target(module[str(name)]).is_attribute
    ]


def target(thing: griffe.Object | griffe.Alias) -> griffe.Object:
    """Return the object that a name stands for."""
    found = thing.final_target if isinstance(thing, griffe.Alias) else thing
    return found[found.name] if found.is_module else found  # a function in a file of its name


def section(module: griffe.Module, things: list[griffe.Object], known: set[str]) -> str:
    """Return the section of a module."""
    lines = [line for thing in things for line in entry(thing, known)]
    return f"\n## `{module.path}`\n{first_sentence(module)}\n\n" + "\n".join(lines) + "\n"


def entry(thing: griffe.Object, known: set[str]) -> Iterator[str]:
    """Yield the lines of a function or class.

    A class has one more for each method and property that no `known` class has.
    """
    yield f"- {'class ' * thing.is_class}**`{signature(thing)}`** {first_sentence(thing)}".rstrip()
    members = (
        [target(member) for _, member in sorted(thing.all_members.items())]
        if thing.is_class
        else []
    )
    for member in members:
        public = (
            member.docstring
            and not member.name.startswith("_")
            and not member.docstring.value.startswith("See `")
        )
        own = member.parent is thing or member.parent.path not in known
        if public and own and (member.is_function or "property" in member.labels):
            yield f"  - `{signature(member)}` {first_sentence(member)}"


def signature(thing: griffe.Object) -> str:
    """Return a name with its arguments, types and defaults.

    Those of options are in docs/configuration.md.
    """
    if isinstance(thing, griffe.Class) and any("NamedTuple" in str(base) for base in thing.bases):
        fields = [member for member in thing.attributes.values() if member.annotation is not None]
        given = [
            f"{field.name}: {field.annotation}" + f" = {field.value}" * (field.value is not None)
            for field in fields
        ]
        return f"{thing.name}({', '.join(given)})"
    if isinstance(thing, griffe.Function | griffe.Class):
        words = (
            str(thing.signature())
            if "__init__" in thing.all_members or thing.is_function
            else thing.name
        )
        return (
            re.sub(r"\((self|cls)(, )?", "(", words)
            if "option(" not in words
            else f"{thing.name}(...)"
        )
    return thing.name


def first_sentence(thing: griffe.Object) -> str:
    """Return the first sentence of a docstring."""
    paragraph = inspect.cleandoc(thing.docstring.value).split("\n\n")[0] if thing.docstring else ""
    return re.split(r"(?<=\.)\s(?=[A-Z`(])", " ".join(paragraph.split()))[0]


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    PAGE.write_text(page())
