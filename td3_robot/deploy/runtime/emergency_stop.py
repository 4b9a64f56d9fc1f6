"""The operator's ways to stop an arm: Enter, Ctrl-C, and the end of the terminal or the session."""

import os
import select
import signal
import sys
from collections.abc import Callable

SIGNALS = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def interrupt_on_signals() -> None:
    """Raise KeyboardInterrupt at Ctrl-C, SIGTERM and SIGHUP, while nothing has moved yet."""

    def interrupt(*_) -> None:
        for name in SIGNALS:  # a second one would interrupt what gives the arm back
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        raise KeyboardInterrupt

    for name in SIGNALS:
        signal.signal(getattr(signal, name), interrupt)


def make_stop_poll() -> Callable[[], bool]:
    """Make a function that returns True once Enter or Ctrl-C has been pressed, or a SIGTERM or
    SIGHUP has come, as when an ssh connection is lost; they do no more than that from here, so that
    the arm is braked and not let go of.
    """
    state = {"pressed": False, "open": sys.stdin is not None}  # a service may have none
    for name in SIGNALS:
        signal.signal(getattr(signal, name), lambda *_: state.update(pressed=True))

    def pressed() -> bool:
        if state["open"] and select.select([sys.stdin], [], [], 0.0)[0]:
            typed = _read_typed()
            state["open"] = bool(typed)  # at its end there is nobody to press anything
            state["pressed"] |= b"\n" in typed
        return state["pressed"]

    return pressed


def _read_typed() -> bytes:
    try:
        return os.read(sys.stdin.fileno(), 1024)
    except OSError:  # of a terminal that is gone
        return b""
