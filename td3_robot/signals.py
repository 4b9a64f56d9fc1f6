"""Ctrl-C and SIGTERM as a wish that is heeded between two steps."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """While the block runs the first Ctrl-C or SIGTERM calls `stop`; a second one interrupts at once.

    Only the main thread may take signals: in any other one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    requests: list[int] = []

    def ask(number: int, frame: object) -> None:
        if requests:
            raise KeyboardInterrupt
        requests.append(number)
        stop()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
