"""Atomic writes of files, and locks of folders."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from td3_robot.errors import ConfigError

try:
    import fcntl
except ImportError:  # not a POSIX system: no guard between a reader and a writer of the same moment
    fcntl = None


def remove_half_written(folder: Path) -> None:
    """Remove what `replace_file` left in a folder when its process died."""
    for path in folder.iterdir():
        number = re.match(r"\.([0-9]{1,9})-", path.name)
        if number and not is_alive(int(number[1])):
            path.unlink(missing_ok=True)


def is_alive(process: int) -> bool:
    """Return whether this machine has a process of that number; True if unknown."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


@contextlib.contextmanager
def lock_folder(folder: Path, exclusive: bool) -> Iterator[None]:
    """Lock `folder` against writers of other processes and, if exclusive, against readers."""
    if fcntl is None:
        yield
        return
    handle = None
    with contextlib.suppress(OSError):  # some network file systems cannot lock a folder
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)  # gives the lock back


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Give a temporary file that replaces `path` when the block succeeds, and else is removed.

    Of a link the target is replaced. A device or pipe is written directly.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            yield target
        else:
            with _write_beside(target) as new:
                yield new
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


@contextlib.contextmanager
def _write_beside(path: Path) -> Iterator[Path]:
    new = path.parent / _name_beside(path)
    try:
        yield new
        _sync_file(new)
        os.replace(new, path)
    finally:
        with contextlib.suppress(OSError):
            new.unlink()


def _name_beside(path: Path) -> str:
    """Return the name of the temporary file that shall replace a file."""
    return f".{os.getpid()}-{path.name}"


def _sync_file(path: Path) -> None:
    """Flush a file to the disk before it is renamed, so that no power cut leaves it empty."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically.

    Raises:
        ConfigError: it cannot be written.
    """
    with replace_file(path) as new:
        new.write_text(text, encoding="utf-8")


def check_writable(path: Path | None, suffix: str = "") -> None:
    """Check that a file can be written, before anything is computed; None is no file.

    Args:
        path: of the file, which need not exist, unlike its folder.
        suffix: required end of its name.

    Raises:
        ConfigError: it cannot be written.
    """
    if path is None:
        return
    if os.path.isdir(path) or not path.name.endswith(suffix):
        raise ConfigError(
            f"cannot write {str(path)!r}: it must be a file{suffix and f' named *{suffix}'}"
        )
    if not os.path.exists(path) or os.path.isfile(path):
        target = path.resolve() if os.path.islink(path) else path
        _try_folder(path, target.parent, _name_beside(target))
    elif not os.access(path, os.W_OK):
        raise ConfigError(f"cannot write {str(path)!r}: permission denied")


def check_folder(path: Path | None) -> None:
    """Check that files can be written in a folder, which need not exist; None is no folder."""
    if path is not None:
        if os.path.exists(path) and not os.path.isdir(path):
            raise ConfigError(f"cannot write {str(path)!r}: it must be a folder")
        is_new = not os.path.isdir(path)
        _try_folder(path, path.parent if is_new else path, path.name if is_new else "")


def _try_folder(path: Path, folder: Path, name: str = "") -> None:
    """Make a file without a name in the folder that `path` shall be written to.

    Args:
        name: of what is to be made there, which may be too long; "" for nothing.
    """
    if not os.path.isdir(folder):
        raise ConfigError(f"cannot write {str(path)!r}: folder {str(folder)!r} does not exist")
    try:
        with contextlib.suppress(FileNotFoundError):
            os.lstat(folder / name)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
