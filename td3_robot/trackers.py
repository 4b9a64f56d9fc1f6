"""Side outputs: what they cannot write is told once, and never costs a training."""

import contextlib
import sys
from collections.abc import Callable

from td3_robot.tracking import Tracker


class Trackers(list[Tracker]):
    """Trackers whose failures end nothing: the first of each is told on stderr, and all are tried again next time.

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
        except Exception as error:  # a full disk, a deleted folder, a bug in a tracker: none is worth a training
            self.tell(name, error)

    def tell(self, name: str, error: Exception) -> None:
        """Say on stderr, the first time, that something cannot be written, and count it as failed."""
        if name not in self._told:
            self._told.add(name)
            system = getattr(
                error.__cause__, "strerror", None
            )  # its own words for why, where an error of ours wraps it
            reason = system or " ".join(str(error).split()) or type(error).__name__
            with contextlib.suppress(OSError):  # stderr may be as full
                print(f"warning: {name} cannot be written ({reason[:200]}); the run goes on", file=sys.stderr)
