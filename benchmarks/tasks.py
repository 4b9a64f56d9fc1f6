"""Measure how well the Panda learns every task, compared with the classical controllers.

python benchmarks/tasks.py                       # all tasks, seeds 0 to 2: two hours, two cores
python benchmarks/tasks.py track pick_place --seeds 0
python benchmarks/tasks.py --table               # only the results that exist
"""

import argparse
import json
import os
import sys
from pathlib import Path

import figures
import rows
import torch
from training import ROOT, run_script

from envs.config.env_options import EnvOptions
from envs.evaluation import Evaluation
from td3_robot import TD3
from td3_robot.checkpoint.provenance import find_commit
from td3_robot.cli.arguments import load_run_config
from td3_robot.errors import require_packages
from td3_robot.utils.console import exit_code
from td3_robot.utils.memory import keep_freed_memory

RESULTS = ROOT / "benchmarks" / "results" / "tasks.csv"
BASELINES = {
    "reach": ("rrmc", "neo"),
    "reach_pose": ("rrmc", "neo", "ik"),
    "reach_avoid": ("rrmc", "neo", "ik", "rrmc+guard", "neo+guard", "reactive+guard", "ik+guard"),
    "track": ("rrmc", "neo"),
    "pick_place": ("pick",),
    "push": ("push",),
}
COLUMNS = (
    *(
        "task",
        "seed",
        "controller",
        "episodes",
        "success",
        "with_contact",
        "deepest_mm",
        "error_mm",
        "error_p95_mm",
        "time_s",
    ),
    *("jerk", "train_s", "load", "commit", "inputs"),
)


def train(task: str, seed: int) -> Path:
    """Return the folder of a finished training."""
    folder = ROOT / "checkpoints" / f"bench-{task}-{seed}"
    summary = folder / "summary.json"
    if not summary.is_file():
        new = ("--run", folder.name, "--robot", "panda", "--task", task, "--seed", str(seed))
        words = ("--resume", folder.name) if (folder / "last").is_dir() else new
        run_script("train.py", *words, folder=ROOT, quiet=False)
    return folder


def measure(task: str, seed: int, folder: Path, episodes: int) -> list[rows.Row]:
    """Return the rows of a policy and of the baselines."""
    _, options = load_run_config(folder, EnvOptions)
    agent = TD3.from_checkpoint(folder)
    evaluation = Evaluation(options, episodes, rows.UNSEEN_SEED)
    evaluation.add("policy", lambda env: agent.select_action)
    for name in BASELINES[task]:
        evaluation.add_baseline(name)
    measured = []
    for name, values in evaluation.play().items():
        error = values.get("tracking_error_m") or values["final_position_error_m"]
        seconds = (
            json.loads((folder / "summary.json").read_text())["wall_s"]
            if name == "policy"
            else None
        )
        measured.append(
            {
                "task": task,
                "seed": seed,
                "controller": name,
                "episodes": episodes,
                "success": values["success_rate"],
                "with_contact": values["success_rate_with_contact"],
                "deepest_mm": 1000 * values["deepest_contact_m"],
                "error_mm": 1000 * error["median"],
                "error_p95_mm": 1000 * error["p95"],
                "time_s": values["time_to_goal_s"]["median"],
                "jerk": values["rms_jerk_rad_s3"]["median"],
                "train_s": seconds,
                "load": os.getloadavg()[0],
                "commit": (find_commit() or "")[:7],
                "inputs": figures.hash_inputs(task),
            }
        )
    return measured


def print_table() -> None:
    """Print the results as Markdown."""
    print(
        "| task | controller | seed | episodes | success [%] | contact or not [%] | "
        "deepest contact [mm] | error, median [mm] | 95% [mm] | to goal [s] | "
        "RMS jerk [rad/s3] | training [s] |"
    )
    print("| --- " * 12 + "|")
    for row in rows.read_rows(RESULTS):
        number = lambda key, form: format(float(row[key]), form) if row[key] else "-"  # noqa: B023, E731
        print(
            f"| {row['task']} | {row['controller']} | {row['seed']} | {row['episodes']} | "
            f"{100 * float(row['success']):.1f} | {100 * float(row['with_contact']):.1f} | "
            f"{number('deepest_mm', '.0f')} | {number('error_mm', '.2f')} | "
            f"{number('error_p95_mm', '.2f')} | {number('time_s', '.2f')} | "
            f"{number('jerk', '.0f')} | {number('train_s', '.0f')} |"
        )


def main(argv: list[str]) -> None:
    """Train, measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", help=f"of {', '.join(BASELINES)}; all by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=1000, help="of each controller")
    parser.add_argument("--table", action="store_true", help="only print what was measured")
    arguments = parser.parse_args(argv)
    if strangers := set(arguments.tasks) - set(BASELINES):
        parser.error(f"unknown task {min(strangers)!r}; valid choices: {', '.join(BASELINES)}")
    if not arguments.table:
        require_packages("baseline neo", "qpsolvers", "quadprog")
    keep_freed_memory()
    torch.set_num_threads(1)
    for seed in () if arguments.table else arguments.seeds:
        for task in arguments.tasks or BASELINES:
            measured = measure(task, seed, train(task, seed), arguments.episodes)
            rows.write_rows(RESULTS, COLUMNS, ("task", "seed", "controller"), measured)
    print_table()


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
