"""Measure what a second core gains: processes, threads and seeds, in turns.

benchmarks/notes/process-scaling.md keeps the figures.

    python benchmarks/scale_runs.py                                  # reach, three turns
    python benchmarks/scale_runs.py --task reach_pose --target 0.9 --stop_at 2_000_000 --turns 1

Each turn trains the same seed in every way there is, from a cold start; the order changes from turn
to turn. A ratio is of two trainings of one turn. Nothing else should run meanwhile; the load that
each row has tells whether it did.
"""

import argparse
import csv
import os
import statistics
import sys
import tempfile
from pathlib import Path

from training import run_script

from td3_robot.utils.console import exit_code

TORCHRUN = ("-m", "torch.distributed.run", "--nproc_per_node", "2", "--")
WAYS = {  # words before and after train.py
    "one process": ((), ("--seed", "{0}")),
    "two processes (torchrun)": (TORCHRUN, ("--seed", "{0}")),
    "one process, --threads 2": ((), ("--seed", "{0}", "--threads", "2")),
    "two seeds (--seeds)": ((), ("--seeds", "{0}", "{1}")),
}
Curve = list[dict[str, float]]


def train(way: str, turn: int, arguments: argparse.Namespace) -> list[Curve]:
    """Run one command; return the curves of its trainings, one a seed."""
    before, after = WAYS[way]
    words = ("--task", arguments.task, "--stop_at", str(arguments.stop_at), "--run", "r", *after)
    words = [word.format(turn, turn + 1000) for word in words]
    threads = 2 if "--threads" in words else 1
    with tempfile.TemporaryDirectory() as folder:
        run_script("train.py", *words, folder=folder, launcher=before, threads=threads)
        curves = [read(path) for path in sorted(Path(folder).rglob("metrics.csv"))]
    if any(len(curve) < 2 for curve in curves):
        sys.exit("speeds are those from one evaluation to another: raise --stop_at")
    return curves


def read(path: Path) -> Curve:
    """Return the rows of a metrics.csv."""
    with path.open() as file:
        return [
            {name: float(value) for name, value in row.items() if value}
            for row in csv.DictReader(file)
        ]


def compute_speed(curves: list[Curve]) -> float:
    """Return env steps/s of all trainings together, from first to last evaluation."""
    return sum(
        (c[-1]["env_steps"] - c[0]["env_steps"]) / (c[-1]["wall_s"] - c[0]["wall_s"])
        for c in curves
    )


def format_first(curves: list[Curve], target: float) -> str:
    """Format when each training first reached the target: seconds and steps."""
    reached = [
        next((row for row in curve if row["success_rate"] >= target), None) for curve in curves
    ]
    return ", ".join(
        f"{row['wall_s']:.0f} s at {row['env_steps']:,.0f}" if row else "never" for row in reached
    )


def main(argv: list[str]) -> None:
    """Train in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="reach")
    parser.add_argument("--target", type=float, default=0.95, help="success rate")
    parser.add_argument(
        "--stop_at", type=int, default=128_000, help="env steps of a training, as train.py has it"
    )
    parser.add_argument("--turns", type=int, default=3, help="with seeds 0 to N-1")
    arguments = parser.parse_args(argv)
    print(f"{os.cpu_count()} cores, {arguments.task}")
    print(f"| turn | | env steps/s | {arguments.target:.0%} | load |")
    print("|---|---|---|---|---|")
    speeds: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(arguments.turns):
        names = list(WAYS)
        for way in names[turn % len(names) :] + names[: turn % len(names)]:
            curves = train(way, turn, arguments)
            speeds[way].append(compute_speed(curves))
            reached = format_first(curves, arguments.target)
            load = f"{os.getloadavg()[0]:.1f}"
            print(f"| {turn} | {way} | {speeds[way][-1]:,.0f} | {reached} | {load} |", flush=True)
    print("\n| | env steps/s, median | by that of one process, median (least to most) |")
    print("|---|---|---|")
    for way, found in speeds.items():
        ratios = [one / alone for one, alone in zip(found, speeds["one process"])]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {way} | {statistics.median(found):,.0f} | {spread} |")


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
