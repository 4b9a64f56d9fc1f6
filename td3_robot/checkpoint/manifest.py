"""The metadata of a checkpoint: a JSON file with the SHA-256 of each of its other files."""

import json
import os
from pathlib import Path

from td3_robot.errors import CheckpointError
from td3_robot.utils.json_file import read_json

MANIFEST = "checkpoint.json"
_FORMAT = 1


def write_manifest(path: Path, metadata: dict) -> None:
    """Write the metadata and flush them to the disk."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"format": _FORMAT, **metadata}, file, indent=2, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def read_manifest(path: Path | None) -> dict:
    """Read the metadata; those of an older checkpoint, which has no such file, are empty.

    Raises:
        CheckpointError: it cannot be read, is damaged, or is of a later version.
    """
    if path is None:
        return {}
    metadata = read_json(path, CheckpointError)
    if not isinstance(metadata, dict) or not isinstance(metadata.get("sha256"), dict):
        raise CheckpointError(
            f"{str(path)!r} is damaged: it does not give the SHA-256 of the files next to it"
        )
    if metadata.pop("format", None) != _FORMAT:
        raise CheckpointError(
            f"{str(path)!r} is of another version of td3_robot; this one reads format {_FORMAT}"
        )
    return metadata
