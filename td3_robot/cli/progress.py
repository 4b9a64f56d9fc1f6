"""Progress of a training at the terminal: a line per evaluation and a progress bar."""

import math

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from td3_robot.loggers.base import fill_scores
from td3_robot.training.callbacks import Callback, Run


def format_score(metrics: dict[str, float]) -> str:
    """Format the success rate of a policy or, if it is unknown, its return."""
    if "success_rate" in metrics:
        return f"success {metrics['success_rate']:.1%}"
    return f"return {metrics['episode_return']:.2f}" if "episode_return" in metrics else ""


def format_cell(pattern: str, value: float | None) -> str:
    """Format a figure to the width of its column; a dash for a missing one."""
    known = value is not None and math.isfinite(value)
    return pattern.format(value) if known else "-".rjust(len(pattern.format(0.0)))


class _Console(Console):
    """A console that raises BrokenPipeError, where rich ends the process."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Display(Callback):
    """A line per evaluation and a progress bar at the terminal; also a `Tracker`.

    The bar shows the success rate if the task has one, and else the return.

    Args:
        total: steps of the whole run.
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

    def __init__(self, total: int, console: Console | None = None):
        self._console = console or _Console(highlight=False)
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(),
            TextColumn("{task.fields[score]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("training", total=total, score="")
        self._headed = False

    def on_step(self, run: Run) -> None:
        """Move the progress bar."""
        self._progress.update(self._task, completed=run.steps)

    def log(self, metrics: dict[str, float]) -> None:
        """Print one line."""
        metrics = fill_scores(metrics)
        columns = [column for column in self._COLUMNS if column[1] in metrics]
        if not self._headed:
            self._headed = True
            self._progress.start()
            widths = [len(pattern.format(0.0)) for _, _, pattern in columns]
            self._print_line(
                " ".join(name.rjust(width) for (name, _, _), width in zip(columns, widths))
            )
        self._print_line(
            " ".join(format_cell(pattern, metrics[name]) for _, name, pattern in columns)
        )
        self._progress.update(self._task, score=format_score(metrics))

    def _print_line(self, text: str) -> None:
        try:
            self._console.print(text, soft_wrap=True)
        except (
            BrokenPipeError
        ):  # whoever read along, `head` for one, has left; the training goes on
            self._console.quiet = True

    def close(self) -> None:
        """Remove the progress bar."""
        self._progress.stop()
