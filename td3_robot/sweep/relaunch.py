"""The command that starts or resumes a run, and another run in its place, for processes that
supervise it.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from td3_robot.checkpoint import RUNS, lock_run, run_name
from td3_robot.checkpoint.resume_point import LAST
from td3_robot.errors import ConfigError


def build_resume_command(run: Path, words: Sequence[str], begin: Sequence[str]) -> list[str]:
    """Return the command line of `train.py` that starts a run, or resumes it.

    A run that was stopped before its first resume point starts again.

    Args:
        run: its folder, whether it exists or not.
        words: of every session.
        begin: of the first, after them.

    Raises:
        ConfigError: another process has the run, or it is to begin in another place than `RUNS`.
    """
    if (run / LAST).is_dir():
        return [*words, f"--resume={run}"]
    require_place(run)
    if run.is_dir():
        with lock_run(run):
            shutil.rmtree(run)
    return [*words, *begin, f"--run={run_name(run)}"]


def require_place(run: Path) -> None:
    """Check that a run of a folder of runs can begin where it is, unless it can be resumed.

    Raises:
        ConfigError: the folder was moved out of `RUNS`.
    """
    folder = run.parent
    place = RUNS / folder.name
    if not (run / LAST).is_dir() and os.path.abspath(folder) != os.path.abspath(place):
        raise ConfigError(
            f"{run.name} of {str(folder)!r} has nothing to resume, and a run begins in {RUNS} "
            f"alone: move the folder to {str(place)!r}"
        )


def replace_run(run: Path, other: Path, ignored: str) -> None:
    """Replace a run by a copy of another one, but for files of the name `ignored`.

    The copy is made beside it first: where that fails, as on a full disk, the run stays.

    Raises:
        OSError: it cannot be copied.
    """
    new = run.parent / ".ray" / f"{run.name}.new"  # removed with all that is of one session
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(other, new, ignore=shutil.ignore_patterns(ignored))
    shutil.rmtree(run, ignore_errors=True)
    new.rename(run)
