"""Failed episodes and the known reasons."""

from dataclasses import dataclass

import torch

from envs.evaluation.motion import LIMIT_MARGIN
from envs.evaluation.report.errors import Error, list_errors
from envs.evaluation.report.trajectories import Trajectories
from envs.simulation.engine import SimModel
from envs.tasks.measures import Measure
from envs.tasks.task import Task


@dataclass(frozen=True)
class Failure:
    """An episode whose last step was no success.

    Attributes:
        episode: its number, from 0.
        errors: `Error.compute_finals` of each of `list_errors`, in the unit shown.
        why: the known reasons, in words.
    """

    episode: int
    errors: tuple[float, ...]
    why: str


def find_failures(task: Task, model: SimModel, played: Trajectories, most: int) -> list[Failure]:
    """Find the failed episodes in order, at most `most` of them."""
    errors = list_errors(task)
    finals = [error.compute_finals(played) for error in errors]
    return [
        Failure(
            episode,
            tuple(values[episode].item() for values in finals),
            "; ".join(_list_reasons(errors, model, one)),
        )
        for episode in played.failed.tolist()[:most]
        for one in [played.select(episode)]
    ]


def _list_reasons(errors: list[Error], model: SimModel, played: Trajectories) -> list[str]:
    """List the known reasons for one failed episode."""
    own = {name: values[:, 0] for name, values in played.series.items()}  # (K, ...)
    measures = errors[0].task.measures
    reached = own["success_with_contact"]
    touched = own.get("touched", torch.zeros_like(reached))  # unknown of a robot without capsules
    reasons = [f"contact {_describe_first(touched, model)}"] if touched.any() else []
    reasons += [words for measure in measures for words in _describe_events(measure, own, model)]
    spoilt = touched.any() or any(
        measure.reduction == "none" and own[measure.of].any() for measure in measures
    )
    overall = [error for error in errors if error.measure.reduction == "steps"]
    if overall:  # success is judged by the mean over steps
        reasons += [
            f"{error.final_name} {_format_value(error, error.compute_finals(played))}"
            for error in overall
        ]
    elif reached.any():
        left = f"was at the goal, left it after {_format_time(int(reached.nonzero().max()), model)}"
        reasons += [] if reached[-1] else [left]
    elif not spoilt:  # after that nothing counts as reached
        nearest = ", ".join(
            _format_value(error, error.compute_series(played).min())
            for error in errors
            if error.measure.within  # a depth, say, is no distance from anything
        )
        reasons.append(f"never reached, nearest {nearest}" if nearest else "never reached")
    lower, upper = model.qlim.cpu()
    room = torch.minimum(own["q"][-1] - lower, upper - own["q"][-1])
    if joints := [str(int(joint) + 1) for joint in (room <= LIMIT_MARGIN).nonzero()[:, 0]]:
        reasons.append(f"ended at a limit of joint {', '.join(joints)}")
    return reasons


def _describe_events(measure: Measure, own: dict[str, torch.Tensor], model: SimModel) -> list[str]:
    """Describe a wanted event that did not happen or last, or an unwanted one that did."""
    if measure.reduction not in ("any", "none"):
        return []
    flags = own[measure.of] > 0
    if not flags.any():
        return [f"never {measure.of}"] if measure.reduction == "any" else []
    first = f"{measure.of} {_describe_first(flags, model)}"
    if measure.reduction == "none":
        return [first]
    return [] if flags[-1] else [f"{first}, not at the end"]


def _describe_first(flags: torch.Tensor, model: SimModel) -> str:
    return f"after {_format_time(int(flags.nonzero().min()), model)}"


def _format_value(error: Error, value: torch.Tensor) -> str:
    return f"{value.item():.1f} {error.measure.unit}"


def _format_time(step: int, model: SimModel) -> str:
    """Format the time after a step; steps count from 0."""
    return f"{(step + 1) * model.dt:.2f} s"
