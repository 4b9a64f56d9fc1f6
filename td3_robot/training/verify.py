"""Checks of everything in a run folder, without training or measuring anything."""

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from td3_robot import checkpoint
from td3_robot.checkpoint import MANIFEST, run_name
from td3_robot.checkpoint.provenance import find_differences, read_provenance
from td3_robot.checkpoint.resume_point import (
    LAST,
    as_checkpoint_errors,
    get_source_states,
    read_resume_point,
)
from td3_robot.checkpoint.summary import read_summary
from td3_robot.errors import CheckpointError, Td3RobotError
from td3_robot.loggers.base import get_steps
from td3_robot.loggers.csv import CSV_NAME, read_metrics
from td3_robot.td3.agent import TD3
from td3_robot.utils.console import get_command_line

GOOD = "ok"
MISSING = "-"
OTHER = "differs"
WRONG = "wrong"


class Finding(NamedTuple):
    """The result of one check.

    Attributes:
        what: the thing that was checked.
        state: GOOD, WRONG, OTHER where it is right and not as here, MISSING where there is nothing.
        text: what was found.
    """

    what: str
    state: str
    text: str


class _NothingToCheck(Exception):
    """There is nothing to check, which is not an error."""


class _Differs(Exception):
    """It is right, but not as here."""


def verify(path: Path, environment: Callable[[], tuple[int, int, dict[str, Any]]]) -> list[Finding]:
    """Check everything in a checkpoint folder.

    Args:
        path: the folder, or the older form, a prefix of files.
        environment: o_dim, a_dim and constants of what the checkpoint is to act in; may raise a
            `Td3RobotError`.
    """
    checks: dict[str, Callable[[], str]] = {
        "state files": lambda: _check_files(path),
        "networks": lambda: _check_networks(path),
        "environment": lambda: _check_environment(path, environment),
        "constants": lambda: _check_constants(path, environment),
        "metrics": lambda: _check_metrics(path),
        "summary": lambda: _check_summary(path),
        "resume point": lambda: _check_resume_point(path),
        "leftovers": lambda: _find_leftovers(path),
    }
    return [_run_check(what, check) for what, check in checks.items()]


def _run_check(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(what, GOOD, check())
    except _NothingToCheck as nothing:
        return Finding(what, MISSING, str(nothing))
    except _Differs as other:
        return Finding(what, OTHER, str(other))
    except Td3RobotError as error:
        return Finding(what, WRONG, str(error))


def _check_files(path: Path) -> str:
    found = checkpoint.load(path)
    summed = "SHA-256 as written" if found.metadata else f"no {MANIFEST}, so no SHA-256"
    tensors = sum(1 for _ in _iter_tensors(found.states))
    return f"{len(found.states)} files, {tensors} tensors; {summed}"


def _check_networks(path: Path) -> str:
    agent = TD3.from_checkpoint(path)
    action = agent.select_action(torch.zeros(1, agent.o_dim, dtype=torch.float32))
    if not action.isfinite().all():
        raise CheckpointError(f"checkpoint {path}: its action at the origin is not finite")
    count = sum(
        weight.numel()
        for name in ("actor", "Q1", "Q2")
        for weight in getattr(agent, name).parameters()
    )
    return (
        f"o_dim {agent.o_dim}, a_dim {agent.a_dim}; {count:,} weights, optimizers fit, all finite"
    )


def _check_environment(path: Path, environment: Callable[[], tuple[int, int, dict]]) -> str:
    o_dim, a_dim, _ = environment()
    TD3.from_checkpoint(path).require(o_dim, a_dim, f"checkpoint {path}")
    return "config.yaml is valid; observations and actions are as wide as the networks"


def _check_constants(path: Path, environment: Callable[[], tuple[int, int, dict]]) -> str:
    record = read_provenance(path) or read_provenance(path.parent)
    if not record:
        raise _NothingToCheck("no record of them")
    if changed := find_differences(record["constants"], environment()[2]):
        raise _Differs(f"trained with others: {', '.join(changed)}")
    return "those that it was trained with"


def _check_metrics(path: Path) -> str:
    if not (path / CSV_NAME).is_file():
        raise _NothingToCheck(f"no {CSV_NAME}")
    steps = [get_steps(row) for row in read_metrics(path)]
    if not steps:
        raise CheckpointError(f"{CSV_NAME} has no rows")
    if steps != sorted(set(steps)):
        raise CheckpointError(f"rows of {CSV_NAME} are doubled or out of order")
    return f"{len(steps)} rows, up to {steps[-1]} steps"


def _check_summary(path: Path) -> str:
    summary = read_summary(path)
    if summary is None:
        raise _NothingToCheck("no summary.json")
    counts: list[Any] = [summary.get("env_steps"), summary.get("gradient_steps")]
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        raise CheckpointError("summary.json does not count steps and updates")
    rows = read_metrics(path)
    end = "finished" if summary.get("finished") else "stopped"
    text = f"{end} after {counts[0]} env steps, {counts[1]} updates"
    if rows and get_steps(rows[-1]) > max(counts):
        raise _Differs(f"of an earlier session: {text}")
    if rows and summary.get("finished") and get_steps(rows[-1]) not in counts:
        raise CheckpointError(f"{text}, but {CSV_NAME} ends after {get_steps(rows[-1])}")
    return text


def _check_resume_point(path: Path) -> str:
    last = path / LAST
    if not last.is_dir():
        raise _NothingToCheck("none, so that it cannot be resumed")
    trainer = read_resume_point(path, None)[1]
    best = trainer["best"]
    if not isinstance(best, list | tuple):
        raise CheckpointError(f"{last}: trainer_state is not that of a run")
    with as_checkpoint_errors(path):
        sources = get_source_states(trainer)
        steps = sum(source.get("env_steps", 0) for source in sources)
    if not all(isinstance(score, int | float) and not math.isnan(score) for score in best):
        raise CheckpointError(f"{last}: the score of the best policy is no number")
    TD3.from_checkpoint(last)
    rows = list(_iter_tensors([source.get("replay") for source in sources]))
    if not all(tensor.isfinite().all() for tensor in rows):
        raise CheckpointError(f"{last}: the replay has a value that is NaN or infinite")
    replay = (
        f"replay of {sum(tensor.nbytes for tensor in rows) / 1e6:.1f} MB, all finite"
        if rows
        else "no replay"
    )
    return f"after {steps} env steps, {trainer['gradient_steps']} updates; {replay}"


def _find_leftovers(path: Path) -> str:
    if who := checkpoint.find_owner(path):
        raise _NothingToCheck(f"{who} is training it")
    inside = path.rglob(".*") if path.is_dir() else ()
    strays = [
        file.name
        for file in inside
        if re.fullmatch(r"\.(next|commit|.*\.new|[0-9]+-.*)", file.name)
    ]
    if strays:
        raise CheckpointError(
            f"a process that died left {', '.join(strays[:5])}; "
            f"{get_command_line('train', '--resume', run_name(path))} clears them away"
        )
    return "none"


def _iter_tensors(state: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested states."""
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for item in state.values() if isinstance(state, dict) else state:
            yield from _iter_tensors(item)


def print_findings(path: Path, findings: list[Finding]) -> None:
    """Print the findings as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=str(path), title_justify="left")
    for heading in ("what", "", "found"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        table.add_row(*finding)
    with (console := Console(highlight=False, markup=False)).capture() as text:
        console.print(table)
    print(text.get(), end="")  # rich would end the process at a closed pipe
