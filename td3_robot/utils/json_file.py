"""Read and write JSON files, without NaN and infinity."""

import contextlib
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from td3_robot.errors import ConfigError, Td3RobotError
from td3_robot.utils.atomic_files import check_writable, write_text

_MOST = 10_000_000  # bytes of a file


def write_json(path: Path, results: dict[str, object]) -> None:
    """Write results as JSON atomically; NaN and infinity become null.

    Raises:
        ConfigError: the file cannot be written.
    """
    write_text(path, json.dumps(replace_non_finite(results), indent=2, allow_nan=False) + "\n")


def check_results(path: Path | None, keys: Iterable[str]) -> None:
    """Check that results can be written as JSON, before anything is computed; None is no file.

    Args:
        path: of the file. One that is there is replaced only if it is empty or of earlier results.
        keys: that results have, whoever wrote them.

    Raises:
        ConfigError: it cannot be written, or another file would be lost.
    """
    check_writable(path)
    if path is None or not os.path.isfile(path) or not path.stat().st_size:
        return
    with contextlib.suppress(ConfigError):
        earlier = read_json(path, ConfigError)
        if isinstance(earlier, dict) and earlier.keys() >= set(keys):
            return
    raise ConfigError(
        f"cannot write {str(path)!r}: there is a file that holds no earlier results; choose a name "
        "that is free"
    )


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
