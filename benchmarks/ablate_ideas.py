"""Measure what each of TD3's three ideas is worth: twin critics, delayed updates, smoothing.

    python benchmarks/ablate_ideas.py --seeds 3 --env Hopper-v5 --steps 50000
    python benchmarks/ablate_ideas.py --variants TD3 "no delay" --robot panda --td3.gamma 0.95

Trains TD3, DDPG and the variants between them (configs/ablations) with the same flags of train.py.
Prints a row for each variant, the mean over the seeds with the lowest and highest in brackets: the
score of the last three evaluations (the success rate, or the return if success is unknown), and the
value that Q1 gives the replay's transitions there, whose excess is overestimation.
benchmarks/notes/ablation-three-ideas.md keeps the table.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from training import ROOT, run_script

from td3_robot.loggers.csv import read_metrics
from td3_robot.utils.console import exit_code

VARIANTS = {
    "TD3": "",
    "no twin critics": "ablations/no_twin_critics",
    "no delay": "ablations/no_delay",
    "no smoothing": "ablations/no_smoothing",
    "only twin critics": "ablations/only_twin_critics",
    "only delay": "ablations/only_delay",
    "only smoothing": "ablations/only_smoothing",
    "DDPG": "ddpg",
}
LAST = 3  # evaluations that make the score


def train_once(variant: str, seed: int, flags: list[str]) -> dict[str, float]:
    """Train once; return the mean of each metric over the last evaluations."""
    chosen = (
        ["--config", str(ROOT / f"configs/{VARIANTS[variant]}.yaml")] if VARIANTS[variant] else []
    )
    words = [*flags, *chosen, "--seed", str(seed), "--run", "run"]
    with tempfile.TemporaryDirectory() as scratch:
        run_script("train.py", *words, folder=scratch)
        rows = read_metrics(Path(scratch) / "checkpoints" / "run")[-LAST:]
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def main(argv: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0 to N-1 are trained")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    arguments, flags = parser.parse_known_args()
    print("| variant | score | Q1 |\n| --- | --- | --- |")
    for variant in arguments.variants:
        runs = [train_once(variant, seed, flags) for seed in range(arguments.seeds)]
        score = "success_rate" if "success_rate" in runs[0] else "episode_return"
        cells = []
        for name in (score, "Q1"):
            values = [run[name] for run in runs]
            cells.append(
                f"{sum(values) / len(values):,.3g} ({min(values):,.3g} to {max(values):,.3g})"
            )
        print(f"| {variant} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
