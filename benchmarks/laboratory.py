"""Measure the shipped policies in contact physics, exact and as in the laboratory.

    python benchmarks/laboratory.py                # all tasks, 300 episodes: 20 minutes of a core
    python benchmarks/laboratory.py --tasks reach track --worlds exact lab
    python benchmarks/laboratory.py --stale        # leave out what is of today's inputs

Beside each policy stands its best classical controller. The laboratory is configs/randomization/
lab.yaml, with the latency of each arm estimated (`lab`) and with the middle of its range taken
(`lab, not estimated`). The results go to benchmarks/results/laboratory.csv, where they replace
those of the same task and world.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import figures
import rows
import torch

from envs.config.disturbance_options import DISTURBANCES
from envs.config.env_options import MUJOCO, EnvOptions
from envs.evaluation import Evaluation
from td3_robot import TD3
from td3_robot.checkpoint.provenance import find_commit
from td3_robot.cli.arguments import load_run_config

CLASSICAL = {  # task -> best classical controller
    "reach": "rrmc",
    "reach_pose": "ik+guard",
    "reach_avoid": "ik+guard",
    "track": "rrmc",
    "pick_place": "pick",
    "pick_turned": "pick",
    "push": "push",
}
WORLDS = {
    "exact": {},
    "lab": {"randomize": "lab"},
    "lab, not estimated": {"randomize": "lab", "estimate_latency": False},
}


def measure(task: str, world: str, episodes: int, seed: int) -> rows.Row:
    """Return the row of a task in a world: success without contact of both controllers."""
    folder = figures.ROOT / "checkpoints" / figures.RUNS[task]
    classical = CLASSICAL[task]
    given = {**dict.fromkeys(DISTURBANCES), "engine": MUJOCO, **WORLDS[world]}
    options = replace(load_run_config(folder, EnvOptions)[1], **given)
    evaluation = Evaluation(options, episodes, seed)
    agent = TD3.from_checkpoint(folder)
    evaluation.add("policy", lambda env: agent.select_action)
    evaluation.add_baseline(classical)
    row: rows.Row = {"task": task, "world": world}
    for column, summary in zip(("policy", "classical"), evaluation.play().values()):
        row[column] = round(float(summary["success_rate"]), 4)
        row[f"{column}_time_s"] = summary["time_to_goal_s"]["median"]
    row |= {"controller": classical, "episodes": episodes, "seed": seed}
    row["commit"] = (find_commit() or "")[:7]
    return row | {"inputs": figures.hash_in_mujoco({"task": task})}


def is_measured(out: Path, task: str, world: str) -> bool:
    """Return whether the file has a row of a task in a world that is not stale."""
    return any(
        (row["task"], row["world"]) == (task, world) and not figures.is_stale("laboratory", row)
        for row in rows.stored(out)
    )


def main() -> None:
    """Parse, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(CLASSICAL), choices=list(CLASSICAL))
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=7341)
    parser.add_argument("--stale", action="store_true", help="leave out what is of today's inputs")
    parser.add_argument("--out", type=Path, default=figures.RESULTS / "laboratory.csv")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for task in asked.tasks:
        for world in asked.worlds:
            if asked.stale and is_measured(asked.out, task, world):
                continue
            row = measure(task, world, asked.episodes, asked.seed)
            rows.store(asked.out, tuple(row), ("task", "world"), [row])
            print(row, flush=True)


if __name__ == "__main__":
    main()
