"""Train Stable-Baselines3's TD3 on `reach`, with the same environments and settings.

    python benchmarks/sb3_reach.py FOLDER SEED [THREADS]

Writes metrics.csv and summary.json into FOLDER as train.py does. Called by benchmarks/reach.py.
What SB3 has no option for is left out: noise that decays and differs from environment to
environment.
"""

import time

STARTED = time.perf_counter()

import argparse  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from envs.command_line import TrainFlags  # noqa: E402
from envs.config.env_options import EnvOptions  # noqa: E402
from td3_robot.cli.arguments import parse_train  # noqa: E402
from td3_robot.errors import require_packages  # noqa: E402
from td3_robot.utils.console import exit_code  # noqa: E402


def main(argv: list[str]) -> None:
    """Parse and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the results")
    parser.add_argument("seed")
    parser.add_argument("threads", nargs="?", help="torch threads; by default the preset's")
    words = parser.parse_args(argv)
    flags = ["--robot", "panda", "--seed", words.seed]
    flags += ["--threads", words.threads] if words.threads else []
    require_packages("this training", "stable_baselines3")
    from sb3_reach_learner import train  # here: Stable-Baselines3 is an extra

    train(words.folder, parse_train(flags, EnvOptions, TrainFlags), STARTED)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
