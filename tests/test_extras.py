"""Optional packages that are missing: each use of one ends in one line that installs it."""

import ast
import json
import os
import subprocess
import sys

import pytest

from td3_robot.errors import EXTRAS
from tests.support import ROOT, drop_progress

# Packages are hidden as if they were not installed: no module, no metadata.
HIDING = """
import sys, importlib.metadata as metadata
hidden = {hidden!r}
for name in hidden: sys.modules[name] = None
version = metadata.version
def find_version(name):
    if name.replace("-", "_") in hidden: raise metadata.PackageNotFoundError(name)
    return version(name)
metadata.version = find_version
sys.path.insert(0, {root!r})
sys.argv = {argv!r}
"""
COMMAND = "from td3_robot.commands.main import run_command; run_command(sys.argv[0])"
FITTING = "from envs.collision.fitting.__main__ import main; sys.exit(main(sys.argv[1:]))"
RUN1 = "--checkpoint checkpoints/run1 --episodes 2"
USES = [
    ("record", f"evaluate {RUN1} --record FOLDER/a.png"),
    ("record", f"evaluate {RUN1} --record FOLDER/a.mp4"),
    ("mujoco", f"evaluate {RUN1} --engine mujoco"),
    ("fetch", "train --env FetchReach-v4"),
    ("mujoco", "train --env HalfCheetah-v5"),
    ("mlflow", "train --robot panda --mlflow true"),
    ("neo", f"evaluate {RUN1} --baseline neo"),
    ("data", f"evaluate {RUN1} --dataset FOLDER/reach-v0"),
    ("deploy", "export --checkpoint checkpoints/run1 --onnx FOLDER/policy.onnx"),
    ("deploy", "run --policy FOLDER/made.onnx --goal 0.4,0.1,0.4"),
    ("sweep", "sweep --plan configs/sweeps/reach.yaml"),
    ("bench", "train --env PandaReach-v3"),
    ("collision", "fit panda"),
]


def test_every_extra_is_used_here():
    assert {extra for extra, _ in USES} == set(EXTRAS.values())


