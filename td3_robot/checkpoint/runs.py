"""Run folders by name: the one that a user means, the next free one, a new one."""

import os
import re
from pathlib import Path

from td3_robot.checkpoint.folder import files_of, listed, nothing_at
from td3_robot.errors import CheckpointError, ConfigError

RUNS = Path("checkpoints")  # where runs go, seen from the working directory


def find(name: str | Path, root: Path = RUNS) -> Path:
    """The checkpoint that a user means: a folder, a prefix, or the name of a run in `root`.

    Raises:
        CheckpointError: there is none; the message lists those that are.
    """
    path = Path(name)
    for candidate in (path, root / path):
        if files_of(candidate):
            return candidate
    raise nothing_at(path if len(path.parts) > 1 or path.is_dir() else root / path)


def next_run(root: str | Path = RUNS) -> Path:
    """Make and return the next free `<root>/runN`; trainings that start together get different ones."""
    root = Path(root)
    numbers = [int(name[3:]) for name in listed(root) if re.fullmatch(r"run[0-9]{1,9}", name)]
    number = max(numbers, default=0) + 1
    while not _make(root / f"run{number}"):  # another training was faster
        number += 1
    return root / f"run{number}"


def claim_run(root: str | Path, name: str) -> Path:
    """Make and return `<root>/<name>` for a new run.

    Raises:
        ConfigError: the name cannot be a folder's, or there is such a run already.
    """
    if not re.fullmatch(r"\w[\w.-]{0,99}", name):
        raise ConfigError(f"run must be letters, digits, _, - or ., and not start with the last two, got {name!r}")
    if not _make(Path(root) / name):
        raise ConfigError(f"run {name!r} exists already; continue it with --resume {name} or choose another --run")
    return Path(root) / name


def _make(folder: Path) -> bool:
    """Make a folder and say whether it was free, for one process only however many try."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        os.mkdir(folder)
    except OSError as error:
        if isinstance(error, FileExistsError) and folder.exists():
            return False
        raise CheckpointError(f"cannot make {str(folder)!r}: {error.strerror}") from error
    return True
