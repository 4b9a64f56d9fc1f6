"""A replay on disk in chunks that are written once, so that a save writes only new rows.

A chunk has a fixed number of time steps from a fixed place in the run, so that it stays the same
until the ring buffer overwrites it. Its file is named by the SHA-256 of its content and never
changed, so that a resume point always finds what it named.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from td3_robot.checkpoint.store import sync
from td3_robot.errors import CheckpointError, ConfigError
from td3_robot.utils.atomic_files import replace_file

if TYPE_CHECKING:
    from torch import Tensor

CHUNKS = "replay"  # in the run folder, beside the resume point
CHUNK_BYTES = 1 << 23  # [bytes] of one; what fills none stays in the resume point


def save_chunks(folder: Path, source: dict[str, Any]) -> dict[str, Any]:
    """Write the replay of a source's state, or those of all processes, in chunks.

    Args:
        folder: the run folder.
        source: as `BatchSource.state_dict` gives it.

    Returns:
        The state with names of chunks instead of their rows.

    Raises:
        CheckpointError: a chunk cannot be written.
    """
    import torch  # here: it takes over a second, and looking a checkpoint up should not

    place = folder / CHUNKS

    def put(replay: dict[str, Any]) -> dict[str, Any]:
        rows = replay.get("rows")
        first = replay.get("first")
        if first is None or not isinstance(rows, torch.Tensor) or rows.dtype != torch.float32:
            return replay  # of a source of the user's own
        slots = max(1, CHUNK_BYTES // (4 * rows.shape[1:].numel()))
        begin = min(-first % slots, len(rows))
        end = begin + (len(rows) - begin) // slots * slots
        pieces = (
            [_write(place, piece) for piece in rows[begin:end].split(slots)] if end > begin else []
        )
        return {
            **replay,
            "rows": torch.cat((rows[:begin], rows[end:])),
            "begin": begin,
            "pieces": pieces,
        }

    try:
        changed = _map_replays(source, put)
        for written in (place, folder) if place.is_dir() else ():
            sync(written)
    except ConfigError as error:
        raise CheckpointError(str(error)) from error.__cause__
    except OSError as error:
        raise CheckpointError(f"cannot write in {str(place)!r}: {error.strerror}") from error
    return changed


def load_chunks(folder: Path, source: Any) -> Any:
    """Load the rows of a state that `save_chunks` returned.

    Raises:
        CheckpointError: a chunk is missing or damaged.
    """
    import torch

    def take(replay: dict[str, Any]) -> dict[str, Any]:
        if "pieces" not in replay:  # of a source of the user's own, or of before
            return replay
        rest = {name: replay[name] for name in replay if name not in ("pieces", "begin")}
        rows = replay["rows"]
        begin = replay["begin"]
        pieces = [_read(folder / CHUNKS, name, rows) for name in replay["pieces"]]
        return {**rest, "rows": torch.cat((rows[:begin], *pieces, rows[begin:]))}

    return _map_replays(source, take)


def prune_chunks(folder: Path, names: Collection[str]) -> None:
    """Remove all chunks but these, and incomplete files of a process that died."""
    with contextlib.suppress(OSError):  # they are tried again at the next save
        for path in (folder / CHUNKS).iterdir():
            if path.name not in names:
                path.unlink()
        if not names:
            (folder / CHUNKS).rmdir()


def list_chunks(source: Any) -> set[str]:
    """Return the names of the chunks of a state on disk."""
    names: set[str] = set()
    _map_replays(source, lambda replay: names.update(replay.get("pieces", ())) or replay)
    return names


def _map_replays(source: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Apply a function to the replay in a source's state, or to that of each process."""
    if not isinstance(source, dict):
        return source
    if isinstance(ranks := source.get("ranks"), list):
        changed = [
            rank and {**rank, "source": _map_replays(rank["source"], change)} for rank in ranks
        ]
        return {**source, "ranks": changed}
    replay = source.get("replay")
    return {**source, "replay": change(replay)} if isinstance(replay, dict) else source


def _write(folder: Path, piece: "Tensor") -> str:
    """Write a chunk to the disk, unless it exists; return its name."""
    content = piece.cpu().contiguous().numpy().tobytes()
    name = hashlib.sha256(content).hexdigest()
    if not os.path.isfile(folder / name):
        folder.mkdir(exist_ok=True)
        with replace_file(folder / name) as new:
            new.write_bytes(content)
    return name


def _read(folder: Path, name: str, like: "Tensor") -> "Tensor":
    """Read the time steps of a chunk, which have the width of those in `like`."""
    import torch

    if not re.fullmatch("[0-9a-f]{64}", name):
        raise CheckpointError(f"{name!r} is no name of a part of the replay")
    path = folder / name
    most = max(CHUNK_BYTES, 4 * like.shape[1:].numel())
    try:
        with open(path, "rb") as file:
            content = file.read() if os.fstat(file.fileno()).st_size <= most else b""
    except OSError as error:
        raise CheckpointError(f"cannot read {str(path)!r}: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != name:
        raise CheckpointError(
            f"{str(path)!r} is damaged: it is not the file that was written, by its SHA-256"
        )
    return torch.from_numpy(np.frombuffer(content, np.float32).copy()).reshape(-1, *like.shape[1:])
