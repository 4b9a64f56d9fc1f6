"""Import of PyTorch, which is half of the time that a command takes to begin."""

import gc
import sys


def import_torch() -> None:
    """Import torch, if it is not there yet, with Python's garbage collector at rest.

    The import makes 170,000 objects that stay. The collector would walk over them 400 times to find
    next to nothing, a tenth of the import's time; from then on they are exempt from its searches. A
    command calls this after it has parsed its arguments, so that a mistyped flag is answered at
    once.
    """
    if "torch" in sys.modules:
        return
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        import torch  # noqa: F401
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
