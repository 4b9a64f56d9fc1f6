"""Ctrl-C, SIGTERM and SIGHUP: stop a training between two steps, or end the process."""

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
    """The run was asked to stop."""


@contextlib.contextmanager
def stop_on_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first signal in the block; later ones interrupt, but for quick repeats.

    Only the main thread receives signals: in any other one nothing changes.
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
    """Let a signal end the process silently, when nothing is to be saved, as during imports."""
    for number in _list_signals():
        signal.signal(number, lambda *_: os._exit(code))


def interrupt_on_signal() -> None:
    """Let any signal raise a KeyboardInterrupt, so that open resources are closed."""
    for number in _list_signals():
        signal.signal(number, signal.default_int_handler)


def _list_signals() -> list[int]:
    """List the signals that end this process; SIGHUP stays ignored under `nohup`."""
    ignored = signal.getsignal(getattr(signal, "SIGHUP", signal.SIGTERM)) is signal.SIG_IGN
    return [
        number for number in _NUMBERS if not (ignored and number == getattr(signal, "SIGHUP", None))
    ]
