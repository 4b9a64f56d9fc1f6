"""Measure how well every registered robot learns `reach` with the shipped configuration.

    python benchmarks/robots.py                      # all that need no network, seed 0
    python benchmarks/robots.py lbr wx250s --seeds 3

Each training is a cold `train.py --robot R --task reach`, its policy then measured by evaluate.py
on 1,000 episodes that it never trained on (seed 12345). The target: 98% within 1 cm, after 60 s of
training on two cores.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import rows
from training import run_script

from td3_robot.utils.console import exit_code

EPISODES = 1000


def measure(robot: str, seed: int, options: list[str], folder: Path) -> dict:
    """Train and evaluate one policy."""
    name = f"{robot}_{seed}"
    result = folder / "result.json"
    train = ["--robot", robot, "--task", "reach", "--seed", str(seed), "--run", name, *options]
    began = time.perf_counter()
    run_script("train.py", *train, folder=folder)
    seconds = time.perf_counter() - began
    evaluate = ["--checkpoint", f"checkpoints/{name}", "--json", str(result)]
    evaluate += ["--episodes", str(EPISODES), "--seed", str(rows.UNSEEN_SEED)]
    run_script("evaluate.py", *evaluate, folder=folder)
    return json.loads(result.read_text()) | {"seconds": seconds}


def main(argv: list[str]) -> None:
    """Print the table."""
    from envs.robots import shipped_robots

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("robots", nargs="*", help="default: all that need no network")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0 to N-1 are trained")
    arguments, options = parser.parse_known_args()  # what it does not know goes to train.py
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}")
    head = (
        "robot",
        "seed",
        "success",
        "median [mm]",
        "p95 [mm]",
        "to goal [s]",
        "training [s]",
        "violations",
    )
    print("{:<12} {:>4} {:>8} {:>12} {:>9} {:>12} {:>13} {:>11}".format(*head))
    with tempfile.TemporaryDirectory() as scratch:
        for robot in arguments.robots or shipped_robots():
            for seed in range(arguments.seeds):
                row = measure(robot, seed, options, Path(scratch))
                error = row["final_position_error_m"]
                to_goal = row["time_to_goal_s"]["median"] or float("nan")
                violations = sum(count or 0 for count in row["limit_violations"].values())
                print(
                    f"{robot:<12} {seed:>4} {row['success_rate']:>8.1%} "
                    f"{1000 * error['median']:>12.2f} {1000 * error['p95']:>9.2f} "
                    f"{to_goal:>12.2f} {row['seconds']:>13.1f} {violations:>11}",
                    flush=True,
                )
    print(f"load {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
