"""Where a run can be taken up again: the folder `last` in the run folder, which itself holds the best policy."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from td3_robot import checkpoint
from td3_robot.errors import CheckpointError, ConfigError

LAST = "last"
_ENTRIES = frozenset(("gradient_steps", "best", "solved_at_s", "wall_s", "target_generator", "source"))


def read_resume_point(folder: Path, processes: int = 1) -> tuple[dict[str, dict], dict]:
    """The states of networks and optimizers, and that of the trainer.

    Raises:
        CheckpointError: there is no resume point, or it is damaged.
        ConfigError: it is of another number of processes.
    """
    if not (folder / LAST).is_dir():
        raise CheckpointError(f"run {folder.name!r} has no resume point: {folder / LAST} does not exist")
    states = checkpoint.read(folder / LAST)
    state = states.get("trainer_state", {})
    if missing := sorted(_ENTRIES - state.keys()):
        raise CheckpointError(f"{folder / LAST}: trainer_state lacks {', '.join(missing)}")
    with taking(folder):
        state = {**state, "source": checkpoint.take_rows(folder, state["source"])}
    source = state["source"]
    then = len(source["ranks"]) if isinstance(source, dict) and isinstance(source.get("ranks"), list) else 1
    if then != processes:
        how = f"torchrun --nproc_per_node {then} -- train.py" if then > 1 else "python train.py"
        raise ConfigError(f"run {folder.name!r} is trained by {then} processes, not {processes}; go on with {how}")
    return states, state


def write_resume_point(folder: Path, states: dict[str, dict], about: dict) -> None:
    """Write the states of networks, optimizers and trainer; killed at any moment, the old one is there or the new.

    Of the replay only the rows that are new since the last time are written.

    Raises:
        CheckpointError: it cannot be written; the former one is untouched.
    """
    trainer = states["trainer_state"]
    try:
        trainer = {**trainer, "source": checkpoint.put_rows(folder, trainer["source"])}
        checkpoint.write(folder / LAST, {**states, "trainer_state": trainer}, about)
    except CheckpointError:
        with contextlib.suppress(CheckpointError):  # what is new would go on filling a disk that is full
            _keep_rows(folder, checkpoint.read(folder / LAST, ("trainer_state",)))
        raise
    _keep_rows(folder, {"trainer_state": trainer})


def _keep_rows(folder: Path, states: dict[str, dict]) -> None:
    """Remove the rows of other resume points than that of these states."""
    checkpoint.keep_rows(folder, checkpoint.names_of_rows(states.get("trainer_state", {}).get("source")))


@contextlib.contextmanager
def taking(folder: Path) -> Iterator[None]:
    """Whatever the entries of a resume point, which may be a stranger's, make go wrong is one line.

    Raises:
        CheckpointError: they do not fit the run.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:100]
        raise CheckpointError(f"{folder / LAST}: trainer_state does not fit this run: {reason}") from error
