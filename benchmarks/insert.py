"""Measure policies of `insert` and its three programs on the same episodes.

python benchmarks/insert.py                                  # the programs alone
python benchmarks/insert.py --checkpoints insert insert_blind
python benchmarks/insert.py --randomize lab_force --seed 7341
python benchmarks/insert.py --task insert_tight
"""

import argparse
import os
import sys
from dataclasses import replace
from typing import Any

import rows
import torch

from envs.config.env_options import MUJOCO, EnvOptions
from envs.evaluation import Evaluation
from td3_robot import TD3
from td3_robot.checkpoint import find
from td3_robot.cli.arguments import load_run_config
from td3_robot.utils.console import exit_code

PROGRAMS = ("insert_straight", "insert_spiral", "insert_tilted")


def measure(options: EnvOptions, episodes: int, seed: int, checkpoint: str | None) -> None:
    """Print a row for a policy, or for each program."""
    evaluation = Evaluation(options, episodes, seed)
    if checkpoint is not None:
        agent = TD3.from_checkpoint(find(checkpoint))
        evaluation.add(checkpoint, lambda env: agent.select_action)
    else:
        for name in PROGRAMS:
            evaluation.add_baseline(name)
    for name, summary in evaluation.play().items():
        row: Any = summary
        force = row["insert_force_n"]
        seconds = row["time_to_goal_s"]["median"]
        time = "-" if seconds is None else f"{seconds:.2f}"
        forces = " | ".join(f"{force[key]:.1f}" for key in ("median", "p95", "max"))
        print(f"| {name} | {100 * row['success_rate']:.1f} | {time} | {forces} |", flush=True)


def main(argv: list[str]) -> None:
    """Measure and print the table as Markdown."""
    parser = argparse.ArgumentParser(description="Measure policies of `insert` and its programs.")
    parser.add_argument("--checkpoints", nargs="*", default=[], help="policies to measure")
    parser.add_argument("--robot", default="panda", help="of the programs")
    parser.add_argument("--task", default="insert", help="insert or insert_tight")
    parser.add_argument("--episodes", type=int, default=1000, help="of each controller")
    parser.add_argument("--seed", type=int, default=rows.UNSEEN_SEED, help="of the episodes")
    parser.add_argument("--randomize", default="none", help="of configs/randomization")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    print(f"{arguments.episodes} episodes, seed {arguments.seed}, load {load:.1f}\n")
    print("| controller | success [%] | time, median [s] | force, median [N] | 95% | most |")
    print("| --- " * 6 + "|")
    plain = EnvOptions(
        robot=arguments.robot, task=arguments.task, engine=MUJOCO, randomize=arguments.randomize
    )
    measure(plain, arguments.episodes, arguments.seed, None)
    for checkpoint in arguments.checkpoints:
        _, options = load_run_config(find(checkpoint), EnvOptions)
        options = replace(options, randomize=arguments.randomize)
        measure(options, arguments.episodes, arguments.seed, checkpoint)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
