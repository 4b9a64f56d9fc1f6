"""Trackers, which record the metrics of a run, and the guard against their failures."""

import contextlib
import sys
from collections.abc import Callable
from typing import Protocol

from td3_robot.utils.legacy import find_old_names


class Tracker(Protocol):
    """Recorder of the metrics of each periodic evaluation, by the steps of `get_steps`."""

    def log(self, metrics: dict[str, float]) -> None:
        """Record one evaluation; docs/reference/metrics.md defines the metrics."""

    def close(self) -> None:
        """Finish and close what is open."""


class Trackers(list[Tracker]):
    """List of trackers whose failures do not end a run.

    The first failure of each is a warning on stderr; every tracker is called again next time.

    Args:
        silent: ignore failures, those of a process whose folder is a temporary one.

    Attributes:
        failed: something could not be written: `train.py` then ends with an exit code of its own.
    """

    def __init__(self, silent: bool = False):
        super().__init__()
        self._silent = silent
        self._warned: set[str] = set()

    @property
    def failed(self) -> bool:
        """True if a tracker, or something else of the run, could not be written."""
        return bool(self._warned) or any(getattr(tracker, "failed", False) for tracker in self)

    def log(self, metrics: dict[str, float]) -> None:
        """Record one evaluation with every tracker, names in one line and values as numbers.

        Other values, which only a callback can have added, are left out with a warning.
        """
        numbers = {}
        for name, value in metrics.items():
            try:
                number = value if type(value) in (int, float) else float(value)
            except (TypeError, ValueError, RuntimeError) as error:
                self.warn(f"metric {name!r}", error)
            else:
                numbers[" ".join(str(name).splitlines())] = number
        for tracker in self:
            self.try_write(type(tracker).__name__, tracker.log, numbers)

    def close(self) -> None:
        """Close every tracker."""
        for tracker in self:
            self.try_write(type(tracker).__name__, tracker.close)

    def try_write(self, name: str, write: Callable, *arguments) -> None:
        """Call `write(*arguments)`; warn, under this name, if it raises."""
        try:
            write(*arguments)
        except Exception as error:  # a full disk, a bug in a tracker: none is worth a training
            self.warn(name, error)

    def warn(self, name: str, error: Exception) -> None:
        """Warn on stderr, once a name, that it cannot be written, and count it as failed."""
        if self._silent or name in self._warned:
            return
        self._warned.add(name)
        # the reason of the system, if an error of ours wraps one
        system = getattr(error.__cause__, "strerror", None)
        reason = system or " ".join(str(error).split()) or type(error).__name__
        with contextlib.suppress(OSError):  # stderr may be as full
            print(
                f"warning: {name} cannot be written ({reason[:200]}); the run continues",
                file=sys.stderr,
            )


def get_steps(metrics: dict[str, float]) -> int:
    """Return the env steps of a row or, of learning from a dataset, its gradient steps."""
    return int(metrics["env_steps"] or metrics["gradient_steps"])


def fill_scores(metrics: dict[str, float]) -> dict[str, float]:
    """Return the metrics with the scores of training episodes where none were evaluated.

    These are `episode_return` and `success_rate`.
    """
    if "episode_return" in metrics:
        return metrics
    names = {"episode_return": "train_return", "success_rate": "train_success_rate"}
    return metrics | {name: metrics[train] for name, train in names.items() if train in metrics}


__getattr__ = find_old_names(__name__)
