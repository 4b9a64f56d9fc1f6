"""The checkpoint folder: one file a state dict, replaced as a set or not at all.

A set is first written whole into `.next`, then renamed to `.commit`; that rename is the commit point. After it
each file moves into the folder. Whoever finds a `.commit` knows that a process died in between: a reader takes
the files still in it before those in the folder, and a writer finishes the move before its own.
"""

import contextlib
import os
import re
import shutil
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from td3_robot.errors import CheckpointError, ConfigError

try:
    import fcntl
except ImportError:  # not a POSIX system: no guard between a reader and a writer of the same moment
    fcntl = None

REQUIRED = ("Q1", "Q2", "actor", "Q1_optimizer", "Q2_optimizer", "actor_optimizer")
OPTIONAL = ("Q1_target", "Q2_target", "actor_target", "normalizer", "trainer_state")
NAMES = REQUIRED + OPTIONAL
RUNS = Path("checkpoints")  # where runs go, seen from the working directory

_NEXT, _COMMIT = ".next", ".commit"
_ABSENT = ".absent"  # suffix in `.commit`: this file of the former set has no successor


def write(folder: str | Path, states: dict[str, dict]) -> None:
    """Replace the checkpoint in `folder` by `states`; killed at any moment, it holds the old set or the new.

    A folder that does not exist appears complete. Files that are no state files stay as they are.

    Args:
        folder: where to write.
        states: the six of REQUIRED and any of OPTIONAL, each a dict of tensors and plain Python values.

    Raises:
        CheckpointError: the folder cannot be written; what it held is untouched.
        ValueError, TypeError: `states` is not such a set.
    """
    if missing := [name for name in REQUIRED if name not in states]:
        raise ValueError(f"a checkpoint needs {', '.join(missing)}")
    for name, state in states.items():
        if name not in NAMES:
            raise ValueError(f"{name!r} is not one of {', '.join(NAMES)}")
        _check_plain(state, name)

    folder = Path(os.path.abspath(folder))  # a name such as "." has no parent or name of its own
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.parent, exclusive=True):
            if not folder.exists():
                return _create(folder, states)
        with _locked(folder, exclusive=True):
            _replace(folder, states)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        reason = getattr(error, "strerror", None) or _first_line(error)
        raise CheckpointError(f"cannot write checkpoint {folder.name!r}: {reason}") from error


def read(path: str | Path, names: Iterable[str] | None = None) -> dict[str, dict]:
    """Read a checkpoint, onto the CPU whatever device wrote it, without running anything that a file may hold.

    Args:
        path: a folder, or the older form: the common prefix of files `<path>Q1`, `<path>actor`, ...
        names: the states wanted, of NAMES; all by default.

    Returns:
        State dicts by name. Those of OPTIONAL that the checkpoint does not have are left out.

    Raises:
        CheckpointError: no checkpoint there, one of the wanted REQUIRED files is missing, or a file is
            damaged or holds anything but tensors and plain values.
    """
    path = Path(path)
    wanted = NAMES if names is None else tuple(names)
    with _locked(path, exclusive=False) if path.is_dir() else contextlib.nullcontext():
        files = _files(path)
        if not files:
            raise _nothing_at(path)
        for name in wanted:
            if name in REQUIRED and name not in files:
                missing = path / name if path.is_dir() else Path(f"{path}{name}")
                raise CheckpointError(f"checkpoint {str(path)!r} is incomplete: there is no file {str(missing)!r}")
        return {name: _load(files[name]) for name in wanted if name in files}


def find(name: str | Path, root: Path = RUNS) -> Path:
    """The checkpoint that a user means: a folder, a prefix, or the name of a run in `root`.

    Raises:
        CheckpointError: there is none; the message lists those that are.
    """
    path = Path(name)
    for candidate in (path, root / path):
        if _files(candidate):
            return candidate
    raise _nothing_at(path if len(path.parts) > 1 or path.is_dir() else root / path)


def next_run(root: str | Path = RUNS) -> Path:
    """Make and return the next free `<root>/runN`; trainings that start together get different ones."""
    root = Path(root)
    numbers = [int(name[3:]) for name in _listed(root) if re.fullmatch(r"run[0-9]{1,9}", name)]
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


