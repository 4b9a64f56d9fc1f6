"""Where the figures of a run go: CSV, TensorBoard, a picture of the learning curve; what fails
there ends no run.
"""

import contextlib
import csv
import errno
import io
import math
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from td3_robot.errors import ConfigError
from td3_robot.utils.atomic_files import replacing

CSV_NAME, CURVE_NAME = "metrics.csv", "learning_curve.png"


class Tracker(Protocol):
    """Takes the figures of each periodic evaluation; `steps_of` is their common axis."""

    def log(self, metrics: dict[str, float]) -> None:
        """One evaluation; docs/td3.md, "What is logged", lists the metrics and their meaning."""

    def close(self) -> None:
        """Finish what is open."""


class Trackers(list[Tracker]):
    """Trackers whose failures end nothing: the first of each is told on stderr, and all are tried
    again next time.

    Attributes:
        failed: whether anything could not be written, which the exit code of `train.py` says.
    """

    def __init__(self):
        super().__init__()
        self._told: set[str] = set()

    @property
    def failed(self) -> bool:
        """See the class."""
        return bool(self._told) or any(getattr(tracker, "failed", False) for tracker in self)

    def log(self, metrics: dict[str, float]) -> None:
        """One evaluation, to each."""
        for tracker in self:
            self.attempt(type(tracker).__name__, tracker.log, metrics)

    def close(self) -> None:
        """Finish what is open."""
        for tracker in self:
            self.attempt(type(tracker).__name__, tracker.close)

    def attempt(self, name: str, write: Callable, *arguments) -> None:
        """Call what writes something under that name."""
        try:
            write(*arguments)
        except (
            Exception
        ) as error:  # a full disk, a deleted folder, a bug in a tracker: none is worth a training
            self.tell(name, error)

    def tell(self, name: str, error: Exception) -> None:
        """Say on stderr, the first time, that something cannot be written, and count it as
        failed.
        """
        if name not in self._told:
            self._told.add(name)
            system = getattr(
                error.__cause__, "strerror", None
            )  # why, where an error of ours wraps the system's
            reason = system or " ".join(str(error).split()) or type(error).__name__
            with contextlib.suppress(OSError):  # stderr may be as full
                print(
                    f"warning: {name} cannot be written ({reason[:200]}); the run goes on",
                    file=sys.stderr,
                )


def steps_of(metrics: dict[str, float]) -> int:
    """How far the run was: env steps or, learning from a dataset, where there are none, gradient
    steps.
    """
    return int(metrics["env_steps"] or metrics["gradient_steps"])