def test_without_the_packages_of_every_command_one_line_says_how_to_install_them():
    code = HIDING.format(
        hidden=["jsonargparse", "docstring_parser"], root=str(ROOT), argv=["train"]
    )
    done = subprocess.run([sys.executable, "-c", code + COMMAND], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "is not installed for" in done.stderr and "run `make setup` once" in done.stderr


@pytest.mark.parametrize(("extra", "line"), USES)
def test_what_is_missing_is_one_line_that_installs_it(extra, line, tmp_path):
    (tmp_path / "made.onnx").write_bytes(b"no graph")
    hidden = sorted(name for name, its in EXTRAS.items() if its == extra)
    argv = line.replace("FOLDER", str(tmp_path)).split()
    code = HIDING.format(hidden=hidden, root=str(ROOT), argv=argv)
    code += FITTING if argv[0] == "fit" else COMMAND
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = drop_progress(done.stderr).strip().splitlines()
    assert done.returncode == 2 and len(lines) == 1, done.stderr
    assert lines[0].endswith(f"pip install 'td3-robot[{extra}]'")
    assert [path.name for path in tmp_path.iterdir()] == ["made.onnx"]


SCRIPTS = sorted(
    str(path.relative_to(ROOT))
    for folder in (ROOT, ROOT / "benchmarks", ROOT / "docs", ROOT / "tools")
    for path in folder.glob("*.py")
    if "__main__" in path.read_text()
)
# Each of them runs as a file is run, one after the other, in one process that has no extra.
RUNNING = """
import contextlib, io, json, os, runpy
def run(script, words):
    sys.argv = [script, *words]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException as error:
            code = f"{type(error).__name__}: {error}"
    return code, out.getvalue(), err.getvalue()
import td3_robot.utils.console as console
def run_script(main): raise SystemExit(console.exit_code(main, sys.argv[1:]))
console.run_script = run_script  # the commands end the process, in which others are to follow
done = [run(script, words) for script, words in json.load(sys.stdin)]
print(json.dumps(done))
"""
HINT = "which is not installed: pip install 'td3-robot[{}]'"
WORKS = [  # a use of a benchmark that needs an extra
    ("bench", "benchmarks/sb3_gymnasium.py JOB"),
    ("bench", "benchmarks/sb3_reach.py FOLDER 0"),
    ("bench", "benchmarks/gymnasium_envs.py --libraries sb3"),
    ("bench", "benchmarks/reach.py --sb3"),
    ("collision", "benchmarks/collision.py"),
    ("collision", "benchmarks/collision_accuracy.py panda --count 1"),
    ("deploy", "benchmarks/control_times.py FOLDER/made.onnx"),
    ("deploy", "benchmarks/export_agreement.py"),
    ("deploy", "benchmarks/faults.py --policy FOLDER/made.onnx"),
    ("fetch", "benchmarks/fetch_reach.py --checkpoint checkpoints/run1"),
    ("mujoco", "benchmarks/insert.py --episodes 1"),
    ("mujoco", "benchmarks/laboratory.py --tasks reach --episodes 1 --out FOLDER/a.csv"),
    ("mujoco", "benchmarks/mjcf_arms.py arm.xml"),
    ("mujoco", "benchmarks/physics.py --engines mujoco --tasks reach --out FOLDER/a.csv"),
    ("mujoco", "benchmarks/physics.py --speed"),
    ("mujoco", "benchmarks/randomization.py --episodes 1 --out FOLDER/a.csv"),
    ("neo", "benchmarks/robustness.py --tasks reach_avoid --out FOLDER/a.csv"),
    ("neo", "benchmarks/tasks.py"),
    ("record", "benchmarks/drag.py"),
    ("record", "docs/make_gallery.py film"),
]
JOB = json.dumps(dict.fromkeys("env seed steps every episodes settings csv state".split(), 1))


def run_without_extras(runs: list[tuple[str, list[str]]]) -> list[tuple]:
    """Run scripts in one process that has no extra; return exit code, output and errors of each."""
    code = HIDING.format(hidden=sorted(EXTRAS), root=str(ROOT), argv=[""]) + RUNNING
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        input=json.dumps(runs),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def imports_of_extras(path) -> set[str]:
    """Names of optional packages that a file imports, wherever in the file."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names} & set(EXTRAS)


def test_the_help_of_every_script_needs_no_extra():
    assert len(SCRIPTS) > 35
    for script, (code, out, err) in zip(
        SCRIPTS, run_without_extras([(script, ["--help"]) for script in SCRIPTS]), strict=True
    ):
        assert (code, err) == (0, ""), (script, code, err)
        assert out.startswith("usage: ") and len(out.splitlines()) > 3, script


def test_a_benchmark_without_its_extra_is_one_line_that_installs_it(tmp_path):
    (tmp_path / "made.onnx").write_bytes(b"no graph")
    lines = [line.replace("FOLDER", str(tmp_path)).split() for _, line in WORKS]
    runs = [
        (script, [JOB if word == "JOB" else word for word in words]) for script, *words in lines
    ]
    for (extra, line), (code, out, err) in zip(WORKS, run_without_extras(runs), strict=True):
        assert code == 2 and len(err.splitlines()) == 1, (line, code, out, err)
        assert err.startswith("error: ") and err.endswith(f"{HINT.format(extra)}\n"), (line, err)
    assert [path.name for path in tmp_path.iterdir()] == ["made.onnx"]


def test_every_script_that_imports_an_extra_is_run_above():
    known = {line.split()[0] for _, line in WORKS} | {"benchmarks/probes.py"}  # answers bench.py
    for path in [ROOT / script for script in SCRIPTS if script.startswith(("benchmarks", "docs"))]:
        if imports_of_extras(path):
            assert str(path.relative_to(ROOT)) in known, path.name
