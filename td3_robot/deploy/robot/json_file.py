"""Read the JSON files of robots and obstacles, which people write."""

import json
from pathlib import Path
from typing import Any

from td3_robot.deploy.errors import DeployError


def read_json(path: str | Path) -> Any:
    """Read a JSON file, in which no object has a key twice.

    Raises:
        DeployError: a key is there twice, of which json would take the last.
        OSError, ValueError, RecursionError: it cannot be read, or is no JSON.
    """
    return json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=_make_object)


def _make_object(pairs: list[tuple[str, object]]) -> dict:
    """Make a JSON object, in which every key is there once."""
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise DeployError(f"key {max(keys, key=keys.count)!r} is there twice")
    return made
