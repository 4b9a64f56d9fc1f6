"""The picture of a run's learning curve."""

from pathlib import Path

import numpy as np

from td3_robot.loggers.base import fill_scores, get_steps
from td3_robot.loggers.csv import read_metrics
from td3_robot.utils.atomic_files import replace_file

CURVE_NAME = "learning_curve.png"


def plot_learning_curve(folder: Path) -> None:
    """Draw return and, where known, success rate over the steps as `learning_curve.png`.

    The figures are those of `metrics.csv` in the same folder; a run without rows or without
    returns gets no picture.

    Raises:
        ConfigError: the picture cannot be written, or a row of the CSV is not made of numbers.
    """
    from matplotlib.figure import Figure  # no pyplot: nothing to show, no global state

    rows = [fill_scores(row) for row in read_metrics(folder)]
    if not rows or "episode_return" not in rows[0]:
        return
    steps = [get_steps(row) for row in rows]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    returns = axes = figure.subplots()
    if known := "success_rate" in rows[0]:
        axes.plot(steps, [100 * row["success_rate"] for row in rows], color="tab:blue", marker=".")
        axes.set_ylim(0, 101)
        axes.set_ylabel("success rate [%]", color="tab:blue")
        returns = axes.twinx()
    earned = [row["episode_return"] for row in rows]
    returns.plot(steps, earned, color="tab:orange", marker=".", alpha=0.7)
    returns.set_ylabel("episode return", color="tab:orange" if known else "black")
    axes.set_xlabel("env steps" if any(row["env_steps"] for row in rows) else "gradient steps")
    axes.grid(alpha=0.3)
    if len(set(steps)) > 1:
        functions = _fit_seconds(steps, [row["wall_s"] for row in rows])
        axes.secondary_xaxis("top", functions=functions).set_xlabel("wall time [s]")
    with replace_file(folder / CURVE_NAME) as new:
        figure.savefig(new, dpi=120, format="png")


def _fit_seconds(steps: list[int], seconds: list[float]):
    """Return functions from steps to wall seconds and back: the least-squares lines."""
    forward = np.polyfit(steps, seconds, 1)
    backward = np.polyfit(seconds, steps, 1)
    return (lambda x: np.polyval(forward, x), lambda x: np.polyval(backward, x))
