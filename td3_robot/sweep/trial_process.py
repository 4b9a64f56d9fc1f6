"""One sitting of a trial: the process of `train.py` that trains it, read along row by row, stopped
and gone on with.
"""

import ctypes
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from td3_robot.checkpoint import lock_run
from td3_robot.errors import ConfigError
from td3_robot.loggers.base import fill_scores, get_steps
from td3_robot.loggers.csv import read_metrics
from td3_robot.sweep.relaunch import resume_command
from td3_robot.sweep.seed_summary import outcome_of
from td3_robot.utils.console import STOPPED

STOP = "stop"  # a file in the folder of the sweep: all trials are to save and end
FINISHED, ENDED, STOPPED_EARLY, FAILED, UNKNOWN = (
    "finished",
    "ended early",
    "stopped",
    "failed",
    "no metric",
)
_LOOK = 0.2  # [s] between looks at the rows
_PATIENCE = 120.0  # [s] that a process has to save and end
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1  # prctl(2)


def ended_early(folder: Path) -> Path:
    """The file beside a trial's folder which says that the scheduler has ended it."""
    return folder.with_name(f"{folder.name}.ended")


def log_of(folder: Path) -> Path:
    """The file beside a trial's folder with what its processes have said."""
    return folder.with_name(f"{folder.name}.log")


class Attempt:
    """The rows of a trial, from the first on; what is not trained yet is trained meanwhile.

    Rows that are in the folder already are told again, so that whoever schedules trials knows where
    each of them was.

    Args:
        folder: the run folder; what it has is gone on with.
        script: `train.py`.
        begin: the words that begin the run.
        change: the words that what is gone on with is changed by.
        metric: that each row has to have.
        steps: up to which the rows are known.
    """

    def __init__(
        self,
        folder: Path,
        script: Path,
        begin: Sequence[str],
        change: Sequence[str],
        metric: str,
        steps: float = 0,
    ):
        self._folder, self._metric, self._steps = folder, metric, steps
        self._script, self._begin, self._change = script, begin, change
        self._process: subprocess.Popen | None = None

    def next(self) -> dict[str, Any]:
        """The next row, with `steps`; at the end `done` and an `outcome`, where that is no good one
        with its `why`.
        """
        while True:
            over = self._over()
            for row in self._unseen():
                return self._told(row)
            if over:
                return self._end()
            if (self._folder.parent / STOP).exists():
                self.stop()
                return {"done": True, "outcome": STOPPED_EARLY}
            if self._process is None:
                self._start()
            time.sleep(_LOOK)

    def stop(self) -> None:
        """Have the process save and end; the next row begins another one."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def _over(self) -> bool:
        """Whether no row is to come that is not in the folder."""
        if self._process is not None:
            return self._process.poll() is not None
        if outcome_of(self._folder) is None and not ended_early(self._folder).exists():
            return False
        if self._folder.is_dir():
            _wait_until_free(
                self._folder
            )  # the process of a sweep that was killed may be at its last pictures
        return True

    def _unseen(self) -> Iterator[dict[str, float]]:
        return (row for row in read_metrics(self._folder) if get_steps(row) > self._steps)

    def _told(self, row: dict[str, float]) -> dict[str, Any]:
        self._steps = get_steps(row)
        row = fill_scores(row)
        if self._metric not in row:
            return self._unknown(f"an evaluation of {self._folder.name} has {', '.join(row)}")
        return {name: value for name, value in row.items() if math.isfinite(value)} | {
            "steps": self._steps
        }

    def _unknown(self, why: str) -> dict[str, Any]:
        return {
            "done": True,
            "outcome": UNKNOWN,
            "why": f"metric {self._metric!r} never comes: {why}",
        }

    def _end(self) -> dict[str, Any]:
        if outcome_of(self._folder) is not None:
            if not self._steps:
                return self._unknown(f"{self._folder.name} ended without an evaluation")
            return {"done": True, "outcome": FINISHED}
        if ended_early(self._folder).exists():
            return {"done": True, "outcome": ENDED}
        code = 0 if self._process is None else self._process.returncode
        if code in (0, STOPPED):
            return {"done": True, "outcome": STOPPED_EARLY}
        return {"done": True, "outcome": FAILED, "why": self._last_words(code)}

    def _last_words(self, code: int) -> str:
        lines = log_of(self._folder).read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        how = (
            f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        )
        return errors[-1] if errors and code > 0 else f"{how}; see {log_of(self._folder)}"

    def _start(self) -> None:
        """Begin the run or go on with it, in a process that does not outlive this one.

        Raises:
            ConfigError: another process has the run and keeps it.
        """
        if self._folder.is_dir():
            _wait_until_free(self._folder)
        words = resume_command(self._folder, [], self._begin)
        if self._folder.is_dir():
            words += self._change
        with open(log_of(self._folder), "a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(self._script), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                preexec_fn=_end_with_parent if _LIBC else None,
            )


def _end_with_parent() -> None:
    """A process that is left alone, as its parent was killed, is asked to save and end."""
    assert _LIBC
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_until_free(folder: Path) -> None:
    """The process that had a run may still be saving."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            with lock_run(folder):
                return
        except ConfigError:
            if time.monotonic() > until:
                raise
        time.sleep(_LOOK)
