"""Optional packages that are missing: each use of one ends in one line that installs it."""

import os
import subprocess
import sys

import pytest

from td3_robot.errors import EXTRAS
from tests.support import ROOT

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
    ("deploy", "export --checkpoint checkpoints/run1 --onnx FOLDER/policy.onnx"),
    ("deploy", "run --policy FOLDER/made.onnx --goal 0.4,0.1,0.4"),
    ("sweep", "sweep --plan configs/sweeps/reach.yaml"),
    ("bench", "train --env PandaReach-v3"),
    ("collision", "fit panda"),
]


def test_every_extra_is_used_here():
    assert {extra for extra, _ in USES} == set(EXTRAS.values())


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
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2 and len(lines) == 1, done.stderr
    assert lines[0].endswith(f"pip install 'td3-robot[{extra}]'")
    assert [path.name for path in tmp_path.iterdir()] == ["made.onnx"]
