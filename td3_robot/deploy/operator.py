"""The operator's way to stop an arm: Enter, or Ctrl-C."""

import os
import select
import signal
import sys
from collections.abc import Callable


def emergency_stop() -> Callable[[], bool]:
    """A function that says whether Enter or Ctrl-C has been pressed since; Ctrl-C does no more than that from here."""
    state = {"pressed": False, "open": True}
    signal.signal(signal.SIGINT, lambda *_: state.update(pressed=True))

    def pressed() -> bool:
        if state["open"] and select.select([sys.stdin], [], [], 0.0)[0]:
            typed = os.read(sys.stdin.fileno(), 1024)
            state["open"] = bool(typed)  # at its end there is nobody to press anything
            state["pressed"] |= b"\n" in typed
        return state["pressed"]

    return pressed
