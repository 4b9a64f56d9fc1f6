"""Make the API pages: the names that other code may count on, from their docstrings."""

import re
from typing import Any

from autoapi._astroid_utils import is_local_import_from
from autoapi._parser import Parser
from sphinx.application import Sphinx

PUBLIC: dict[str, tuple[str, ...] | None] = {  # by module; None: the names in its `__all__`
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
    "envs.tasks.layout": ("Column", "arm_columns", "multiply_transpose"),
    "envs.tasks.measures": ("Measure",),
    "envs.tasks.shapes": ("CUBE", "Shape", "make_pose"),
    "envs.world": ("World", "Moment"),
    "envs.simulation.engine": ("SimState", "Command", "batched_o"),
    "envs.controllers": None,
    "envs.evaluation": None,
    "envs.view": None,
    "envs.gymnasium_ids": None,
    "envs.from_gymnasium": None,
    "envs.collision": None,
    "envs.kinematics": None,
}


def parse_if(parser: Parser, node: Any) -> list[dict]:
    """Parse what a module imports for type checkers alone, which `__getattr__` hands on later:
    `envs.make`, `td3_robot.TD3`. sphinx-autoapi looks into no condition for imports.
    """
    if node.test.as_string() != "TYPE_CHECKING":
        return next(filter(None, map(parser.parse, node.body)), [])
    top = node.root().name.partition(".")[0]
    imports = [child for child in node.body if is_local_import_from(child, top)]
    return [data for child in imports for data in parser._parse_local_import_from(child)]


def is_skipped(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool:
    """Return whether the API pages leave a module or a member of one out."""
    if what in ("package", "module"):
        return name not in PUBLIC
    module, _, member = name.rpartition(".")
    names = PUBLIC.get(module)
    return skip or (names is not None and member not in names)


def write_restructured(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Turn a docstring, plain text with names in backticks, into reStructuredText."""
    pieces = re.split(r"`+([^`]+)`+", "\n".join(lines))
    plain = [re.sub(r"([|*\\]|_(?!\w))", r"\\\1", piece) for piece in pieces[::2]]
    for index, code in enumerate(pieces[1::2]):
        glued = re.match(r"\w", plain[index + 1])  # as the plural of a name is
        plain[index] += f"``{code}``" + ("\\ " if glued else "")
    text = re.sub(r"(?m)(: )([A-Z])\.$", r"\1\\\2.", "".join(plain))  # "B." begins no list
    lines[:] = text.split("\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect both to sphinx-autoapi; the text is plain until sphinx.ext.napoleon reads it."""
    Parser.parse_if = parse_if  # by the name of the syntax's node, as its others
    app.connect("autoapi-skip-member", is_skipped)
    app.connect("autodoc-process-docstring", write_restructured, priority=400)
    return {"parallel_read_safe": True}
