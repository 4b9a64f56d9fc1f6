"""The command that starts or resumes a run, for processes that supervise it."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from td3_robot.checkpoint import lock_run, run_name
from td3_robot.checkpoint.resume_point import LAST


def build_resume_command(run: Path, words: Sequence[str], begin: Sequence[str]) -> list[str]:
    """Return the command line of `train.py` that starts a run, or resumes it.

    A run that was stopped before its first resume point starts again.

    Args:
        run: its folder, whether it exists or not.
        words: of every session.
        begin: of the first, after them.

    Raises:
        ConfigError: another process has the run.
    """
    if (run / LAST).is_dir():
        return [*words, f"--resume={run}"]
    if run.is_dir():
        with lock_run(run):
            shutil.rmtree(run)
    return [*words, *begin, f"--run={run_name(run)}"]
