"""Run of an arm, read from the file that `run_policy.py --log` writes."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from td3_robot.errors import ConfigError

LARGEST = 2**28  # bytes: some hours of an arm
LOGGED = ("q", "sent", "measured")  # columns of each joint; older versions logged no `measured`


@dataclass(frozen=True)
class ArmRun:
    """T velocities that were sent to an arm.

    Attributes:
        path: of the file.
        joints: their names.
        time: (T,) [s].
        q: (T, n) positions that the arm was sent to [rad or m].
        sent: (T, n) velocities that it was sent [rad/s or m/s].
        measured: (T, n) positions that it reported [rad or m]; None in logs of older versions.
        reasons: (time, reason) of each change of why the arm was stopped or slowed; "" is none.
    """

    path: Path
    joints: tuple[str, ...]
    time: np.ndarray
    q: np.ndarray
    sent: np.ndarray
    measured: np.ndarray | None
    reasons: tuple[tuple[float, str], ...]

    @property
    def summary(self) -> str:
        """Duration and end of the run in a sentence."""
        end = self.reasons[-1][1] if self.reasons and self.reasons[-1][1] else "nothing was wrong"
        seconds = self.time[-1] - self.time[0]
        return (
            f"{self.path.name}: {len(self.time):,} velocities in {seconds:.1f} s; at the end {end}."
        )


def read_log(path: Path, n: int) -> ArmRun:
    """Read a log of `run_policy.py --log`.

    Args:
        n: number of joints of the report's arm.

    Raises:
        ConfigError: the file is missing, is no such log, or belongs to an arm with other joints.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"is larger than {LARGEST >> 20} MB")
        if not path.stat().st_size:
            raise ValueError("is empty")
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = list(csv.reader(file))
        joints = tuple(name.removeprefix("q_") for name in header if name.startswith("q_"))
        logged = [f"{kind}_{name}" for kind in LOGGED for name in joints]
        older = logged[: 2 * len(joints)]
        if header not in (["time", *logged, "reason"], ["time", *older, "reason"]):
            raise ValueError("has not the columns of run_policy.py --log")
        rows = [row for row in rows if len(row) == len(header)]  # a killed process cuts a line
        numbers = np.array([row[:-1] for row in rows], dtype=float).reshape(
            len(rows), len(header) - 1
        )
        if not len(rows) or not np.isfinite(numbers).all():
            raise ValueError(
                "holds no velocities" if not rows else "holds numbers that are not finite"
            )
    except (OSError, ValueError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"log {str(path)!r} cannot be read: it {_explain(error)}") from None
    if len(joints) != n:
        raise ConfigError(
            f"log {str(path)!r} is of an arm with {len(joints)} joints, the checkpoint's has {n}"
        )
    reasons = [(float(row[0]), row[-1]) for row in rows]
    changes = [now for before, now in zip([(0.0, ""), *reasons], reasons) if now[1] != before[1]]
    q = numbers[:, 1 : 1 + n]
    sent = numbers[:, 1 + n : 1 + 2 * n]
    measured = numbers[:, 1 + 2 * n :] if header != ["time", *older, "reason"] else None
    return ArmRun(path, joints, numbers[:, 0], q, sent, measured, tuple(changes))


def _explain(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot be opened ({error.strerror})"
    return (
        str(error)
        if str(error).startswith(("is ", "has ", "holds "))
        else "has a line that is no numbers"
    )
