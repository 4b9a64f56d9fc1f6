"""Checkpoint folders: one file per state dict, all replaced together or not at all.

A set is first written whole into `.next`, then renamed to `.commit`; that rename is the commit
point. After it each file moves into the folder. A `.commit` folder means that a process died in
between: a reader prefers the files in it to those in the folder, and a writer finishes the move
first.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from td3_robot.checkpoint.manifest import MANIFEST, read_manifest, write_manifest
from td3_robot.checkpoint.state_file import check_plain, read_state, write_state
from td3_robot.errors import CheckpointError, get_first_line
from td3_robot.utils.atomic_files import lock_folder, remove_half_written

REQUIRED = ("Q1", "Q2", "actor", "Q1_optimizer", "Q2_optimizer", "actor_optimizer")
OPTIONAL = ("Q1_target", "Q2_target", "actor_target", "normalizer", "trainer_state")
NAMES = REQUIRED + OPTIONAL

_NEXT = ".next"
_COMMIT = ".commit"
_ABSENT = ".absent"  # suffix in `.commit`: this file of the former set has no successor


class Checkpoint(NamedTuple):
    """The states and metadata of a checkpoint."""

    states: dict[str, dict]  # by name, of NAMES
    metadata: dict  # of `MANIFEST`; empty for an older checkpoint


def write(folder: str | Path, states: dict[str, dict], metadata: dict | None = None) -> None:
    """Replace the checkpoint in `folder` by `states`, atomically even if the process is killed.

    A new folder appears complete. Files that are no state files stay.

    Args:
        folder: where to write.
        states: the six of REQUIRED and any of OPTIONAL, each a dict of tensors and plain Python
            values.
        metadata: values that JSON can hold, for the file MANIFEST of the same set.

    Raises:
        CheckpointError: the folder cannot be written; its content is unchanged.
        ValueError, TypeError: `states` is not such a set.
    """
    if missing := [name for name in REQUIRED if name not in states]:
        raise ValueError(f"a checkpoint needs {', '.join(missing)}")
    for name, state in states.items():
        if name not in NAMES:
            raise ValueError(f"{name!r} is not one of {', '.join(NAMES)}")
        check_plain(state, name)

    folder = Path(os.path.abspath(folder))  # a name such as "." has no parent or name of its own
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with lock_folder(folder.parent, exclusive=True):
            if not folder.exists():
                return _create(folder, states, metadata or {})
        with lock_folder(folder, exclusive=True):
            _replace(folder, states, metadata or {})
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        reason = getattr(_find_cause(error), "strerror", None) or get_first_line(error)
        raise CheckpointError(f"cannot write checkpoint {folder.name!r}: {reason}") from error


def read(path: str | Path, names: Iterable[str] | None = None) -> dict[str, dict]:
    """Read the states of a checkpoint, see `load`."""
    return load(path, names).states


def load(path: str | Path, names: Iterable[str] | None = None) -> Checkpoint:
    """Read a checkpoint onto the CPU, without running code that a file may hold.

    Args:
        path: a folder, or the older form: the common prefix of files `<path>Q1`, `<path>actor`, ...
        names: the states wanted, of NAMES; all by default.

    Returns:
        The checkpoint; states of OPTIONAL that it does not have are missing.

    Raises:
        CheckpointError: no checkpoint there, one of the wanted REQUIRED files is missing, or a file
            is damaged, is not the one that was written, or holds anything but tensors and plain
            values.
    """
    path = Path(path)
    wanted = NAMES if names is None else tuple(names)
    with lock_folder(path, exclusive=False) if os.path.isdir(path) else contextlib.nullcontext():
        files = find_files(path)
        if not files:
            raise make_missing_error(path)
        for name in wanted:
            if name in REQUIRED and name not in files:
                missing = path / name if os.path.isdir(path) else Path(f"{path}{name}")
                raise CheckpointError(
                    f"checkpoint {str(path)!r} is incomplete: there is no file {str(missing)!r}"
                )
        metadata = read_manifest(_find_newest(path, MANIFEST))
        sums = metadata.pop("sha256", None)
        return Checkpoint(
            {name: read_state(files[name], sums) for name in wanted if name in files}, metadata
        )


def tidy(folder: Path) -> None:
    """Finish or remove incomplete writes of a process that died; the run must be locked."""
    inside = [
        path
        for path in folder.iterdir()
        if path.is_dir() and not path.name.startswith(".") and find_files(path)
    ]
    for place in (folder, *inside):
        with lock_folder(place, exclusive=True):
            _move_in(place)
            for stray in (place / _NEXT, *place.glob(".*.new")):
                shutil.rmtree(stray, ignore_errors=True)
            remove_half_written(place)


def _create(folder: Path, states: dict[str, dict], metadata: dict) -> None:
    """Write a new folder, under the lock of its parent."""
    new = folder.parent / f".{folder.name}.new"
    _write_set(new, states, metadata)
    os.rename(new, folder)
    sync(folder.parent)


def _replace(folder: Path, states: dict[str, dict], metadata: dict) -> None:
    """Replace the set in a folder, under its lock."""
    _move_in(folder)
    new = folder / _NEXT
    absent = [
        f"{name}{_ABSENT}" for name in NAMES if name not in states and (folder / name).exists()
    ]
    _write_set(new, states, metadata, absent)
    os.rename(new, folder / _COMMIT)
    sync(folder)
    _move_in(folder)


def _write_set(
    folder: Path, states: dict[str, dict], metadata: dict, absent: Iterable[str] = ()
) -> None:
    """Write a set into a new folder and flush it to the disk; on failure remove the folder."""
    shutil.rmtree(folder, ignore_errors=True)  # left by a process that died
    folder.mkdir()
    try:
        for name in absent:
            (folder / name).touch()
        sums = {name: write_state(folder / name, state) for name, state in states.items()}
        write_manifest(folder / MANIFEST, {**metadata, "sha256": sums})
        sync(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # halves would go on filling a disk that is full
        raise


def _move_in(folder: Path) -> None:
    """Move the files of `.commit` into the folder, also those that a dead process left."""
    commit = folder / _COMMIT
    if not commit.exists():
        return
    for path in commit.iterdir():
        if path.suffix == _ABSENT:
            (folder / path.stem).unlink(missing_ok=True)
            path.unlink()
        else:
            os.replace(path, folder / path.name)
    sync(folder)
    commit.rmdir()


def find_files(path: Path) -> dict[str, Path]:
    """Find the state files of the checkpoint at `path`; empty without one."""
    files = {name: file for name in NAMES if (file := _find_newest(path, name)) is not None}
    return files or {
        name: Path(f"{path}{name}") for name in NAMES if os.path.isfile(f"{path}{name}")
    }


def _find_newest(folder: Path, name: str) -> Path | None:
    """Find a file of a checkpoint folder, in its `.commit` or else itself; None without one."""
    commit = folder / _COMMIT
    # os.path.isfile, unlike Path.is_file, takes what cannot be looked at for absent
    if os.path.isfile(commit / name):
        return commit / name
    is_current = os.path.isfile(folder / name) and not os.path.exists(commit / f"{name}{_ABSENT}")
    return folder / name if is_current else None


def make_missing_error(path: Path) -> CheckpointError:
    """Make the error for a path without a checkpoint, with the checkpoints near it."""
    place = path if os.path.isdir(path) else path.parent
    near = (place, *(place / name for name in list_names(place)))
    others = sorted(str(other) for other in near if find_files(other))
    # absolute, so that who is in the wrong folder sees it
    none = f", and none in {os.path.abspath(place)!r}"
    hint = f"; valid choices: {', '.join(others)}" if others else none
    return CheckpointError(f"there is no checkpoint at {str(path)!r}{hint}")


def list_names(folder: Path) -> list[str]:
    """List the names in a folder; none if it cannot be read."""
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def sync(folder: Path) -> None:
    """Flush the names in `folder` to the disk."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _find_cause(error: BaseException | None) -> OSError | None:
    """Find the system's error behind one of torch, which has less detail."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error
