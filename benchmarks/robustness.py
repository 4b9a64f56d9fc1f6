"""Measure what delay, lag and noise cost policies and controllers, with foresight and without.

    python benchmarks/robustness.py                    # all tasks, 1,000 episodes: 20 minutes
    python benchmarks/robustness.py --tasks reach --episodes 200
    python benchmarks/robustness.py --speed            # what it costs the simulator
    python benchmarks/robustness.py --seeds 1 2        # of the trainings of benchmarks/tasks.py

The results go to benchmarks/results/robustness.csv, those of seeds to robustness_seeds.csv, where
they replace those of the same task and disturbances or seed.
"""

import argparse
import sys
import time
from pathlib import Path

import figures
import rows
import torch

import envs
from envs.config.env_options import EnvOptions
from envs.evaluation import Evaluation
from envs.simulation.disturbances import Disturbances
from td3_robot import TD3
from td3_robot.checkpoint.provenance import find_commit
from td3_robot.cli.arguments import load_run_config
from td3_robot.errors import require_packages
from td3_robot.utils.console import exit_code

SHIPPED = {
    "reach": "run1",
    **{task: task for task in ("reach_pose", "reach_avoid", "track", "pick_place")},
}
CLASSICAL = {"reach_avoid": "neo+guard", "pick_place": "pick"}  # of other tasks rrmc
CONDITIONS = {
    "none": {},
    "25 ms": {"latency": 0.025},
    "50 ms": {"latency": 0.05},
    "100 ms": {"latency": 0.1},
    "50 ms, 1 mrad, 20 ms lag": {"latency": 0.05, "noise": 0.001, "servo_lag": 0.02},
    "25 to 75 ms, one for each episode": {"latency": 0.05, "latency_spread": 0.025},
    "50 ms taken for 25": {"latency": 0.05, "assumed_latency": 0.025},
    "50 ms taken for 75": {"latency": 0.05, "assumed_latency": 0.075},
    "50 ms taken for none": {"latency": 0.05, "assumed_latency": 0.0},
}
OF_SEEDS = (
    "none",
    "25 ms",
    "50 ms",
    "50 ms, 1 mrad, 20 ms lag",
    "25 to 75 ms, one for each episode",
)
ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def make_evaluation(run: str, episodes: int) -> Evaluation:
    """Make the evaluation of a policy."""
    folder = ROOT / "checkpoints" / run
    evaluation = Evaluation(load_run_config(folder, EnvOptions)[1], episodes)
    agent = TD3.from_checkpoint(folder)
    evaluation.add("policy", lambda env: agent.select_action)
    return evaluation


def evaluate_seeds(tasks: list[str], numbers: list[int], episodes: int) -> None:
    """Evaluate policies of other seeds, a row for each that exists."""
    for task, seed in ((task, seed) for task in tasks for seed in numbers):
        if (ROOT / "checkpoints" / f"bench-{task}-{seed}" / "summary.json").is_file():
            evaluation = make_evaluation(f"bench-{task}-{seed}", episodes)
            behind = {
                name: evaluation.measure_success(CONDITIONS[name], episodes)["policy"]
                for name in OF_SEEDS
            }
            row: rows.Row = {"task": task, "seed": seed, "episodes": episodes}
            row |= {name: round(success, 4) for name, success in behind.items()}
            rows.write_rows(RESULTS / "robustness_seeds.csv", tuple(row), ("task", "seed"), [row])
            print(row, flush=True)


def measure_speed(arms: int = 256, steps: int = 300) -> None:
    """Print the milliseconds of a control step, measured in turns."""
    conditions = {
        name: CONDITIONS[name] for name in ("none", "25 ms", "50 ms", "50 ms, 1 mrad, 20 ms lag")
    }
    for task in SHIPPED:
        made = {
            name: envs.make("panda", task, arms, disturbances=Disturbances(**given))
            for name, given in conditions.items()
        }
        action = torch.zeros(arms, made["none"].a_dim)
        spent = dict.fromkeys(made, 0.0)
        for _ in range(steps):
            for name, env in made.items():
                began = time.perf_counter()
                env.step(action)
                spent[name] += time.perf_counter() - began
        print(
            task,
            {name: f"{1000 * seconds / steps:.2f} ms" for name, seconds in spent.items()},
            flush=True,
        )


def main(argv: list[str]) -> None:
    """Parse, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(SHIPPED), choices=list(SHIPPED))
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=RESULTS / "robustness.csv")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+")
    asked = parser.parse_args(argv)
    torch.set_num_threads(1)
    if asked.speed:
        return measure_speed()
    if asked.seeds:
        return evaluate_seeds(asked.tasks, asked.seeds, asked.episodes)
    if "reach_avoid" in asked.tasks:
        require_packages("baseline neo", "qpsolvers", "quadprog")
    for task in asked.tasks:
        evaluation = make_evaluation(SHIPPED[task], asked.episodes)
        evaluation.add_baseline(CLASSICAL.get(task, "rrmc"))
        for name, given in CONDITIONS.items():
            policy, classical = evaluation.measure_success(given, asked.episodes).values()
            row: rows.Row = {"task": task, "disturbances": name, "episodes": asked.episodes}
            row |= {"policy": round(policy, 4), "classical": round(classical, 4)}
            row |= {"commit": (find_commit() or "")[:7], "inputs": figures.hash_shipped(row)}
            rows.write_rows(asked.out, tuple(row), ("task", "disturbances"), [row])
            print(row, flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
