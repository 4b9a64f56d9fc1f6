"""The outcome of a run, `summary.json`."""

from pathlib import Path
from typing import Any

from td3_robot.errors import CheckpointError
from td3_robot.utils.json_file import read_json, write_json

SUMMARY_NAME = "summary.json"


def write_summary(folder: Path, outcome: dict[str, object]) -> None:
    """Write the outcome into a run folder."""
    write_json(folder / SUMMARY_NAME, outcome)


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary in a run folder; None where there is none.

    Raises:
        CheckpointError: it is damaged.
    """
    path = folder / SUMMARY_NAME
    told = read_json(path, CheckpointError) if path.is_file() else None
    if told is not None and not isinstance(told, dict):
        raise CheckpointError(f"{str(path)!r} is damaged: it is a {type(told).__name__}")
    return told


def is_summarised(folder: Path, env_steps: int, gradient_steps: int) -> bool:
    """Whether the summary in a run folder says that the run has finished, and that it did so at
    these counts.
    """
    try:
        told = read_summary(folder) or {}
    except CheckpointError:
        return False
    return told.get("finished") is True and (told.get("env_steps"), told.get("gradient_steps")) == (
        env_steps,
        gradient_steps,
    )
