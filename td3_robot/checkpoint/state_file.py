"""State files: tensors and plain Python values, read without running code."""

import hashlib
import io
import os
import re
import warnings
import zipfile
from pathlib import Path

from td3_robot.errors import CheckpointError


def write_state(path: Path, state: dict) -> str:
    """Write one state file, flush it to the disk and return its SHA-256."""
    import torch  # here: it takes over a second, and looking a checkpoint up should not

    with open(path, "w+b") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_state(path: Path, sums: dict[str, str] | None = None) -> dict:
    """Read one state file.

    Args:
        path: the file.
        sums: SHA-256 by name of file; None for an older checkpoint.

    Raises:
        CheckpointError: it cannot be opened, does not match its SHA-256, is damaged, or holds
            anything but a dict of plain values.
    """
    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            # torch's advice about a file that is about to be refused
            warnings.simplefilter("ignore")
            _check_whole(file, path, sums)
            state = _unpickle(file, path)
    except OSError as error:
        raise CheckpointError(f"cannot read {str(path)!r}: {error.strerror}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{str(path)!r} holds a {type(state).__name__}, not a state dict")
    return state


def _check_whole(file: io.BufferedReader, path: Path, sums: dict[str, str] | None) -> None:
    """Check a file against its SHA-256 or, without one, the checksums inside."""
    if sums is not None:
        if hashlib.file_digest(file, "sha256").hexdigest() != sums.get(path.name):
            raise CheckpointError(
                f"{str(path)!r} is damaged: it is not the file that was written, by its SHA-256"
            )
    else:
        try:  # torch itself takes altered weights without a word
            intact = not zipfile.is_zipfile(file) or zipfile.ZipFile(file).testzip() is None
        except Exception:  # damaged bytes make it raise nearly anything
            intact = False
        if not intact:
            raise CheckpointError(f"{str(path)!r} is damaged: a checksum inside does not fit")
    file.seek(0)


def _unpickle(file: io.BufferedReader, path: Path) -> object:
    """Unpickle a file of tensors and plain values."""
    import torch

    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make the unpickler raise nearly anything
        if code := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise CheckpointError(f"refused {str(path)!r}: it asks for {code[1]}") from error
        raise CheckpointError(f"{str(path)!r} is damaged or is no checkpoint file") from error


def check_plain(value: object, where: str) -> None:
    """Check that a state holds only what `read` accepts, before it is written.

    Raises:
        TypeError: anything else, numpy's scalars included.
    """
    import torch

    if isinstance(value, dict):
        for key, item in value.items():
            check_plain(item, f"{where}[{key!r}]")
    elif isinstance(value, list | tuple) and type(value) in (list, tuple):
        for index, item in enumerate(value):
            check_plain(item, f"{where}[{index}]")
    elif not isinstance(value, torch.Tensor) and type(value) not in (
        type(None),
        bool,
        int,
        float,
        str,
    ):
        raise TypeError(
            f"{where} is a {type(value).__name__}; "
            "a checkpoint holds tensors and plain Python values only"
        )
