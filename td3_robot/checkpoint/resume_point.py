"""The resume point of a run, in the folder `last` of the run folder."""

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from td3_robot import checkpoint
from td3_robot.checkpoint.run_folders import run_name
from td3_robot.checkpoint.store import find_files
from td3_robot.errors import CheckpointError, ConfigError
from td3_robot.utils.console import get_command_line

LAST = "last"
_ENTRIES = frozenset(
    ("gradient_steps", "best", "solved_at_s", "wall_s", "target_generator", "source")
)


def read_resume_point(folder: Path, processes: int | None = 1) -> tuple[dict[str, dict], dict]:
    """Read the states of networks and optimizers, and that of the trainer.

    Args:
        folder: the run folder.
        processes: number of processes that train the run; None for any.

    Raises:
        CheckpointError: there is no resume point, or it is damaged.
        ConfigError: it is of another number of processes.
    """
    if not (folder / LAST).is_dir():
        if not find_files(folder):
            raise CheckpointError(
                f"run {folder.name!r} ended before its first checkpoint, so there is nothing to "
                f"resume; remove {str(folder)!r} and start it again"
            )
        raise CheckpointError(
            f"run {folder.name!r} has no resume point {folder / LAST}, which is written every "
            f"save_every seconds; train a new run from its policy: "
            f"--start_from {shlex.quote(run_name(folder))}"
        )
    states, state = _read_newest(folder)
    then = len(_get_ranks(state) or [state])
    if processes is not None and then != processes:
        words = "--resume", run_name(folder)
        how, by = get_command_line("train", *words), "one process"
        if then > 1:
            how = f"torchrun --nproc_per_node {then} -- train.py {shlex.join(words)}"
            by = f"{then} processes"
        raise ConfigError(
            f"run {folder.name!r} is trained by {by}, not {processes}; continue with {how}, "
            "and with any --nnodes, --plugins and --env that it was started with"
        )
    return states, state


def get_source_states(state: dict) -> list[dict[str, Any]]:
    """Return the state of the source of each process in a trainer's state.

    Raises:
        CheckpointError: there are none.
    """
    ranks = _get_ranks(state)
    found: list[Any] = (
        [state["source"]] if ranks is None else [(rank or {}).get("source") for rank in ranks]
    )
    if not all(isinstance(source, dict) for source in found):
        raise CheckpointError("trainer_state does not have the state of a source")
    return found


def _get_ranks(state: dict) -> list[Any] | None:
    """Return the states of several processes in a trainer's state; None for a single process."""
    ranks = state["source"].get("ranks") if isinstance(state["source"], dict) else None
    return ranks if isinstance(ranks, list) else None


def load_resume_point(folder: Path, processes: int = 1) -> tuple[dict[str, dict], dict]:
    """Read the resume point to continue the run; chunks of an incomplete save are removed."""
    found = read_resume_point(folder, processes)
    _clear_chunks(folder)
    return found


def _read_newest(folder: Path) -> tuple[dict[str, dict], dict]:
    """Read the states with the rows of the replay; again if another process saves meanwhile."""
    states = checkpoint.read(folder / LAST)
    state = states.get("trainer_state", {})
    if missing := sorted(_ENTRIES - state.keys()):
        raise CheckpointError(f"{folder / LAST}: trainer_state lacks {', '.join(missing)}")
    with as_checkpoint_errors(folder):
        try:
            return states, {**state, "source": checkpoint.load_chunks(folder, state["source"])}
        except CheckpointError:
            if checkpoint.list_chunks(state["source"]) == _list_named_chunks(folder):
                raise
    return _read_newest(folder)


def _list_named_chunks(folder: Path) -> set[str]:
    """Return the names of the chunks of the resume point on disk, if there is one."""
    if not (folder / LAST).is_dir():
        return set()
    state = checkpoint.read(folder / LAST, ("trainer_state",)).get("trainer_state", {})
    return checkpoint.list_chunks(state.get("source"))


def _clear_chunks(folder: Path) -> None:
    """Remove chunks that the resume point on disk does not name."""
    with contextlib.suppress(CheckpointError):
        checkpoint.prune_chunks(folder, _list_named_chunks(folder))


def write_resume_point(folder: Path, states: dict[str, dict], metadata: dict) -> None:
    """Write the states of networks, optimizers and trainer, atomically.

    Only rows of the replay that are new since the last save are written.

    Raises:
        CheckpointError: it cannot be written; the previous one is unchanged.
    """
    trainer = states["trainer_state"]
    try:
        trainer = {**trainer, "source": checkpoint.save_chunks(folder, trainer["source"])}
        checkpoint.write(folder / LAST, {**states, "trainer_state": trainer}, metadata)
    except CheckpointError:
        _clear_chunks(folder)  # what is new would go on filling a disk that is full
        raise
    checkpoint.prune_chunks(folder, checkpoint.list_chunks(trainer["source"]))


@contextlib.contextmanager
def as_checkpoint_errors(folder: Path) -> Iterator[None]:
    """Turn errors that malformed entries of a resume point cause into a CheckpointError.

    Raises:
        CheckpointError: they do not fit the run.
    """
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise CheckpointError(
            f"{folder / LAST}: trainer_state does not fit this run: {reason}"
        ) from error
