"""Hints in messages lead somewhere: every flag and command that one names is taken by its parser."""

import ast
import re
import shlex

import pytest

from envs.collision.fitting.__main__ import make_parser
from td3_robot.utils.console import SCRIPTS
from tests.support import ROOT, make_command_schema

FLAGS = {script: set(make_command_schema(script).options) for script in SCRIPTS.values()}
FITTING = {word[2:] for action in make_parser()._actions for word in action.option_strings}
HELPS = {"help", "help-all"}
OTHERS = {  # of torchrun
    *("nproc_per_node", "nnodes", "rdzv_backend", "rdzv_endpoint", "max-restarts"),
    *("option", "name"),  # "--option value": any of them
}
ANY = set().union(*FLAGS.values()) | FITTING | HELPS | OTHERS
COMMAND = re.compile(
    r"(?:python |td3-robot )?(train|evaluate|export|run_policy|sweep)\.py((?: (?!python)[^;,:()`]+)?)"
)
FLAG = re.compile(r"(?<![\w-])--([a-z][\w.-]*\w)")


def iter_texts(path):
    """Yield the sentences in a file's code, docstrings left out; X stands for what is filled in."""
    tree = ast.parse(path.read_text())
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)
        if isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
            parts = (p.value if isinstance(p, ast.Constant) else "X" for p in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node not in skipped and " " in node.value:
                yield node.value


TEXTS = [
    (path.relative_to(ROOT).as_posix(), text)
    for folder in ("td3_robot", "envs")
    for path in sorted((ROOT / folder).rglob("*.py"))
    for text in iter_texts(path)
    if "--" in text or ".py" in text
]


def test_texts_are_found():
    assert len(TEXTS) > 20 and any("--help-all" in text for _, text in TEXTS)


def test_every_flag_in_a_message_is_one():
    for path, text in TEXTS:
        assert set(FLAG.findall(text)) <= ANY, (path, text)


def test_a_command_in_a_message_takes_the_flags_that_stand_after_it():
    found = 0
    for path, text in TEXTS:
        for script, words in COMMAND.findall(text):
            flags = set(FLAG.findall(words))
            found += bool(flags)
            assert flags <= FLAGS[f"{script}.py"] | HELPS, (path, text)
        for words in re.findall(r"python -m envs\.collision\.fitting([^;]*)", text):
            assert set(FLAG.findall(words)) <= FITTING, (path, text)
    assert found > 3


def list_commands(message: str) -> list[list[str]]:
    """Return the commands that a message ends with or quotes, as words."""
    found = re.findall(r"python (\w+\.py(?: [^;,]+)?)", message)
    return [shlex.split(command.split(" lists ")[0]) for command in found]


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("train", "--stepz 10", "python train.py --help-all lists all"),
        ("train", "--env notes:Pendulum-v1 --tcp x", "leave tcp out"),
        ("evaluate", "--checkpont run1", "python evaluate.py --help-all lists all"),
        ("export", "--checkpiont run1", "valid choices: checkpoint, onnx, acceleration"),
        ("export", "--checkpoint gym", "only policies of robots are exported"),
        ("sweep", "--plan plan.yaml", "valid choices: trials, metric, goal, scheduler"),
        ("run_policy", "--policy run1 --goal 0,0,1", "export.py --checkpoint checkpoints/run1"),
        ("run_policy", "--policy x.onnx --goal 0,0,1", "python export.py --help"),
        ("run_policy", "--policy runx --goal 0,0,1", "valid choices: checkpoints/gym, "),
        ("evaluate", "--checkpoint run1 --env Pendulum-v1", "without env: leave --env out"),
        ("evaluate", "--checkpoint run1 --robot ur5e", "of the checkpoint: leave --robot out"),
        ("evaluate", "--checkpoint run1 --swift yes", "swift must be true or false, got 'yes'"),
        ("export", "--checkpoint run1 --robot ur5e", "leave it out"),
        ("export", "--checkpoint run1 --onnx no/p.onnx", "folder 'no' does not exist"),
        ("train", f"--config {ROOT}/configs/stack.yaml", "for another task need its --task"),
        ("evaluate", "--checkpoint run1 --engine MuJoCo", "did you mean 'mujoco'?"),
        ("evaluate", "--checkpoint run1 --baseline RUN1", "did you mean 'run1'?"),
        (
            "evaluate",
            "--checkpoint run1 --baseline checkpoints",
            "valid choices: checkpoints/gym, checkpoints/run1",
        ),
        ("evaluate", "--checkpoint gym", "say so: --env 'notes:Pendulum-v1'"),
    ],
)
def test_what_an_error_advises_is_accepted(tmp_path, in_process, name, words, message):
    for run, env in (("run1", None), ("gym", "notes:Pendulum-v1")):
        folder = tmp_path / "checkpoints" / run
        folder.mkdir(parents=True)
        for file in (ROOT / "checkpoints/run1").iterdir():
            (folder / file.name).symlink_to(file)
        if env is not None:
            (folder / "config.yaml").unlink()
            (folder / "config.yaml").write_text(f"env: {env}\n")
    (tmp_path / "plan.yaml").write_text("trails: 4\noptions: {td3.tau: [0.1]}\n")
    code, _, error = in_process(tmp_path, name, *words.split())
    assert code == 2 and message in error and error.count("\n") == 1, error
    for script, *flags in list_commands(error.strip()):
        if not HELPS & {flag.removeprefix("--") for flag in flags}:
            make_command_schema(script).read_flags(flags)
    said = re.search(r"say so: (.*)", error)
    if said:
        assert make_command_schema(f"{name}.py").read_flags(shlex.split(said[1]))
