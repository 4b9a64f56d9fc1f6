"""Time simulation and learning of `reach`, compared with Stable-Baselines3's TD3.

    python benchmarks/reach.py           # the simulator, then five cold trainings
    python benchmarks/reach.py --sb3     # and Stable-Baselines3 (pip install 'td3-robot[bench]')

Every training is a process of its own, so its times include starting Python and importing torch.
Nothing else should run meanwhile; the load printed at the start and end tells whether something
did.
"""

import argparse
import csv
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from training import run_script

from td3_robot.errors import require_packages
from td3_robot.utils.console import exit_code

TARGETS = (0.95, 0.99)


def measure_simulator_speed(num_envs: int = 4096, steps: int = 600) -> float:
    """Return env steps/s on one core, with observations, rewards and resets."""
    import torch

    import envs
    from td3_robot.utils.memory import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(1)
    env = envs.make("panda", "reach", num_envs)
    actions = torch.rand(steps, num_envs, env.a_dim) * 2 - 1
    for action in actions[:60]:
        env.step(action)
    began = time.perf_counter()
    for action in actions:
        env.step(action)
    return num_envs * steps / (time.perf_counter() - began)


def find_first_time(rows: list[dict], target: float) -> float | None:
    """Return the seconds from process start to a success rate, or None."""
    return next(
        (float(row["wall_s"]) for row in rows if float(row["success_rate"]) >= target), None
    )


def measure(name: str, command: list[str], folder: Path) -> dict:
    """Run a script that trains and writes `folder/metrics.csv`, and return its times."""
    began = time.perf_counter()
    run_script(*command, folder=folder.parent.parent)
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    summary = json.loads((folder / "summary.json").read_text())
    return {
        "name": name,
        "times": [find_first_time(rows, target) for target in TARGETS],
        "final": summary["success_rate"],
        "total": time.perf_counter() - began,
        "env_steps": summary["env_steps"],
        "gradient_steps": summary["gradient_steps"],
    }


def show(row: dict) -> None:
    """Print one training as a line of the table."""
    times = " ".join(f"{t:8.1f}" if t else "   never" for t in row["times"])
    print(
        f"{row['name']:<24} {times} {row['final']:8.1%} {row['total']:8.1f} "
        f"{row['env_steps']:>10,} {row['gradient_steps']:>9,}",
        flush=True,
    )


def main(argv: list[str]) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to N-1 are trained")
    parser.add_argument(
        "--threads", type=int, help="torch threads of every training; default: the preset's"
    )
    parser.add_argument(
        "--sb3", action="store_true", help="train Stable-Baselines3 too, by the same settings"
    )
    arguments = parser.parse_args(argv)
    if arguments.sb3:
        require_packages("--sb3", "stable_baselines3")
    threads = ["--threads", str(arguments.threads)] if arguments.threads else []

    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}")
    print(f"simulator, one core, 4,096 envs: {measure_simulator_speed():,.0f} env steps/s\n")
    print(
        f"{'training (cold start)':<24} {'95% [s]':>8} {'99% [s]':>8} {'final':>8} {'all [s]':>8} "
        f"{'env steps':>10} {'updates':>9}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(arguments.seeds):
            run = ["train.py", "--robot", "panda", "--run", f"s{seed}", "--seed", str(seed)]
            folder = Path(scratch, "checkpoints", f"s{seed}")
            show(measure(f"td3_robot seed {seed}", [*run, *threads], folder))
        for seed in range(arguments.seeds if arguments.sb3 else 0):
            folder = Path(scratch, "checkpoints", f"sb3_{seed}")
            folder.mkdir(parents=True)
            run = ["benchmarks/sb3_reach.py", str(folder), str(seed)]
            show(measure(f"Stable-Baselines3 seed {seed}", [*run, *threads[1:]], folder))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"\npeak memory of a training: {peak:,.0f} MB; load {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
