"""A training begins without the packages that it does not use."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNUSED = (
    "PIL",
    "gymnasium",
    "matplotlib",
    "mlflow",
    "mujoco",
    "onnx",
    "onnxruntime",
    "pandas",
    "ray",
    "roboticstoolbox",
    "scipy",
    "spatialmath",
    "swift",
    "sympy",
    "torch._dynamo",
    "torch._inductor",
    "trimesh",
    "triton",
)
# ends the process after the first step of `train.py`
PROGRAM = f"""
import gc, os, sys
from td3_robot.commands import train

build = train.build_environments

def build_and_watch(*arguments):
    from td3_robot.training.trainer import Trainer
    step = Trainer._step
    def step_and_report(trainer):
        step(trainer)
        print("at the first step:", [name for name in {UNUSED} if name in sys.modules])
        print("exempt from collection:", gc.get_freeze_count() > 100_000, flush=True)
        os._exit(0)
    Trainer._step = step_and_report
    return build(*arguments)

train.build_environments = build_and_watch
train.main(["--robot", "panda", "--run", "run", "--steps", "1000"])
"""


def test_nothing_unused_is_imported_before_the_first_step(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "at the first step: []\n" in result.stdout, result.stdout + result.stderr
    assert "exempt from collection: True\n" in result.stdout
