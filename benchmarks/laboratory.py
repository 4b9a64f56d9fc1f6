"""Measure the shipped policies in contact physics, exact and as in the laboratory.

    python benchmarks/laboratory.py                # all tasks, 1,000 episodes: an hour of a core
    python benchmarks/laboratory.py --tasks reach track --worlds exact lab
    python benchmarks/laboratory.py --stale        # leave out what is of today's inputs
    python benchmarks/laboratory.py --trained track:lab/track1 track:lab/track2

Beside each policy stands its best classical controller. The laboratory is configs/randomization/
lab.yaml, with the latency of each arm estimated (`lab`) and with the middle of its range taken
(`lab, not estimated`). The results go to benchmarks/results/laboratory.csv, where they replace
those of the same task and world. With --trained, other runs of the presets, for example of other
seeds, are measured without the controllers; they go to laboratory_seeds.csv.
"""

import argparse
import json
import sys
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
from td3_robot.utils.console import exit_code

CLASSICAL = {  # task -> best classical controller
    "reach": "rrmc",
    "reach_pose": "ik+guard",
    "reach_avoid": "ik+guard",
    "track": "rrmc",
    "pick_place": "pick+guard",
    "pick_turned": "pick+guard",
    "push": "push",
    "stack": "pick+guard",
    "insert": "insert_tilted",
    "insert_tight": "insert_tilted",
}
WORLDS = {
    "exact": {"randomize": "none"},
    "lab": {"randomize": "lab"},
    "lab, not estimated": {"randomize": "lab", "estimate_latency": False},
}


FIGURES = ("success", "time_s", "jerk_rad_s3")  # columns of each controller


def play(folder: Path, world: str, episodes: int, seed: int, classical: str | None) -> list[dict]:
    """Return `FIGURES` of a run's policy and of a classical controller, if one is named."""
    given = {**dict.fromkeys(DISTURBANCES), "engine": MUJOCO, **WORLDS[world]}
    options = replace(load_run_config(folder, EnvOptions)[1], **given)
    evaluation = Evaluation(options, episodes, seed)
    agent = TD3.from_checkpoint(folder)
    evaluation.add("policy", lambda env: agent.select_action)
    if classical is not None:
        evaluation.add_baseline(classical)
    found = []
    for summary in evaluation.play().values():
        success = round(float(summary["success_rate"]), 4)
        time = summary["time_to_goal_s"]["median"]
        jerk = round(summary["rms_jerk_rad_s3"]["median"], 2)
        found.append(dict(zip(FIGURES, (success, time, jerk), strict=True)))
    return found


def measure(task: str, world: str, episodes: int, seed: int) -> rows.Row:
    """Return the row of a shipped policy and its best classical controller in a world."""
    folder = figures.ROOT / "checkpoints" / figures.RUNS[task]
    row: rows.Row = {"task": task, "world": world}
    both = play(folder, world, episodes, seed, CLASSICAL[task])
    for column, found in zip(("policy", "classical"), both, strict=True):
        row[column] = found["success"]
        row[f"{column}_time_s"] = found["time_s"]
        row[f"{column}_jerk_rad_s3"] = found["jerk_rad_s3"]
    row |= {"controller": CLASSICAL[task], "episodes": episodes, "seed": seed}
    row["commit"] = (find_commit() or "")[:7]
    return row | {"inputs": figures.hash_in_mujoco({"task": task})}


def measure_trained(task: str, run: str, world: str, episodes: int, seed: int) -> rows.Row:
    """Return the row of a run of a task's preset in a world."""
    folder = figures.ROOT / "checkpoints" / run
    trained = json.loads((folder / "summary.json").read_text())
    row: rows.Row = {"task": task, "world": world, "train_seed": trained["seed"]}
    row |= play(folder, world, episodes, seed, None)[0]
    row |= {"train_s": round(trained["wall_s"], 1), "env_steps": trained["env_steps"]}
    row |= {"episodes": episodes, "seed": seed, "commit": (find_commit() or "")[:7]}
    return row | {"inputs": figures.hash_training({"task": task})}


def is_measured(out: Path, task: str, world: str) -> bool:
    """Return whether the file has a row of a task in a world that is not stale."""
    return any(
        (row["task"], row["world"]) == (task, world) and not figures.is_stale("laboratory", row)
        for row in rows.read_rows(out)
    )


def main(argv: list[str]) -> None:
    """Parse, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(CLASSICAL), choices=list(CLASSICAL))
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7341)
    parser.add_argument("--stale", action="store_true", help="leave out what is of today's inputs")
    parser.add_argument("--trained", nargs="+", default=[], metavar="TASK:RUN")
    parser.add_argument("--out", type=Path, default=figures.RESULTS / "laboratory.csv")
    asked = parser.parse_args(argv)
    torch.set_num_threads(1)
    for one in asked.trained:
        task, run = one.split(":")
        for world in asked.worlds:
            row = measure_trained(task, run, world, asked.episodes, asked.seed)
            out = asked.out.with_name("laboratory_seeds.csv")
            rows.write_rows(out, tuple(row), ("task", "world", "train_seed"), [row])
            print(row, flush=True)
    if asked.trained:
        return
    for task in asked.tasks:
        for world in asked.worlds:
            if asked.stale and is_measured(asked.out, task, world):
                continue
            row = measure(task, world, asked.episodes, asked.seed)
            rows.write_rows(asked.out, tuple(row), ("task", "world"), [row])
            print(row, flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
