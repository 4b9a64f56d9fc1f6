"""Run folders: find one by name, make a new one, lock one."""

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from td3_robot.checkpoint.store import find_files, list_names, make_missing_error, tidy
from td3_robot.errors import CheckpointError, ConfigError
from td3_robot.utils.atomic_files import is_alive

try:
    import fcntl
except ImportError:  # not a POSIX system: two processes on one run are not told apart
    fcntl = None

RUNS = Path("checkpoints")  # where runs go, seen from the working directory
_LOCK = ".lock"


def find(name: str | Path, root: Path = RUNS) -> Path:
    """Find a checkpoint by its folder, prefix, or name of a run in `root`.

    Raises:
        CheckpointError: there is none; the message lists those that are.
    """
    path = Path(name)
    for candidate in (path, root / path):
        if find_files(candidate):
            return candidate
    # run1/step_9 is looked for beside what checkpoints/run1 holds, unless there is a folder run1
    place = path.parent if len(path.parts) > 1 else path
    inside = not os.path.isdir(place) and (place == path or os.path.isdir(root / place))
    raise make_missing_error(root / path if inside else path)


def make_next_run(root: str | Path = RUNS) -> Path:
    """Make and return the next free `<root>/runN`, which no other training gets."""
    root = Path(root)
    numbers = [int(name[3:]) for name in list_names(root) if re.fullmatch(r"run[0-9]{1,9}", name)]
    number = max(numbers, default=0) + 1
    while not _make(root / f"run{number}"):  # another training was faster
        number += 1
    return root / f"run{number}"


def run_name(folder: Path) -> str:
    """Return the name of a run folder for `--resume`: its path in `RUNS`, or else its path."""
    path = Path(os.path.abspath(folder))  # without "..", as in ../here/checkpoints/run1
    root = Path(os.path.abspath(RUNS))
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(folder)


def claim_run(root: str | Path, name: str) -> Path:
    """Make and return `<root>/<name>` for a new run; a name with a slash is of a run in a folder of
    several.

    Raises:
        ConfigError: the name cannot be a folder's, is inside another run, or there is such a run.
    """
    if name.startswith(f"{root}/"):
        raise ConfigError(f"run must be a name in {root}, got {name!r}: leave {root}/ out")
    if not re.fullmatch(r"\w[\w.-]{0,99}(/\w[\w.-]{0,99})?", name):
        letters = "letters, digits, _, - or ., and not start with the last two"
        raise ConfigError(
            f"run must be {letters}, or two such names with / between them, got {name!r}"
        )
    folder = Path(root) / name
    if "/" in name and find_files(folder.parent):
        raise ConfigError(
            f"run {name!r} would be inside the folder of run {folder.parent.name!r}; "
            "choose another --run"
        )
    if not _make(folder):
        raise ConfigError(
            f"run {name!r} exists already; continue it with --resume {name} or choose another --run"
        )
    return folder


@contextlib.contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Lock a run folder for this process, and remove incomplete files of one that died.

    The system releases the lock when the process ends.

    Raises:
        ConfigError: another process has locked the folder; the message names it.
        CheckpointError: the folder cannot be written.
    """
    path = folder / _LOCK
    with contextlib.ExitStack() as cleanup:
        try:
            file = _open_lock_file(path)
            cleanup.callback(_remove_lock_file, path, file)
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            tidy(folder)
        except OSError as error:
            raise CheckpointError(f"cannot write in {str(folder)!r}: {error.strerror}") from error
        yield


def find_owner(folder: Path) -> str | None:
    """Return the process that has locked a run folder; None if there is none that is known."""
    try:
        with open(folder / _LOCK, encoding="utf-8", errors="replace") as file:
            owner = file.read(200).strip()
    except OSError:
        return None
    match = re.fullmatch(r"process ([0-9]{1,9}) on ([\w.-]+)", owner)
    if match is None:
        return None
    process, host = match.groups()
    has_ended = host == socket.gethostname() and not is_alive(int(process))
    return None if has_ended else owner


@contextlib.contextmanager
def lock_new_run(folder: Path) -> Iterator[Path]:
    """Lock the folder of a new run; if it stays empty, it is removed in the end."""
    try:
        with lock_run(folder):
            yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _open_lock_file(path: Path) -> TextIO:
    """Open and lock the lock file."""
    while True:
        file = open(path, "a+", encoding="utf-8", errors="replace")
        try:
            if fcntl is not None:
                # unlike flock, not kept by children that go on
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.seek(0)
            owner = file.read(200).strip() or "another process"
            file.close()
            raise ConfigError(f"run {path.parent.name!r} is being trained by {owner!r}") from None
        except OSError:  # a file system without locks
            pass
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
                break
        file.close()  # its holder removed it just now
    return file


def _remove_lock_file(path: Path, file: TextIO) -> None:
    """Remove the lock file and release the lock."""
    with contextlib.suppress(OSError):  # the folder may be gone
        path.unlink()
    with contextlib.suppress(OSError):  # what a full disk did not take is tried again
        file.close()


def _make(folder: Path) -> bool:
    """Make a folder and return whether it was free; of several processes one succeeds."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        os.mkdir(folder)
    except OSError as error:
        if isinstance(error, FileExistsError) and folder.exists():
            return False
        raise CheckpointError(f"cannot make {str(folder)!r}: {error.strerror}") from error
    return True
