"""TensorBoard events of a run."""

import errno
import functools
import os
import re
import struct
import time
from pathlib import Path

from td3_robot.loggers.base import get_steps


class TensorBoardLog:
    """Tracker that writes TensorBoard events; view with `tensorboard --logdir checkpoints`.

    Each evaluation is on the disk when `log` returns; a folder that was deleted is made again.

    Args:
        folder: the run folder.
        steps: TensorBoard drops earlier events of later steps: a resumed run logs them again.
    """

    def __init__(self, folder: Path, steps: int = 0):
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]

        place = folder / "tensorboard"
        # TensorBoard reads files by their names: after earlier ones, though the clock was set back
        began = max(time.time(), _find_latest(place) + 1e-3)
        self._path = place / f"events.out.tfevents.{began:.6f}.{os.getpid()}"
        # events that are not written yet
        self._pending = [Event(wall_time=time.time(), file_version="brain.Event:2")]
        if self._path.parent.is_dir():  # of earlier sessions
            start = SessionLog(status=SessionLog.START)
            self._pending.append(Event(wall_time=time.time(), step=steps + 1, session_log=start))

    def log(self, metrics: dict[str, float]) -> None:
        """Write every metric as a scalar over the steps, after any that are still pending."""
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        scalars = [
            Summary.Value(tag=name, simple_value=value)
            for name, value in metrics.items()
            if name != "env_steps"
        ]
        summary = Summary(value=scalars)
        self._pending.append(Event(wall_time=time.time(), step=get_steps(metrics), summary=summary))
        self._write()

    def _write(self) -> None:
        """Append all pending events or none: a torn record would hide all that follow."""
        records = b"".join(make_record(event.SerializeToString()) for event in self._pending)
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("ab", buffering=0) as file:
            whole = file.tell()
            if file.write(records) < len(records):
                file.truncate(whole)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._pending = []

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _find_latest(folder: Path) -> float:
    """Return the latest time in the names of event files; 0 without any."""
    names = (path.name for path in folder.glob("events.out.tfevents.*"))
    found = (
        re.match(r"events\.out\.tfevents\.([0-9]{1,10}(\.[0-9]{6})?)\.", name) for name in names
    )
    return max((float(match[1]) for match in found if match), default=0.0)


def make_record(data: bytes) -> bytes:
    """Make a TFRecord: length and data, each with its checksum.

    The format is in TensorFlow's tensorflow/core/lib/io/record_writer.h. TensorBoard's own writer
    takes a fifth of a second to import.
    """
    length = struct.pack("<Q", len(data))
    return length + _compute_checksum(length) + data + _compute_checksum(data)


def _compute_checksum(data: bytes) -> bytes:
    """Compute the masked CRC-32C of a TFRecord (RFC 3720, appendix B.4, rotated and shifted)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _crc_table()[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@functools.cache
def _crc_table() -> list[int]:
    """Compute the CRC-32C of every byte, by the reversed polynomial."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table
