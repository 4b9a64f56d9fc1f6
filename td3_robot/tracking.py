"""Where the figures of a run go: the terminal, CSV and JSON files, TensorBoard, a picture of the learning curve."""

import csv
import json
import os
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from td3_robot.errors import ConfigError

CSV_NAME, CURVE_NAME = "metrics.csv", "learning_curve.png"


class Tracker(Protocol):
    """Takes the figures of each periodic evaluation; `env_steps` is their common axis."""

    def log(self, metrics: dict[str, float]) -> None:
        """One evaluation; the metrics and their meaning are listed at `Trainer`."""

    def close(self) -> None:
        """Finish what is open."""


class CsvLog:
    """A row an evaluation, in `metrics.csv` of the run folder.

    Args:
        folder: the run folder.
        env_steps: rows from later on are dropped first: a resumed run writes them anew.
    """

    def __init__(self, folder: Path, env_steps: int = 0):
        self._path = folder / CSV_NAME
        kept = [row for row in read_metrics(folder) if row["env_steps"] <= env_steps] if self._path.exists() else []
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

    def __init__(self, folder: Path, env_steps: int = 0):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(folder / "tensorboard", purge_step=env_steps + 1 if env_steps else None)

    def log(self, metrics: dict[str, float]) -> None:
        """Every metric as a scalar over env_steps."""
        for name, value in metrics.items():
            if name != "env_steps":
                self._writer.add_scalar(name, value, metrics["env_steps"])

    def close(self) -> None:
        """Write out what is buffered."""
        self._writer.close()


class _Console(Console):
    """A console that leaves it to its user what a closed pipe means; rich ends the process."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Display:
    """The terminal: a line an evaluation, and a progress bar below them while somebody watches.

    Args:
        total: env steps of the whole run.
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
            TextColumn("success {task.fields[success]:.1%}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("training", total=total, success=0.0)
        self._headed = False

    def advance(self, env_steps: int) -> None:
        """Move the bar; cheap enough for every step."""
        self._progress.update(self._task, completed=env_steps)

    def log(self, metrics: dict[str, float]) -> None:
        """One line."""
        if not self._headed:
            self._headed = True
            self._progress.start()
            widths = [len(pattern.format(0.0)) for _, _, pattern in self._COLUMNS]
            self._line(" ".join(name.rjust(w) for (name, _, _), w in zip(self._COLUMNS, widths)))
        self._line(" ".join(pattern.format(metrics[name]) for _, name, pattern in self._COLUMNS))
        self._progress.update(self._task, success=metrics["success_rate"])

    def _line(self, text: str) -> None:
        try:
            self._console.print(text, soft_wrap=True)
        except BrokenPipeError:  # whoever read along, `head` for one, has left; the training goes on
            self._console.quiet = True

    def close(self) -> None:
        """Take the bar away."""
        self._progress.stop()


def plot_learning_curve(folder: Path) -> None:
    """Draw success rate and return over env steps, from `metrics.csv`, as `learning_curve.png` beside it.

    A run that was stopped before its first evaluation has no curve yet, and gets no picture.
    """
    from matplotlib.figure import Figure  # no pyplot: nothing to show, no global state

    if not (folder / CSV_NAME).exists():
        return
    rows = read_metrics(folder)
    env_steps = [row["env_steps"] for row in rows]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    success = figure.subplots()
    success.plot(env_steps, [100 * row["success_rate"] for row in rows], color="tab:blue", marker=".")
    success.set(xlabel="env steps", ylim=(0, 101))
    success.set_ylabel("success rate [%]", color="tab:blue")
    success.grid(alpha=0.3)
    returns = success.twinx()
    returns.plot(env_steps, [row["episode_return"] for row in rows], color="tab:orange", marker=".", alpha=0.7)
    returns.set_ylabel("episode return", color="tab:orange")
    if len(set(env_steps)) > 1:
        success.secondary_xaxis("top", functions=_seconds_of(rows)).set_xlabel("wall time [s]")
    figure.savefig(folder / CURVE_NAME, dpi=120)


def _seconds_of(rows: list[dict[str, float]]):
    """Functions from env steps to wall seconds and back: the straight line that fits the evaluations best."""
    import numpy as np

    steps, seconds = (np.array([row[key] for row in rows]) for key in ("env_steps", "wall_s"))
    forward, back = np.polyfit(steps, seconds, 1), np.polyfit(seconds, steps, 1)
    return (lambda x: np.polyval(forward, x), lambda x: np.polyval(back, x))


def write_json(path: Path, results: dict[str, object]) -> None:
    """Write results as JSON, complete or not at all.

    Raises:
        ConfigError: the file cannot be written.
    """
    new = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        new.write_text(json.dumps(results, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(new, path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {str(path)!r}: {error.strerror}") from error
