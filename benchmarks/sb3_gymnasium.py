"""Train Stable-Baselines3's TD3 on a Gymnasium id, for benchmarks/gymnasium_envs.py.

    python benchmarks/sb3_gymnasium.py JSON

JSON is an object with the keys of `Job`. A row goes into `csv` after every evaluation, and the
learner into `state`, so that a run that was stopped goes on from its last evaluation (with a new
episode), also to more steps.
"""

import argparse
import dataclasses
import json
import sys

from td3_robot.errors import require_packages
from td3_robot.utils.console import exit_code

COLUMNS = (
    "env_steps",
    "gradient_steps",
    "episode_return",
    "episode_return_std",
    "success_rate",
    "wall_s",
)


@dataclasses.dataclass(frozen=True)
class Job:
    """Training job: `settings` of benchmarks/gymnasium_envs.py; `csv` and `state` are paths."""

    env: str
    seed: int
    steps: int
    every: int
    episodes: int
    settings: dict
    csv: str
    state: str


def main(argv: list[str]) -> None:
    """Parse and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job", type=json.loads, help="JSON object with the keys of Job")
    job = Job(**parser.parse_args(argv).job)
    require_packages("this training", "stable_baselines3")
    from sb3_gymnasium_learner import train  # here: Stable-Baselines3 is an extra

    train(job)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
