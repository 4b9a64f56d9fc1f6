"""How a run that other processes look after is begun, or gone on with after whatever ended it."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from td3_robot.checkpoint import lock_run, run_name
from td3_robot.checkpoint.resume_point import LAST


def resume_command(run: Path, words: Sequence[str], begin: Sequence[str]) -> list[str]:
    """The command line of `train.py` for a run: its own words and, as later flags win, what the run
    needs.

    What was stopped before its first resume point begins anew.

    Args:
        run: its folder, whether it exists or not.
        words: of every sitting.
        begin: of the first.

    Raises:
        ConfigError: another process has the run.
    """
    if (run / LAST).is_dir():
        return [*words, f"--resume={run}"]
    if run.is_dir():
        with lock_run(run):
            shutil.rmtree(run)
    return [*words, *begin, f"--run={run_name(run)}"]
