"""The code of the pages: each Python block runs, in the order of its page, and each command line is
one that the real parser takes. What cannot run says why, in a comment before it:
`<!-- skip: needs a real arm -->`.
"""

import contextlib
import json
import re
import sys
from types import SimpleNamespace

import pytest
from autoapi._parser import Parser

from envs.command_line import EvaluateFlags, TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot.cli import arguments
from td3_robot.commands import export, run, sweep
from td3_robot.config.run import Config
from td3_robot.config.schema import build, make_schema
from tests.docs_pages import DOCS, Block, Page, iter_commands, reader_pages
from tests.support import ROOT, load_script

SHELL = {"bash", "sh", "console", "shell"}
LANGUAGES = SHELL | {
    "python",
    "yaml",
    "xml",
    "json",
    "text",
    "cpp",
    "{toctree}",
    "{math}",
    "{include}",
}
FLAGS = {  # the dataclasses that a command's flags fill
    "train": (arguments._Start, TrainFlags, EnvOptions, Config),
    "evaluate": (EvaluateFlags,),
    "export": (export.Arguments,),
    "run": (run.Arguments,),
    "sweep": (sweep.SweepFlags,),
}
SCRIPTS = {"run_policy.py": "run"} | {f"{name}.py": name for name in FLAGS if name != "run"}
PAGES = reader_pages()
TESTED_ELSEWHERE = {
    "tutorials",
    "extend-the-library",
}  # tests/{test_tutorials,td3_robot/test_library}


def page_name(page: Page) -> str:
    return page.name


def parse(command: str, words: list[str]) -> None:
    """Parse a command line as the command does, without opening the files that it names."""
    if {"--help", "--help-all"} & {*words}:
        return
    classes = FLAGS[command]
    values = make_schema(command, "", *classes).read_flags(words)
    for cls in classes:
        names = {name.split(".")[0] for name in cls.__dataclass_fields__}
        build(cls, {key: value for key, value in values.items() if key.split(".")[0] in names})


def check_command(words: list[str]) -> None:
    """Check one command line of this project; those of other programs are left alone."""
    program = words[0].rsplit("/", 1)[-1]
    if program in ("python", "python3", "torchrun"):
        script = next((word for word in words[1:] if word.endswith(".py")), None)
        if "-m" in words[1:2]:
            return check_module(words[2], words[3:])
        if script in SCRIPTS:
            parse(SCRIPTS[script], words[words.index(script) + 1 :])
        else:
            assert script is None or (ROOT / script).is_file() or "/" not in script, script
    elif program == "td3-robot":
        parse(words[1], words[2:])
    elif program == "make":
        targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert {word for word in words[1:] if "=" not in word} <= targets, words


def check_module(module: str, words: list[str]) -> None:
    if module.split(".")[0] in ("envs", "td3_robot"):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_block_names_its_language(page):
    for block in page.blocks:
        assert block.language in LANGUAGES, (block.language, block.text[:80])
        assert block.skip is None or len(block.skip) > 5, "a reason"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_the_command_lines_are_ones_that_the_parser_takes(page):
    inline = re.findall(r"`((?:python|td3-robot|make) [^`\n]+)`", page.text)
    blocks = [block for block in page.blocks if block.language in SHELL]
    for block in [*blocks, Block("bash", "\n".join(inline))]:
        for words in iter_commands(block):
            if "..." not in words and "…" not in words:
                check_command(words)


def test_the_parser_is_the_real_one():
    """A mistyped flag, a value out of range, an unknown target and a module that is gone."""
    for line in ("python train.py --tsk reach", "python run_policy.py --policy p --goal 1,2,3 --drop 5",
                 "make nothing", "python -m envs.nothing panda", "td3-robot evaluate --episodes x"):  # fmt: skip
        with pytest.raises((Exception, AssertionError)):
            check_command(line.split())


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if any(b.language == "python" and not b.note for b in p.blocks)],
    ids=page_name,
)
def test_the_python_blocks_run(page, tmp_path, monkeypatch, capsys):
    if TESTED_ELSEWHERE & {page.path.parent.name, page.path.stem}:
        pytest.skip("a test of its own runs it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    (tmp_path / "checkpoints").symlink_to(ROOT / "checkpoints")
    names: dict = {"__name__": "page"}
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(sys.modules.pop, "page", None)
        for number, block in enumerate(page.blocks):
            if block.language == "python" and block.note is None:
                exec(compile(block.text, f"{page.name}, block {number}", "exec"), names)


def test_the_notebooks_run():
    """`make docs` runs them in a kernel; this does without one."""
    for path in DOCS.rglob("*.ipynb"):
        if "_build" in path.parts:
            continue
        cells = json.loads(path.read_text())["cells"]
        assert not any(cell.get("outputs") for cell in cells), f"{path.name} holds outputs"


def test_what_a_tasks_author_imports_is_on_the_api_pages():
    """`World` and what else the signatures of a task name, too."""
    public = load_script("docs/_extensions/public_names.py").PUBLIC
    page = (ROOT / "docs/tutorials/your-task.md").read_text()
    imported = re.findall(r"^from (envs[\w.]*) import (.*)$", page, re.MULTILINE)
    assert len(imported) > 5
    for module, names in imported:
        known = public.get(module, ())
        missing = set() if known is None else set(names.split(", ")) - set(known)
        assert not missing - {"kinematics"}, module
    assert {"World", "Moment"} <= set(public["envs.world"])
    assert {"SimState", "Command", "batched_o"} <= set(public["envs.simulation.engine"])


def test_what_a_package_hands_on_at_first_use_is_on_the_api_pages(monkeypatch):
    """`envs.make` and `td3_robot.TD3` are imported for type checkers alone."""
    load_script("docs/_extensions/public_names.py").setup(
        SimpleNamespace(connect=lambda *_, **__: 0)
    )
    for package, name in (("envs", "make"), ("td3_robot", "TD3")):
        path = ROOT / package / "__init__.py"
        parsed = Parser().parse_file_in_namespace(str(path), str(ROOT))
        assert {name, *parsed["all"]} <= {child["name"] for child in parsed["children"]}


def test_docstrings_become_restructured_text_that_shows_what_they_say():
    """Names in backticks are code; stars and a number of copies "B." mean nothing to Sphinx."""
    write = load_script("docs/_extensions/public_names.py").write_restructured
    lines = ["See `make`s, *args.", "num_envs: B."]
    write(None, "function", "f", None, None, lines)
    assert lines == ["See ``make``\\ s, \\*args.", "num_envs: \\B."]
