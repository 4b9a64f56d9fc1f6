"""Measure what each setting of the `reach` preset is worth, with one thing changed at a time.

    python benchmarks/ablate_reach.py [--seeds 3]

Prints the success rate on 1,000 held-out goals after a quarter, half and all of the preset's env
steps: the mean over the seeds, and the worst seed in brackets.
benchmarks/notes/reach-preset.md keeps the table.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from training import run_script

from envs.command_line import TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot.cli.arguments import parse_train
from td3_robot.loggers.csv import read_metrics
from td3_robot.utils.console import exit_code

VARIANTS = {
    "preset": "",
    "gamma 0.95": "--td3.gamma 0.95",
    "tau 0.005 (paper)": "--td3.tau 0.005",
    "target noise 0.2, clip 0.5 (paper)": "--td3.policy_noise 0.2 --td3.noise_clip 0.5",
    "64 arms, one update a step": "--num_envs 64 --updates_per_step 1",
    "constant exploration noise": "--schedule.noise constant",
    "one sigma for all envs": "--exploration.per_env false",
    "constant learning rate": "--schedule.lr constant",
    "learning rate 1e-3": "--td3.actor_lr 1e-3 --td3.critic_lr 1e-3",
    "no policy delay": "--td3.policy_delay 1",
}


def train_once(flags: list[str], folder: Path) -> list[dict[str, float]]:
    """Train once; return the rows of its metrics.csv."""
    run_script("train.py", "--robot", "panda", "--run", "run", *flags, folder=folder)
    return read_metrics(folder / "checkpoints" / "run")


def main(argv: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0 to N-1 are trained")
    seeds = range(parser.parse_args(argv).seeds)
    steps = parse_train(["--task", "reach"], EnvOptions, TrainFlags).config.steps
    marks = [steps // 4, steps // 2, steps]
    print(
        "| change | "
        + " | ".join(f"{mark:,} env steps" for mark in marks)
        + " |\n| --- | --- | --- | --- |"
    )
    for name, flags in VARIANTS.items():
        curves = []
        for seed in seeds:
            with tempfile.TemporaryDirectory() as scratch:
                curves.append(train_once([*flags.split(), "--seed", str(seed)], Path(scratch)))
        cells = []
        for mark in marks:
            rates = [
                [row["success_rate"] for row in rows if row["env_steps"] <= mark][-1]
                for rows in curves
            ]
            cells.append(f"{sum(rates) / len(rates):.1%} ({min(rates):.1%})")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
