"""Measure the shipped policies in contact physics, exact and as in the laboratory.

    python benchmarks/laboratory.py                # all tasks, 300 episodes: 20 minutes of a core
    python benchmarks/laboratory.py --tasks reach track --worlds exact lab

Beside each policy stands its best classical controller. The laboratory is configs/randomization/
lab.yaml, with the latency of each arm estimated (`lab`) and with the middle of its range taken
(`lab, not estimated`). The results go to benchmarks/results/laboratory.csv, where they replace
those of the same task and world.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import rows
import torch

from envs.config.disturbance_options import DISTURBANCES
from envs.config.env_options import MUJOCO, EnvOptions
from envs.evaluation import Evaluation
from td3_robot import TD3
from td3_robot.checkpoint.provenance import find_commit
from td3_robot.cli.arguments import load_run_config

SHIPPED = {  # task -> run, best classical controller
    "reach": ("run1", "rrmc"),
    "reach_pose": ("reach_pose", "ik+guard"),
    "reach_avoid": ("reach_avoid", "ik+guard"),
    "track": ("track", "rrmc"),
    "pick_place": ("pick_place", "pick"),
    "pick_turned": ("pick_turned", "pick"),
    "push": ("push", "push"),
}
WORLDS = {
    "exact": {},
    "lab": {"randomize": "lab"},
    "lab, not estimated": {"randomize": "lab", "estimate_latency": False},
}
ROOT = Path(__file__).resolve().parent.parent


def measure(task: str, world: str, episodes: int, seed: int) -> rows.Row:
    """Return the row of a task in a world: success without contact of both controllers."""
    run, classical = SHIPPED[task]
    folder = ROOT / "checkpoints" / run
    given = {**dict.fromkeys(DISTURBANCES), "engine": MUJOCO, **WORLDS[world]}
    options = replace(load_run_config(folder, EnvOptions)[1], **given)
    evaluation = Evaluation(options, episodes, seed)
    agent = TD3.from_checkpoint(folder)
    evaluation.add("policy", lambda env: agent.select_action)
    evaluation.add_baseline(classical)
    policy, beside = (summary["success_rate"] for summary in evaluation.play().values())
    row: rows.Row = {"task": task, "world": world, "policy": round(float(policy), 4)}
    row |= {"classical": round(float(beside), 4), "controller": classical}
    return row | {"episodes": episodes, "seed": seed, "commit": (find_commit() or "")[:7]}


def main() -> None:
    """Parse, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(SHIPPED), choices=list(SHIPPED))
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=7341)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "benchmarks" / "results" / "laboratory.csv"
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for task in asked.tasks:
        for world in asked.worlds:
            row = measure(task, world, asked.episodes, asked.seed)
            rows.store(asked.out, tuple(row), ("task", "world"), [row])
            print(row, flush=True)


if __name__ == "__main__":
    main()
