"""Train arms from their MJCF files and measure them beside a classical controller.

    python benchmarks/mjcf_arms.py menagerie/franka_fr3/fr3.xml --source "Menagerie 1b2c3d4"
    python benchmarks/mjcf_arms.py "aloha.xml --base left/base_link" "so101.xml --velocity 4.7"

An arm is a file with the options that train.py needs for it. `reach_pose` needs capsules beside it
(`python -m envs.collision.fitting`), which its guard keeps apart. Each training is a cold run of
train.py with the task's preset; the policy is measured by evaluate.py on episodes that it never
trained on (seed 12345), where it is trained and in contact physics by the file's own masses, servos
and friction. The rows go to mjcf_arms.csv in benchmarks/results, in place of those of the same arm
and task.
"""

import argparse
import json
import os
import resource
import shlex
import sys
import tempfile
import time
from pathlib import Path

import rows
from training import ROOT, run_script

from td3_robot.checkpoint.provenance import find_commit
from td3_robot.errors import require_packages
from td3_robot.utils.console import exit_code

KEY = ("arm", "task")
CLASSICAL = {"reach": "rrmc", "reach_pose": "ik"}
SCRATCH = "arm"  # the run of a training


def read_cpu_time() -> float:
    """Read the CPU time of the processes that this one has waited for [s]."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(words: list[str], task: str, seed: int, episodes: int) -> rows.Row:
    """Train and evaluate one arm; return its row.

    Args:
        words: the file and options of train.py.
    """
    path, *options = words
    robot = ["--robot", str(Path(path).absolute()), *options, "--task", task]
    classical = CLASSICAL[task]
    count = ["--episodes", str(episodes), "--seed", str(rows.UNSEEN_SEED)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        began = time.perf_counter()
        began_cpu = read_cpu_time()
        run_script("train.py", *robot, "--seed", str(seed), "--run", SCRATCH, folder=folder)
        seconds = time.perf_counter() - began
        cpu_seconds = read_cpu_time() - began_cpu
        run = folder / "checkpoints" / SCRATCH
        summary = json.loads((run / "summary.json").read_text())
        evaluate = ["--checkpoint", str(run), *count, "--json", str(folder / "result.json")]
        evaluate += ["--baseline", classical]
        run_script("evaluate.py", *evaluate, folder=folder)
        exact = json.loads((folder / "result.json").read_text())
        run_script("evaluate.py", *evaluate, "--engine", "mujoco", folder=folder)
        physics = json.loads((folder / "result.json").read_text())
    name = f"{Path(path).parent.name}/{Path(path).name}"
    row: rows.Row = {"arm": " ".join([name, *options]), "task": task, "seed": seed}
    for world, result in (("kinematic", exact), ("mujoco", physics)):
        row[f"{world}_policy"] = round(result["success_rate"], 4)
        row[f"{world}_classical"] = round(result["baselines"][classical]["success_rate"], 4)
    row["controller"] = classical
    row["median_mm"] = round(1000.0 * exact["final_position_error_m"]["median"], 2)
    row |= {"training_s": round(seconds, 1), "training_cpu_s": round(cpu_seconds, 1)}
    row |= {"env_steps": summary["env_steps"], "solved_at_s": summary["solved_at_s"]}
    return row | {"episodes": episodes, "commit": (find_commit() or "")[:7]}


def main(argv: list[str]) -> None:
    """Parse, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arms", nargs="+", help="a file, in quotes with its options")
    parser.add_argument("--tasks", nargs="+", default=["reach"], choices=list(CLASSICAL))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--source", default="", help="where the files are from")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "benchmarks" / "results" / "mjcf_arms.csv"
    )
    asked = parser.parse_args(argv)
    require_packages("an MJCF file", "mujoco")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}")
    for arm in asked.arms:
        for task in asked.tasks:
            row = measure(shlex.split(arm), task, asked.seed, asked.episodes)
            row |= {"source": asked.source, "load": round(os.getloadavg()[0], 1)}
            rows.write_rows(asked.out, tuple(row), KEY, [row])
            print(row, flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
