"""Where the figures of a run go: the terminal, CSV and JSON files, TensorBoard, a picture of the learning curve."""

import csv
import json
import math
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from td3_robot.callbacks import Callback, Run
from td3_robot.errors import ConfigError
from td3_robot.files import replacing

CSV_NAME, CURVE_NAME = "metrics.csv", "learning_curve.png"


class Tracker(Protocol):
    """Takes the figures of each periodic evaluation; `steps_of` is their common axis."""

    def log(self, metrics: dict[str, float]) -> None:
        """One evaluation; the metrics and their meaning are listed at `Trainer`."""

    def close(self) -> None:
        """Finish what is open."""


def steps_of(metrics: dict[str, float]) -> int:
    """How far the run was: env steps or, learning from a dataset, where there are none, gradient steps."""
    return int(metrics["env_steps"] or metrics["gradient_steps"])


def scored(metrics: dict[str, float]) -> dict[str, float]:
    """Metrics whose `episode_return` and `success_rate` are, without an evaluation, those of the training episodes."""
    if "episode_return" in metrics:
        return metrics
    names = {"episode_return": "train_return", "success_rate": "train_success_rate"}
    return metrics | {name: metrics[train] for name, train in names.items() if train in metrics}


class CsvLog:
    """A row an evaluation, in `metrics.csv` of the run folder.

    Args:
        folder: the run folder.
        steps: rows from later on are dropped first: a resumed run writes them anew.
    """

    def __init__(self, folder: Path, steps: int = 0):
        self._path = folder / CSV_NAME
        kept = [row for row in read_metrics(folder) if steps_of(row) <= steps] if self._path.exists() else []
        self._path.unlink(missing_ok=True)
        for row in kept:
            self.log(row)

    def log(self, metrics: dict[str, float]) -> None:
        """Append one row; the first one fixes the columns."""
        new = not self._path.exists()
        with self._path.open("a", newline="") as file:
            writer = csv.DictWriter(file, metrics)
            if new:
                writer.writeheader()
            writer.writerow(metrics)

    def close(self) -> None:
        """Nothing stays open."""


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The rows of a run's `metrics.csv`, oldest first.

    Raises:
        ConfigError: a row is not made of numbers.
    """
    with (folder / CSV_NAME).open(newline="") as file:
        try:
            return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
        except (TypeError, ValueError):
            raise ConfigError(f"{folder / CSV_NAME} has a row that is not made of numbers") from None


class TensorBoardLog:
    """TensorBoard events in the run folder; see them with `tensorboard --logdir checkpoints`."""

    def __init__(self, folder: Path, steps: int = 0):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(folder / "tensorboard", purge_step=steps + 1 if steps else None)

    def log(self, metrics: dict[str, float]) -> None:
        """Every metric as a scalar over the steps."""
        for name, value in metrics.items():
            if name != "env_steps":
                self._writer.add_scalar(name, value, steps_of(metrics))

    def close(self) -> None:
        """Write out what is buffered."""
        self._writer.close()


def score_text(metrics: dict[str, float]) -> str:
    """How good a policy is, in a word: its success where that is known, or else its return."""
    if "success_rate" in metrics:
        return f"success {metrics['success_rate']:.1%}"
    return f"return {metrics['episode_return']:.2f}" if "episode_return" in metrics else ""


def _cell(pattern: str, value: float) -> str:
    """A figure as wide as its column; a dash for one that there is not."""
    text = pattern.format(value)
    return "-".rjust(len(text)) if value != value else text


class _Console(Console):
    """A console that leaves it to its user what a closed pipe means; rich ends the process."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Display(Callback):
    """The terminal: a line an evaluation, and a progress bar below them while somebody watches; also a `Tracker`.

    The success rate has its place where the task knows success; elsewhere the bar shows the return.

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
        """Move the bar."""
        self._progress.update(self._task, completed=run.steps)

    def log(self, metrics: dict[str, float]) -> None:
        """One line."""
        metrics = scored(metrics)
        columns = [column for column in self._COLUMNS if column[1] in metrics]
        if not self._headed:
            self._headed = True
            self._progress.start()
            widths = [len(pattern.format(0.0)) for _, _, pattern in columns]
            self._line(" ".join(name.rjust(width) for (name, _, _), width in zip(columns, widths)))
        self._line(" ".join(_cell(pattern, metrics[name]) for _, name, pattern in columns))
        self._progress.update(self._task, score=score_text(metrics))

    def _line(self, text: str) -> None:
        try:
            self._console.print(text, soft_wrap=True)
        except BrokenPipeError:  # whoever read along, `head` for one, has left; the training goes on
            self._console.quiet = True

    def close(self) -> None:
        """Take the bar away."""
        self._progress.stop()


def plot_learning_curve(folder: Path) -> None:
    """Draw return and, where known, success rate over the steps, from `metrics.csv`, as `learning_curve.png` beside it.

    A run that was stopped before its first row, or that nothing tells the return of, gets no picture.

    Raises:
        ConfigError: the picture cannot be written, or a row of the CSV is not made of numbers.
    """
    from matplotlib.figure import Figure  # no pyplot: nothing to show, no global state

    rows = [scored(row) for row in read_metrics(folder)] if (folder / CSV_NAME).exists() else []
    if not rows or "episode_return" not in rows[0]:
        return
    steps = [steps_of(row) for row in rows]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    returns = axes = figure.subplots()
    if known := "success_rate" in rows[0]:
        axes.plot(steps, [100 * row["success_rate"] for row in rows], color="tab:blue", marker=".")
        axes.set_ylim(0, 101)
        axes.set_ylabel("success rate [%]", color="tab:blue")
        returns = axes.twinx()
    returns.plot(steps, [row["episode_return"] for row in rows], color="tab:orange", marker=".", alpha=0.7)
    returns.set_ylabel("episode return", color="tab:orange" if known else "black")
    axes.set_xlabel("env steps" if any(row["env_steps"] for row in rows) else "gradient steps")
    axes.grid(alpha=0.3)
    if len(set(steps)) > 1:
        axes.secondary_xaxis("top", functions=_seconds_of(rows)).set_xlabel("wall time [s]")
    with replacing(folder / CURVE_NAME) as new:
        figure.savefig(new, dpi=120, format="png")


def _seconds_of(rows: list[dict[str, float]]):
    """Functions from steps to wall seconds and back: the straight line that fits the evaluations best."""
    import numpy as np

    steps, seconds = (np.array([of(row) for row in rows]) for of in (steps_of, lambda row: row["wall_s"]))
    forward, back = np.polyfit(steps, seconds, 1), np.polyfit(seconds, steps, 1)
    return (lambda x: np.polyval(forward, x), lambda x: np.polyval(back, x))


def write_json(path: Path, results: dict[str, object]) -> None:
    """Write results as JSON, complete or not at all; JSON knows no NaN and no infinity, so they become null.

    Raises:
        ConfigError: the file cannot be written.
    """
    with replacing(path) as new:
        new.write_text(json.dumps(finite(results), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def finite(value: object) -> object:
    """Nested results with None for every number that is NaN or infinite."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
