"""The file `metrics.csv` of a run: written row by row, and read."""

import csv
import io
import math
import os
from collections.abc import Iterable
from pathlib import Path

from td3_robot.errors import ConfigError
from td3_robot.loggers.base import get_steps
from td3_robot.utils.atomic_files import replace_file

CSV_NAME = "metrics.csv"


class CsvLog:
    """Tracker that appends a row for each evaluation to `metrics.csv`.

    Args:
        folder: the run folder.
        steps: rows of later steps are dropped first: a resumed run writes them again.
    """

    def __init__(self, folder: Path, steps: int = 0):
        self._path = folder / CSV_NAME
        self._names: list[str] | None = None
        if not self._path.exists():
            return
        names, rows = _read_rows(self._path)
        kept = [line for line, row in rows if get_steps(row) <= steps]
        if kept:
            self._replace(names, kept)
        else:
            self._path.unlink()

    def _replace(self, names: list[str], lines: Iterable[str]) -> None:
        """Replace the file by one with these columns and rows."""
        with replace_file(self._path) as new:
            text = "".join([_format_line(names), *lines])
            new.write_text(text, encoding="utf-8", newline="")
        self._names = names

    def log(self, metrics: dict[str, float]) -> None:
        """Append one row; a metric that comes later than others is NaN in the rows before."""
        if self._names and (later := [name for name in metrics if name not in self._names]):
            rows = _read_rows(self._path)[1]
            unknown = [math.nan] * len(later)
            lines = (_format_line([*_split_line(line), *unknown]) for line, _ in rows)
            self._replace([*self._names, *later], lines)
        names = self._names or list(metrics)
        heading = "" if self._names else _format_line(metrics)
        with self._path.open("a", encoding="utf-8", newline="") as file:
            size = file.tell()
            try:
                file.write(heading + _format_line([metrics.get(name, math.nan) for name in names]))
                file.flush()
                os.fsync(file.fileno())
            except OSError:  # as on a full disk: rows are whole or not there
                os.truncate(self._path, size)
                raise
        self._names = names

    def close(self) -> None:
        """Do nothing: no file stays open."""


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """Return the rows of a run's `metrics.csv`, oldest first, or [] if it has no such file.

    A last row without a line end was cut off while it was written and is left out.

    Raises:
        ConfigError: the file cannot be read, or a row is not made of one number for each column.
    """
    path = folder / CSV_NAME
    return [row for _, row in _read_rows(path)[1]] if path.exists() else []


def read_curve(checkpoint: Path) -> list[dict[str, float]]:
    """Return the rows of the run that a checkpoint belongs to, or [] if there are none.

    The file is in the checkpoint's folder or in the folder above.
    """
    for folder in (checkpoint, checkpoint.parent):
        if (folder / CSV_NAME).is_file():
            return read_metrics(folder)
    return []


def _read_rows(path: Path) -> tuple[list[str], list[tuple[str, dict[str, float]]]]:
    """Return the columns of a CSV file, and each row as its line and as its numbers."""
    try:
        lines = path.read_bytes().decode("utf-8", "replace").splitlines(keepends=True)
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    lines = [line for line in lines if line.endswith("\n")]
    names = _split_line(lines[0]) if lines else []
    rows = []
    for number, line in enumerate(lines[1:], 2):
        try:
            row = dict(zip(names, map(float, _split_line(line)), strict=True))
            get_steps(row)
        except (ValueError, OverflowError, KeyError, csv.Error):
            raise ConfigError(
                f"line {number} of {str(path)!r} is not a number for each column; remove it"
            ) from None
        rows.append((line, row))
    return names, rows


def _split_line(line: str) -> list[str]:
    return next(csv.reader([line]), [])


def _format_line(values: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue()
