"""One training by several processes, which torchrun starts."""

import os


def is_launched_by_torchrun() -> bool:
    """Return whether torchrun started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ["WORLD_SIZE"]) > 1
