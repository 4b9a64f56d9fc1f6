"""The process of `train.py` that trains a trial: started, read row by row, stopped, resumed."""

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
from td3_robot.sweep.relaunch import build_resume_command
from td3_robot.sweep.seed_summary import read_outcome
from td3_robot.utils.console import STOPPED

STOP = "stop"  # a file in the folder of the sweep: all trials are to save and end
FINISHED = "finished"
ENDED = "ended early"  # by the scheduler
STOPPED_EARLY = "stopped"
FAILED = "failed"
UNKNOWN = "no metric"
_POLL = 0.2  # [s] between looks at the rows
_PATIENCE = 120.0  # [s] that a process has to save and end
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1  # prctl(2)


def get_end_mark(folder: Path) -> Path:
    """Return the file next to a trial's folder that marks it as ended by the scheduler."""
    return folder.with_name(f"{folder.name}.ended")


def get_log_file(folder: Path) -> Path:
    """Return the file next to a trial's folder with the output of its processes."""
    return folder.with_name(f"{folder.name}.log")


class TrialProcess:
    """Process that trains a trial, read along by the rows of its `metrics.csv`.

    Rows that are in the folder already come first, so that a scheduler knows the whole trial.

    Args:
        folder: the run folder; a run in it is resumed.
        script: `train.py`.
        begin: the command line of a new run.
        change: options that a resumed run is changed by.
        metric: the metric that each row must have, once a training episode has ended.
        steps: rows up to here are skipped.
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
        self._folder = folder
        self._script = script
        self._begin = begin
        self._change = change
        self._metric = metric
        self._steps = steps
        self._process: subprocess.Popen | None = None
        self._logged = 0  # [bytes] of the log, by earlier processes

    def wait_for_row(self) -> dict[str, Any]:
        """Return the next row with its `steps`.

        At the end, return `done`, the `outcome` and, of a failure, `why`.
        """
        while True:
            over = self._is_over()  # first, so that no row after this is missed
            for row in self._iter_new_rows():
                return self._report_row(row)
            if over:
                return self._report_end()
            if (self._folder.parent / STOP).exists():
                self.stop()
                return {"done": True, "outcome": STOPPED_EARLY}
            if self._process is None:
                self._start()
            time.sleep(_POLL)

    def stop(self) -> None:
        """Let the process save and end; the next `wait_for_row` starts another one."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def _is_over(self) -> bool:
        """Return True if all rows to come are in the folder."""
        if self._process is not None:
            return self._process.poll() is not None
        if read_outcome(self._folder) is None and not get_end_mark(self._folder).exists():
            return False
        if self._folder.is_dir():
            # the process of a sweep that was killed may be at its last pictures
            _wait_until_free(self._folder)
        return True

    def _iter_new_rows(self) -> Iterator[dict[str, float]]:
        return (row for row in read_metrics(self._folder) if get_steps(row) > self._steps)

    def _report_row(self, row: dict[str, float]) -> dict[str, Any]:
        self._steps = get_steps(row)
        row = fill_scores(row)
        # before a training episode has ended, some environments have not reported success
        played = not math.isnan(row.get("train_return", 0.0))
        if played and self._metric not in row:
            why = f"an evaluation of {self._folder.name} has {', '.join(row)}"
            return self._report_no_metric(why)
        finite = {name: value for name, value in row.items() if math.isfinite(value)}
        return finite | {"steps": self._steps}

    def _report_no_metric(self, why: str) -> dict[str, Any]:
        why = f"metric {self._metric!r} never comes: {why}"
        return {"done": True, "outcome": UNKNOWN, "why": why}

    def _report_end(self) -> dict[str, Any]:
        if read_outcome(self._folder) is not None:
            rows = read_metrics(self._folder)
            if not any(self._metric in fill_scores(row) for row in rows):
                missing = "a whole training episode" if rows else "an evaluation"
                return self._report_no_metric(f"{self._folder.name} ended without {missing}")
            return {"done": True, "outcome": FINISHED}
        if get_end_mark(self._folder).exists():
            return {"done": True, "outcome": ENDED}
        code = 0 if self._process is None else self._process.returncode
        if code in (0, STOPPED):
            return {"done": True, "outcome": STOPPED_EARLY}
        return {"done": True, "outcome": FAILED, "why": self._find_reason(code)}

    def _find_reason(self, code: int) -> str:
        output = get_log_file(self._folder).read_bytes()[self._logged :]
        lines = output.decode("utf-8", "replace").splitlines()
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        if errors and code > 0:
            return errors[-1]
        end = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return f"ended {end}; see {get_log_file(self._folder)}"

    def _start(self) -> None:
        """Start or resume the run, in a process that does not outlive this one.

        Raises:
            ConfigError: another process has locked the run.
        """
        if self._folder.is_dir():
            _wait_until_free(self._folder)
        words = build_resume_command(self._folder, [], self._begin)
        if self._folder.is_dir():
            words += self._change
        with open(get_log_file(self._folder), "ab") as log:
            self._logged = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, str(self._script), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                preexec_fn=_end_with_parent if _LIBC else None,
            )


def _end_with_parent() -> None:
    """Ask the kernel to terminate this process, which then saves, when its parent is killed."""
    assert _LIBC
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_until_free(folder: Path) -> None:
    """Wait until no process has locked a run: an earlier one may still be saving."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            with lock_run(folder):
                return
        except ConfigError:
            if time.monotonic() > until:
                raise
        time.sleep(_POLL)
