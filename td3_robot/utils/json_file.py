"""Read and write JSON files, without NaN and infinity."""

import json
import math
from pathlib import Path
from typing import Any

from td3_robot.errors import Td3RobotError
from td3_robot.utils.atomic_files import write_text

_MOST = 10_000_000  # bytes of a file


def write_json(path: Path, results: dict[str, object]) -> None:
    """Write results as JSON atomically; NaN and infinity become null.

    Raises:
        ConfigError: the file cannot be written.
    """
    write_text(path, json.dumps(replace_non_finite(results), indent=2, allow_nan=False) + "\n")


def replace_non_finite(value: Any) -> Any:
    """Return nested results with None for every number that is NaN or infinite."""
    if isinstance(value, dict):
        return {name: replace_non_finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path, error: type[Td3RobotError]) -> Any:
    """Read a JSON file.

    Raises:
        error: it cannot be read, or is no JSON.
    """
    try:
        with open(path, "rb") as file:
            return json.loads(file.read(_MOST), parse_constant=_refuse)
    except OSError as cause:
        raise error(f"cannot read {str(path)!r}: {cause.strerror}") from cause
    except (ValueError, RecursionError) as cause:
        raise error(f"{str(path)!r} is damaged: it is no JSON") from cause


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
