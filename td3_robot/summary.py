"""The outcome of a run, `summary.json`."""

import json
from pathlib import Path

from td3_robot.tracking import write_json

SUMMARY_NAME = "summary.json"


def write_summary(folder: Path, outcome: dict[str, object]) -> None:
    """Write the outcome into a run folder."""
    write_json(folder / SUMMARY_NAME, outcome)


def is_summarised(folder: Path, env_steps: int, gradient_steps: int) -> bool:
    """Whether the summary in a run folder says that the run has finished, and that it did so at these counts."""
    try:
        told = json.loads((folder / SUMMARY_NAME).read_text(encoding="utf-8"))
        return bool(told["finished"]) and (told["env_steps"], told["gradient_steps"]) == (env_steps, gradient_steps)
    except (OSError, ValueError, LookupError, TypeError):
        return False
