"""Measure how well policies hold their goals, long after the episodes that they were trained in.

    python benchmarks/hold.py                              # shipped policies
    python benchmarks/hold.py --checkpoints run1 --seconds 3 60 --randomize lab

Prints rows of Markdown: the share of arms that are a success at a time after their start, and the
speed of their fastest joint, median over arms.
"""

import argparse
import sys
from dataclasses import replace
from typing import Any

import rows
import torch

from envs.config.env_options import EnvOptions
from envs.registry import make_from_config
from td3_robot import TD3
from td3_robot.checkpoint import find
from td3_robot.cli.arguments import load_run_config
from td3_robot.utils.console import exit_code

SHIPPED = ("run1", "reach_pose", "reach_avoid", "pick_place", "pick_turned", "push", "stack")


@torch.no_grad()
def measure(checkpoint: str, seconds: list[float], arms: int, randomize: str) -> None:
    """Print a row for each time [s] of one policy."""
    folder = find(checkpoint)
    _, options = load_run_config(folder, EnvOptions)
    agent = TD3.from_checkpoint(folder)
    env: Any = make_from_config(replace(options, randomize=randomize), arms)
    steps = {round(each / env.task.dt): each for each in seconds}
    env.task = replace(env.task, horizon=max(steps) + 1)
    observation = env.reset(rows.UNSEEN_SEED)
    for number in range(1, max(steps) + 1):
        step = env.step(agent.select_action(observation))
        observation = step.observation
        if number in steps:
            success = 100 * step.info["success"].double().mean()
            speed = step.info["qd"].abs().amax(1).median()
            print(f"| {checkpoint} | {steps[number]:g} | {success:.1f} | {speed:.4f} |", flush=True)


def main(argv: list[str]) -> None:
    """Measure and print the table as Markdown."""
    parser = argparse.ArgumentParser(description="Measure how well policies hold their goals.")
    parser.add_argument("--checkpoints", nargs="+", default=SHIPPED, help="policies to measure")
    parser.add_argument("--seconds", nargs="+", type=float, default=[5.0, 20.0, 60.0])
    parser.add_argument("--arms", type=int, default=200, help="how many, each with its own goal")
    parser.add_argument("--randomize", default="none", help="of configs/randomization")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    print("| policy | after [s] | success [%] | fastest joint, median [rad/s] |")
    print("| --- " * 4 + "|")
    for checkpoint in arguments.checkpoints:
        measure(checkpoint, arguments.seconds, arguments.arms, arguments.randomize)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