def _create(folder: Path, states: dict[str, dict]) -> None:
    """Write a folder that does not exist, under the lock of its parent."""
    new = folder.parent / f".{folder.name}.new"
    shutil.rmtree(new, ignore_errors=True)  # left by a process that died
    new.mkdir()
    _save(new, states)
    os.rename(new, folder)
    _sync(folder.parent)


def _replace(folder: Path, states: dict[str, dict]) -> None:
    """Write over what a folder holds, under its lock."""
    _move_in(folder)
    new = folder / _NEXT
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    for name in NAMES:
        if name not in states and (folder / name).exists():
            (new / f"{name}{_ABSENT}").touch()
    _save(new, states)
    os.rename(new, folder / _COMMIT)
    _sync(folder)
    _move_in(folder)


def _move_in(folder: Path) -> None:
    """Take the files of `.commit` into the folder, or what a process that died left of them."""
    commit = folder / _COMMIT
    if not commit.exists():
        return
    for path in commit.iterdir():
        if path.suffix == _ABSENT:
            (folder / path.stem).unlink(missing_ok=True)
            path.unlink()
        else:
            os.replace(path, folder / path.name)
    _sync(folder)
    commit.rmdir()


def _files(path: Path) -> dict[str, Path]:
    """The state files of the checkpoint at `path`; empty where there is none."""
    commit, files = path / _COMMIT, {}
    for name in NAMES:
        if os.path.isfile(commit / name):  # unlike Path.is_file, takes what cannot be looked at for absent
            files[name] = commit / name
        elif os.path.isfile(path / name) and not os.path.exists(commit / f"{name}{_ABSENT}"):
            files[name] = path / name
    return files or {name: Path(f"{path}{name}") for name in NAMES if os.path.isfile(f"{path}{name}")}


def _nothing_at(path: Path) -> CheckpointError:
    """The error for a path without a checkpoint: says what is there instead, inside or beside it."""
    place = path if path.is_dir() else path.parent
    others = sorted(str(place / name) for name in _listed(place) if _files(place / name))
    hint = f"; valid choices: {', '.join(others)}" if others else f", and none in {str(place)!r}"
    return CheckpointError(f"there is no checkpoint at {str(path)!r}{hint}")


def _listed(folder: Path) -> list[str]:
    """Names in a folder; none where it cannot be looked into."""
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


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


def _save(folder: Path, states: dict[str, dict]) -> None:
    """Write every state into `folder`, down to the disk."""
    import torch  # here: it takes over a second, and looking a checkpoint up should not

    for name, state in states.items():
        with open(folder / name, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
    _sync(folder)


def _load(path: Path) -> dict:
    """Read one state file.

    Raises:
        CheckpointError: it cannot be opened, is damaged, or holds anything but a dict of plain values.
    """
    import torch

    try:
        file = open(path, "rb")
    except OSError as error:
        raise CheckpointError(f"cannot read {str(path)!r}: {error.strerror}") from error
    with file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's advice about a file that is about to be refused
        try:
            if zipfile.is_zipfile(file) and (part := zipfile.ZipFile(file).testzip()):
                raise zipfile.BadZipFile(f"checksum of {part}")  # torch itself takes altered weights without a word
            file.seek(0)
            state = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # damaged bytes make the unpickler raise nearly anything
            if code := re.search(r"GLOBAL ([\w.]+)", str(error)):
                raise CheckpointError(f"refused {str(path)!r}: it asks for {code[1]}") from error
            raise CheckpointError(f"{str(path)!r} is damaged or is no checkpoint file") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{str(path)!r} holds a {type(state).__name__}, not a state dict")
    return state


def _check_plain(value: object, where: str) -> None:
    """Hold a state to what `read` gives back, so that no unreadable checkpoint is ever written.

    Raises:
        TypeError: anything else, numpy's scalars included.
    """
    import torch

    if isinstance(value, dict):
        for key, item in value.items():
            _check_plain(item, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            _check_plain(item, f"{where}[{index}]")
    elif not isinstance(value, torch.Tensor) and type(value) not in (type(None), bool, int, float, str):
        raise TypeError(f"{where} is a {type(value).__name__}; a checkpoint holds tensors and plain Python values only")


@contextlib.contextmanager
def _locked(folder: Path, exclusive: bool) -> Iterator[None]:
    """Keep other processes from writing in `folder`, and if exclusive from reading in it."""
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


def _sync(folder: Path) -> None:
    """Bring the names in `folder` down to the disk."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
