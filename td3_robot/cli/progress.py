"""Progress of a training at the terminal: a line per evaluation and a progress bar."""

import contextlib
import math

from td3_robot.loggers.base import fill_scores
from td3_robot.training.callbacks import Callback, Run
from td3_robot.utils.progress import Stage, print_line, stage


def format_score(metrics: dict[str, float]) -> str:
    """Format the success rate of a policy or, if it is unknown, its return."""
    if "success_rate" in metrics:
        return f"success {metrics['success_rate']:.1%}"
    return f"return {metrics['episode_return']:.2f}" if "episode_return" in metrics else ""


def format_cell(pattern: str, value: float | None) -> str:
    """Format a figure to the width of its column; a dash for a missing one."""
    known = value is not None and math.isfinite(value)
    return pattern.format(value) if known else "-".rjust(len(pattern.format(0.0)))


class Display(Callback):
    """A line per evaluation and a progress bar at the terminal; also a `Tracker`.

    The bar shows the success rate if the task has one, and else the return.

    Args:
        total: steps of the whole run.
        unit: what these steps are called.
    """

    _COLUMNS = (  # heading, metric, format
        ("env steps", "env_steps", "{:>10,.0f}"),
        ("updates", "gradient_steps", "{:>8,.0f}"),
        ("success", "success_rate", "{:>8.1%}"),
        ("return", "episode_return", "{:>8.2f}"),
        ("env steps/s", "env_steps_per_s", "{:>11,.0f}"),
        ("updates/s", "updates_per_s", "{:>9,.0f}"),
        ("Q1 loss", "Q1_loss", "{:>8.4f}"),
        ("Q2 loss", "Q2_loss", "{:>8.4f}"),
        ("seconds", "wall_s", "{:>8.1f}"),
        ("left", "left_s", "{:>6.0f}"),
    )

    def __init__(self, total: int, unit: str = "env steps"):
        self._total = total
        self._unit = unit
        self._cleanup = contextlib.ExitStack()
        self._stage: Stage | None = None
        self._headed: list[str] = []  # the headings above the newest line

    def on_step(self, run: Run) -> None:
        """Move the progress bar, which the first step opens."""
        if self._stage is None:
            self._stage = self._cleanup.enter_context(stage("training", self._total, self._unit))
            self._stage.skip(run.steps)
        self._stage.done = run.steps

    def log(self, metrics: dict[str, float]) -> None:
        """Print one line."""
        metrics = fill_scores(metrics)
        columns = [column for column in self._COLUMNS if column[1] in metrics]
        names = [name for name, _, _ in columns]
        if names != self._headed:  # at first, and once success is known, which may come later
            self._headed = names
            widths = [len(pattern.format(0.0)) for _, _, pattern in columns]
            print_line(" ".join(name.rjust(width) for name, width in zip(names, widths)))
        print_line(" ".join(format_cell(pattern, metrics[name]) for _, name, pattern in columns))
        if self._stage is not None:
            self._stage.note = format_score(metrics)

    def close(self) -> None:
        """Remove the progress bar."""
        self._cleanup.close()
