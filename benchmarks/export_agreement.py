"""Compare exported policies with the simulator and PyTorch, and time them.

    python benchmarks/export_agreement.py [CHECKPOINT ...]

Prints a row of a table for each checkpoint, by default those of this repository: size of the file,
largest difference of the observation (relative to 1 or to the value) and of the command (relative
to full speed) over random motions of 50 arms, and the median time of a step on one thread.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import envs  # noqa: E402
from envs.config.disturbance_options import DISTURBANCES  # noqa: E402
from envs.config.env_options import NOTHING, EnvOptions  # noqa: E402
from envs.export.controller import list_inputs  # noqa: E402
from td3_robot import TD3  # noqa: E402
from td3_robot.cli.arguments import load_run_config  # noqa: E402
from td3_robot.errors import require_packages  # noqa: E402
from td3_robot.utils.console import exit_code  # noqa: E402

SHIPPED = ("run1", "reach_pose", "reach_avoid", "track", "push", "pick_place", "pick_turned")
ARMS = 50
STEPS = 40


def compare(checkpoint: Path, file: Path) -> tuple[float, float, float]:
    """Return the largest differences of observation and command, and the time of a step [ms]."""
    import onnxruntime  # here: it is an extra

    _, options = load_run_config(checkpoint, EnvOptions)
    # without latency and noise: a program predicts and measures before the graph
    options = replace(options, **dict.fromkeys(DISTURBANCES), randomize=NOTHING)
    env: Any = envs.make_from_config(options, ARMS, seed=1)
    agent = TD3.from_checkpoint(checkpoint)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    generator = torch.Generator().manual_seed(0)
    observed = commanded = 0.0
    times = []
    for _ in range(STEPS):
        action = torch.rand(ARMS, env.a_dim, generator=generator) * 2.0 - 1.0
        observation = env.step(action).observation
        action = agent.select_action(observation).clamp(-1.0, 1.0)
        for row in range(ARMS):
            given = {name: value.numpy() for name, value in list_inputs(env, row).items()}
            start = time.perf_counter()
            command, found = session.run(
                ["command", "observation"], {name: given[name] for name in names}
            )
            times.append(time.perf_counter() - start)
            size = observation[row].abs().clamp_min(1.0).numpy()
            off = np.abs(found - observation[row].numpy()) / size
            wrong = np.abs(command / env.robot.qdlim - action[row, : env.robot.n].numpy())
            observed = max(observed, off.max())
            commanded = max(commanded, wrong.max())
    return observed, commanded, 1e3 * float(np.median(times))


def main(argv: list[str]) -> None:
    """Export each checkpoint into a temporary folder, and print its row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    shipped = [f"checkpoints/{run}" for run in SHIPPED]
    parser.add_argument("checkpoints", nargs="*", default=shipped)
    names = parser.parse_args(argv).checkpoints
    require_packages("the comparison", "onnx", "onnxscript", "onnxruntime")
    torch.set_num_threads(1)
    print("| policy | file [KiB] | observation | command | step [ms] |\n| - | - | - | - | - |")
    for name in names:
        checkpoint = Path(name)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "policy.onnx"
            command = [sys.executable, "export.py", "--checkpoint", name, "--onnx", str(file)]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
            observed, commanded, step = compare(checkpoint, file)
            size = file.stat().st_size / 1024
        print(
            f"| {checkpoint.name} | {size:.0f} | {observed:.1e} | {commanded:.1e} | {step:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