def scored(metrics: dict[str, float]) -> dict[str, float]:
    """Metrics whose `episode_return` and `success_rate` are, without an evaluation, those of the
    training episodes.
    """
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
        self._names = None
        if not self._path.exists():
            return
        names, rows = _read(self._path)
        kept = [line for line, row in rows if steps_of(row) <= steps]
        if kept:
            self._names = names
            with replacing(self._path) as new:
                new.write_text("".join([_line(names), *kept]), encoding="utf-8", newline="")
        else:
            self._path.unlink()

    def log(self, metrics: dict[str, float]) -> None:
        """Append one row; the first one fixes the columns."""
        names, heading = self._names or list(metrics), "" if self._names else _line(metrics)
        with self._path.open("a", encoding="utf-8", newline="") as file:
            size = file.tell()
            try:
                file.write(heading + _line([metrics.get(name, math.nan) for name in names]))
                file.flush()
                os.fsync(file.fileno())
            except OSError:  # as on a full disk: rows are whole or not there
                os.truncate(self._path, size)
                raise
        self._names = names

    def close(self) -> None:
        """Nothing stays open."""


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The rows of a run's `metrics.csv`, oldest first; a last one that was cut off while it was
    written is left out.

    None where the run has no such file yet.

    Raises:
        ConfigError: the file cannot be read, or a row is not made of one number for each column.
    """
    path = folder / CSV_NAME
    return [row for _, row in _read(path)[1]] if path.exists() else []


def _read(path: Path) -> tuple[list[str], list[tuple[str, dict[str, float]]]]:
    """The columns of a CSV file, and its rows: each as the line it is and as its numbers."""
    try:
        lines = path.read_bytes().decode("utf-8", "replace").splitlines(keepends=True)
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    lines = [line for line in lines if line.endswith("\n")]
    names = _fields(lines[0]) if lines else []
    rows = []
    for number, line in enumerate(lines[1:], 2):
        try:
            row = dict(zip(names, map(float, _fields(line)), strict=True))
            steps_of(row)
        except (ValueError, OverflowError, KeyError, csv.Error):
            raise ConfigError(
                f"line {number} of {str(path)!r} is not a number for each column; remove it"
            ) from None
        rows.append((line, row))
    return names, rows


def _fields(line: str) -> list[str]:
    return next(csv.reader([line]), [])


def _line(values: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue()


def read_curve(checkpoint: Path) -> list[dict[str, float]]:
    """The same of the run that a checkpoint is of: in its folder, or in the one above; none where
    it has none.
    """
    folders = [
        folder for folder in (checkpoint, checkpoint.parent) if (folder / CSV_NAME).is_file()
    ]
    return read_metrics(folders[0]) if folders else []


class TensorBoardLog:
    """TensorBoard events in the run folder; see them with `tensorboard --logdir checkpoints`.

    Each evaluation is on the disk when `log` returns; a folder that was deleted is made again.

    Args:
        folder: the run folder.
        steps: what TensorBoard has of later steps is forgotten: a resumed run logs them anew.
    """

    def __init__(self, folder: Path, steps: int = 0):
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]

        self._path = (
            folder / "tensorboard" / f"events.out.tfevents.{time.time_ns() / 1e9:.6f}.{os.getpid()}"
        )
        self._waiting = [
            Event(wall_time=time.time(), file_version="brain.Event:2")
        ]  # not written yet
        if self._path.parent.is_dir():  # of earlier sittings
            start = SessionLog(status=SessionLog.START)
            self._waiting.append(Event(wall_time=time.time(), step=steps + 1, session_log=start))

    def log(self, metrics: dict[str, float]) -> None:
        """Every metric as a scalar over the steps; what could not be written before comes first."""
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        scalars = [
            Summary.Value(tag=name, simple_value=metrics[name])
            for name in metrics
            if name != "env_steps"
        ]
        self._waiting.append(
            Event(wall_time=time.time(), step=steps_of(metrics), summary=Summary(value=scalars))
        )
        self._write()

    def _write(self) -> None:
        """Append what is waiting, all of it or nothing: a torn record would hide all that
        follow.
        """
        from tensorboard.summary.writer.record_writer import RecordWriter

        records = io.BytesIO()
        for event in self._waiting:
            RecordWriter(records).write(event.SerializeToString())
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("ab", buffering=0) as file:
            whole = file.tell()
            if file.write(records.getvalue()) < records.tell():
                file.truncate(whole)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._waiting = []

    def close(self) -> None:
        """Nothing stays open."""


def plot_learning_curve(folder: Path) -> None:
    """Draw return and, where known, success rate over the steps, from `metrics.csv`, as
    `learning_curve.png` beside it.

    A run that was stopped before its first row, or that nothing tells the return of, gets no
    picture.

    Raises:
        ConfigError: the picture cannot be written, or a row of the CSV is not made of numbers.
    """
    from matplotlib.figure import Figure  # no pyplot: nothing to show, no global state

    rows = [scored(row) for row in read_metrics(folder)]
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
    returns.plot(
        steps, [row["episode_return"] for row in rows], color="tab:orange", marker=".", alpha=0.7
    )
    returns.set_ylabel("episode return", color="tab:orange" if known else "black")
    axes.set_xlabel("env steps" if any(row["env_steps"] for row in rows) else "gradient steps")
    axes.grid(alpha=0.3)
    if len(set(steps)) > 1:
        axes.secondary_xaxis("top", functions=_seconds_of(rows)).set_xlabel("wall time [s]")
    with replacing(folder / CURVE_NAME) as new:
        figure.savefig(new, dpi=120, format="png")


def _seconds_of(rows: list[dict[str, float]]):
    """Functions from steps to wall seconds and back: the straight line that fits the evaluations
    best.
    """
    import numpy as np

    steps, seconds = (
        np.array([of(row) for row in rows]) for of in (steps_of, lambda row: row["wall_s"])
    )
    forward, back = np.polyfit(steps, seconds, 1), np.polyfit(seconds, steps, 1)
    return (lambda x: np.polyval(forward, x), lambda x: np.polyval(back, x))
