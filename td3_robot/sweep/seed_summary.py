"""Results of several seeds of one configuration: table, mean and spread, a curve with a band."""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from td3_robot.checkpoint.summary import read_summary
from td3_robot.cli.progress import format_cell
from td3_robot.errors import CheckpointError
from td3_robot.loggers.base import fill_scores, get_steps
from td3_robot.loggers.csv import read_metrics
from td3_robot.loggers.learning_curve import CURVE_NAME
from td3_robot.utils.atomic_files import replace_file

_COLUMNS = (  # heading, key of the summary, format
    ("success", "success_rate", "{:>9.1%}"),
    ("return", "episode_return", "{:>9.2f}"),
    ("env steps", "env_steps", "{:>12,.0f}"),
    ("updates", "gradient_steps", "{:>9,.0f}"),
    ("seconds", "wall_s", "{:>9.1f}"),
    ("solved at", "solved_at_s", "{:>10.1f}"),
)
Summaries = Mapping[int, dict[str, Any]]  # by seed


def read_outcome(run: Path) -> dict[str, Any] | None:
    """Return the summary of a run, None where it has not finished."""
    try:
        summary = read_summary(run) or {}
    except CheckpointError:
        return None
    return fill_scores(summary) if summary.get("finished") else None


def read_outcomes(folder: Path, seeds: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Return the summaries of the finished runs seedN in a folder, by seed."""
    summaries = {seed: read_outcome(folder / f"seed{seed}") for seed in seeds}
    return {seed: summary for seed, summary in summaries.items() if summary is not None}


def compute_spreads(summaries: Summaries) -> dict[str, dict[str, float]]:
    """Return mean, standard deviation (N - 1), minimum and maximum of each figure of all runs."""
    return {
        name: {
            "mean": statistics.fmean(known),
            "std": _compute_deviation(known),
            "min": min(known),
            "max": max(known),
        }
        for _, name, _ in _COLUMNS
        if (
            known := [
                x for x in (summary.get(name) for summary in summaries.values()) if x is not None
            ]
        )
        and len(known) == len(summaries)  # the mean of some would flatter: of the solved, how fast
    }


def _compute_deviation(values: list[float]) -> float:
    """Return the standard deviation, NaN of one run."""
    return statistics.stdev(values) if len(values) > 1 else math.nan


def format_table(summaries: Summaries) -> Iterator[str]:
    """Yield lines: a heading, one per seed, their mean and their standard deviation."""
    columns = [
        c for c in _COLUMNS if any(summary.get(c[1]) is not None for summary in summaries.values())
    ]
    yield _format_line(
        "seed", (name.rjust(len(pattern.format(0.0))) for name, _, pattern in columns)
    )
    rows: dict[str, Mapping[str, Any]] = {str(seed): summary for seed, summary in summaries.items()}
    spread = compute_spreads(summaries)
    rows |= {what: {name: of[what] for name, of in spread.items()} for what in ("mean", "std")}
    for first, row in rows.items():
        yield _format_line(
            first, (format_cell(pattern, row.get(name)) for _, name, pattern in columns)
        )


def _format_line(first: str, cells: Iterable[str]) -> str:
    return f"{first:>6} {' '.join(cells)}"


def plot_band(folder: Path, seeds: list[int]) -> None:
    """Draw the mean of all seeds over the steps, in a band from the lowest to the highest, as their
    learning curve.

    Where some have ended before others, the curve ends with the first.

    Args:
        folder: the one with the runs seedN, and where the picture goes.
        seeds: of runs with a `metrics.csv`.

    Raises:
        ConfigError: a CSV file cannot be read, or the picture not be written.
    """
    from matplotlib.figure import Figure  # no pyplot: nothing to show, no global state

    runs = [
        {get_steps(row): fill_scores(row) for row in read_metrics(folder / f"seed{seed}")}
        for seed in seeds
    ]
    steps = sorted(set.intersection(*map(set, runs)))
    if not steps or any("episode_return" not in run[steps[0]] for run in runs):
        return
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    returns = axes = figure.subplots()
    if known := all("success_rate" in run[steps[0]] for run in runs):
        _draw_band(
            axes,
            steps,
            [[100 * run[step]["success_rate"] for run in runs] for step in steps],
            "tab:blue",
        )
        axes.set_ylim(0, 101)
        axes.set_ylabel("success rate [%]", color="tab:blue")
        returns = axes.twinx()
    _draw_band(
        returns,
        steps,
        [[run[step]["episode_return"] for run in runs] for step in steps],
        "tab:orange",
    )
    returns.set_ylabel("episode return", color="tab:orange" if known else "black")
    axes.set_xlabel(
        "env steps" if any(runs[0][step]["env_steps"] for step in steps) else "gradient steps"
    )
    axes.set_title(
        f"mean of seeds {', '.join(map(str, seeds))}; band: lowest to highest", fontsize=10
    )
    axes.grid(alpha=0.3)
    with replace_file(folder / CURVE_NAME) as new:
        figure.savefig(new, dpi=120, format="png")


def _draw_band(axes, steps: list[int], values: list[list[float]], color: str) -> None:
    """Draw the mean of each row of values, in a band from its least to its most."""
    axes.plot(steps, [statistics.fmean(row) for row in values], color=color, marker=".")
    axes.fill_between(
        steps, [min(row) for row in values], [max(row) for row in values], color=color, alpha=0.2
    )
