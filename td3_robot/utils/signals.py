"""Ctrl-C, SIGTERM and SIGHUP: in a training a wish that is heeded between two steps, elsewhere the
end, in one line.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

PATIENCE = 2.0  # [s] after the first signal, from which on another one interrupts at once
_NUMBERS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


class Stopped(Exception):
    """The run is asked to stop."""


@contextlib.contextmanager
def stop_on_signal(stop: Callable[[], None]) -> Iterator[None]:
    """While the block runs the first signal calls `stop`; others interrupt at once, but for those
    that follow quickly.

    Only the main thread may take signals: in any other one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[float] = []

    def ask(number: int, frame: object) -> None:
        if asked and time.monotonic() - asked[0] > PATIENCE:
            raise KeyboardInterrupt
        asked.append(time.monotonic())
        stop()

    before = {number: signal.signal(number, ask) for number in _list_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_on_signal(code: int = 130) -> None:
    """A signal ends the process at once and without a word: nothing is there to save, as during the
    imports.
    """
    for number in _list_signals():
        signal.signal(number, lambda *_: os._exit(code))


def interrupt_on_signal() -> None:
    """A signal, whichever, is a KeyboardInterrupt, so that what was opened is closed."""
    for number in _list_signals():
        signal.signal(number, signal.default_int_handler)


def _list_signals() -> list[int]:
    """The signals that end a process here; `nohup` has SIGHUP ignored, and so it stays."""
    ignored = signal.getsignal(getattr(signal, "SIGHUP", signal.SIGTERM)) is signal.SIG_IGN
    return [
        number for number in _NUMBERS if not (ignored and number == getattr(signal, "SIGHUP", None))
    ]
