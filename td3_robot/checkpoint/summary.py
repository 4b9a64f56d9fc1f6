"""The summary of a run, `summary.json`."""

from pathlib import Path
from typing import Any

from td3_robot.errors import CheckpointError
from td3_robot.utils.json_file import read_json, write_json

SUMMARY_NAME = "summary.json"


def write_summary(folder: Path, outcome: dict[str, object]) -> None:
    """Write the summary into a run folder."""
    write_json(folder / SUMMARY_NAME, outcome)


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Read the summary in a run folder; None without one.

    Raises:
        CheckpointError: it is damaged.
    """
    path = folder / SUMMARY_NAME
    summary = read_json(path, CheckpointError) if path.is_file() else None
    if summary is not None and not isinstance(summary, dict):
        raise CheckpointError(f"{str(path)!r} is damaged: it is a {type(summary).__name__}")
    return summary


def is_summarised(folder: Path, env_steps: int, gradient_steps: int) -> bool:
    """Return whether the run finished, by the summary in its folder, at these counts."""
    try:
        summary = read_summary(folder) or {}
    except CheckpointError:
        return False
    return summary.get("finished") is True and (
        summary.get("env_steps"),
        summary.get("gradient_steps"),
    ) == (env_steps, gradient_steps)
