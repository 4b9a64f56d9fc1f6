"""Figures of each episode of an evaluation: motion, clearance and the task's own measures."""

import torch
from torch import Tensor

from envs.evaluation.motion import compute_arm_figures, select_last
from envs.simulation.engine import SimModel
from envs.tasks.measures import Measure
from envs.tasks.task import Task

_EVERY_TASK = ("success", "success_with_contact", "position_error", "q", "qd", "tcp")
_CLEARANCE = "clearance"  # of arms whose capsules are known
_UNSTABLE = "unstable"  # of the MuJoCo engine


def measure(
    task: Task, model: SimModel, info: dict[str, Tensor], alive: Tensor
) -> dict[str, Tensor]:
    """Compute the figures of each of B episodes; docs/reference/metrics.md defines them.

    Args:
        task: whose `measures` are among them.
        info: `success` (T, B) bool, and `success_with_contact` where it is another,
            `position_error` (T, B) [m], `q` and `qd` (T, B, n), `tcp` (T, B, 3) [m] after each
            control step, as `ArmEnv.step` gives them; `clearance` (T, B) [m] of arms whose capsules
            are known; `unstable` (T, B), failures of the physics so far, of the MuJoCo engine; and
            the series that the task's measures use, in SI units.
        alive: (T, B) bool, whether the step belongs to the episode; true from the first step to the
            last.

    Returns:
        The figures of `compute_arm_figures` and `compute_task_figures`, of arms with capsules
        `minimum_clearance_m` (B,), and of the MuJoCo engine `unstable` (B,), on the CPU.
    """
    wanted = {*_EVERY_TASK, _CLEARANCE, _UNSTABLE, *(measure.of for measure in task.measures)}
    info = {"success_with_contact": info["success"]} | info
    info = {name: info[name].cpu().double() for name in wanted & info.keys()}
    alive = alive.cpu()
    figures = compute_arm_figures(model, info, alive) | compute_task_figures(task, info, alive)
    if _CLEARANCE in info:
        figures["minimum_clearance_m"] = info[_CLEARANCE].masked_fill(~alive, torch.inf).amin(0)
    if _UNSTABLE in info:
        figures[_UNSTABLE] = select_last(info[_UNSTABLE], alive)
    return figures


def compute_task_figures(task: Task, info: dict[str, Tensor], alive: Tensor) -> dict[str, Tensor]:
    """Compute the task's own measures by name, in their units: (B,), or (B, T) of all steps that
    count.
    """
    return {
        one.name: one.to_result_unit(_reduce(one, task, info[one.of], alive))
        for one in task.measures
    }


def _reduce(measure: Measure, task: Task, series: Tensor, alive: Tensor) -> Tensor:
    """Reduce a series (T, B) as a measure does: (B,), or (B, T) with NaN for steps that do not
    count.
    """
    if measure.reduction == "last":
        return select_last(series, alive)
    if measure.reduction == "least":
        return series.masked_fill(~alive, torch.inf).amin(0)
    if measure.reduction == "most":
        return series.masked_fill(~alive, -torch.inf).amax(0)
    if measure.reduction == "steps":
        return series.masked_fill(~find_counted_steps(task, alive), torch.nan).T
    anywhere = (series * alive).amax(0)
    return anywhere if measure.reduction == "any" else 1.0 - anywhere


def find_counted_steps(task: Task, alive: Tensor) -> Tensor:
    """Find the steps (T, B) bool whose errors count, those after the task's `settle_steps`."""
    return alive & (torch.arange(len(alive), device=alive.device) >= task.settle_steps)[:, None]


def join_figures(rounds: list[dict[str, Tensor]], episodes: int) -> dict[str, Tensor]:
    """Concatenate the figures of several rounds, cut to the first `episodes`."""
    return {name: torch.cat([part[name] for part in rounds])[:episodes] for name in rounds[0]}
