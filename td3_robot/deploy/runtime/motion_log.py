"""The log of a run: a CSV file with a line for every velocity that is sent."""

import contextlib
import csv
import sys
from pathlib import Path
from typing import TextIO

import numpy as np

from td3_robot.deploy.errors import DeployError

LOGGED = ("q", "sent", "measured")  # what a log has of each joint, see `Log.step`


class Log:
    """A CSV file with a line for every velocity that is sent: time, positions that the arm is sent
    to, velocities sent, positions that the arm last reported, reason.

    A full disk stops no arm: the log ends there, and stderr says so once.

    Args:
        path: the file; None writes none. A former one stays until the first velocity is sent.
        joints: names of the joints.

    Raises:
        DeployError: the file cannot be written.
    """

    def __init__(self, path: Path | None, joints: tuple[str, ...]):
        try:
            self._file: TextIO | None = (
                path.open("a", buffering=1, encoding="utf-8") if path else None
            )
            self._replaces = path is not None and path.stat().st_size > 0
        except OSError as error:
            raise DeployError(f"log {str(path)!r} cannot be written: {error.strerror}") from None
        names = [f"{kind}_{name}" for kind in LOGGED for name in joints]
        self._head = ["time", *names, "reason"]
        if not self._replaces:
            self._write(self._head)

    def step(
        self, now: float, q: np.ndarray, qd: np.ndarray, measured: np.ndarray, reason: str
    ) -> None:
        """Write the line of one tick.

        Args:
            now: since the run began [s].
            q, qd: (n,) where the arm is sent to, and how fast [rad or m, rad/s or m/s].
            measured: (n,) positions that it last reported [rad or m].
            reason: why it is stopped or slowed; empty where it is not.
        """
        if self._replaces and self._file:
            self._file.truncate(0)
            self._write(self._head)
        self._replaces = False
        numbers = (f"{x:.9g}" for x in (*q, *qd, *measured))
        self._write([f"{now:.6f}", *numbers, reason.replace(",", ";")])

    def _write(self, cells: list[str]) -> None:
        if self._file:
            try:
                # names of joints are those of the user's file, with commas and quotes
                csv.writer(self._file, lineterminator="\n").writerow(cells)
            except OSError as error:
                why = f"the log ends here, it cannot be written: {error.strerror}"
                with contextlib.suppress(OSError):  # stderr may be on the same disk
                    print(why, file=sys.stderr)
                self.close()

    def close(self) -> None:
        """Finish the file."""
        file = self._file
        self._file = None
        if file:
            with contextlib.suppress(OSError):  # a full disk, which stderr was told of
                file.close()
