"""Trainings in several processes: one of each of several seeds, or one by all of them together."""

import os


def launched() -> bool:
    """Whether torchrun started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ["WORLD_SIZE"]) > 1
