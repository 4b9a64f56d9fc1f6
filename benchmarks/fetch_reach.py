"""Compare a policy of FetchReach with going straight to the goal, on the same episodes.

    python benchmarks/fetch_reach.py --checkpoint checkpoints/f0

Rewards are -1 short of the goal and 0 at it, so a return is the steps until the gripper is within 5
cm. Nothing can be much quicker than a controller whose action, 5 cm a step along each axis, is the
way to the goal times a high gain.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
import torch

from td3_robot import TD3
from td3_robot.checkpoint import find
from td3_robot.utils.console import exit_code

ENV_ID = "FetchReach-v4"
FIRST_SEED = 50_000
GAIN = 40.0  # [1/m]

Policy = Callable[[dict], np.ndarray]


def move_straight(observed: dict) -> np.ndarray:
    """Return the action (4,) to the goal; the gripper's is last."""
    return np.append(
        np.clip(GAIN * (observed["desired_goal"] - observed["achieved_goal"]), -1.0, 1.0), 0.0
    )


def load_policy(checkpoint: Path) -> Policy:
    """Load the policy of a checkpoint."""
    agent = TD3.from_checkpoint(find(checkpoint))
    parts = ("observation", "achieved_goal", "desired_goal")
    return lambda observed: agent.select_action(
        np.concatenate([observed[name] for name in parts])
    ).numpy()


def measure_returns(policy: Policy, episodes: int) -> np.ndarray:
    """Return the sums of rewards (episodes,)."""
    env = gymnasium.make(ENV_ID)
    found = np.zeros(episodes)
    for episode in range(episodes):
        observed = env.reset(seed=FIRST_SEED + episode)[0]
        over = False
        while not over:
            observed, reward, terminated, truncated, _ = env.step(policy(observed))
            found[episode] += reward
            over = terminated or truncated
    return found


def main(argv: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--episodes", type=int, default=1000)
    options = parser.parse_args(argv)
    import gymnasium_robotics  # here: it is an extra

    torch.set_num_threads(1)
    gymnasium.register_envs(gymnasium_robotics)
    measured = {"policy": measure_returns(load_policy(options.checkpoint), options.episodes)}
    measured["straight"] = measure_returns(move_straight, options.episodes)
    measured["difference"] = measured["policy"] - measured["straight"]
    for name, values in measured.items():
        print(
            f"{name:12}{values.mean():8.3f}  standard error {values.std() / len(values) ** 0.5:.3f}"
        )


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
