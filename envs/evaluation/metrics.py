"""What an evaluation measures of each episode: how the arm moved, what it kept clear of, and what
its task asks for.
"""

import torch
from torch import Tensor

from envs.evaluation.motion import arm_figures, last
from envs.simulation.engine import SimModel
from envs.tasks.measures import Measure
from envs.tasks.task import Task

_EVERY_TASK = ("success", "success_with_contact", "position_error", "q", "qd", "tcp")
_CLEARANCE = "clearance"  # of arms whose capsules are known


def measure(
    task: Task, model: SimModel, info: dict[str, Tensor], alive: Tensor
) -> dict[str, Tensor]:
    """Figures of each of B episodes; docs/evaluation.md defines them for the reader of the table.

    Args:
        task: whose `measures` are among them.
        info: `success` (T, B) bool, and `success_with_contact` where it is another,
            `position_error` (T, B) [m], `q` and `qd` (T, B, n), `tcp` (T, B, 3) [m] after each
            control step, as `ArmEnv.step` gives them; `clearance` (T, B) [m] of arms whose capsules
            are known; and what the task's measures are made of, in SI units.
        alive: (T, B) bool, whether the step belongs to the episode; true from the first step to the
            last.

    Returns:
        What `arm_figures` gives, `task_figures`, and where it is known `minimum_clearance_m` (B,),
        on the CPU.
    """
    wanted = {*_EVERY_TASK, _CLEARANCE, *(measure.of for measure in task.measures)}
    info = {"success_with_contact": info["success"]} | info
    info = {name: info[name].cpu().double() for name in wanted & info.keys()}
    alive = alive.cpu()
    figures = arm_figures(model, info, alive) | task_figures(task, info, alive)
    if _CLEARANCE in info:
        figures["minimum_clearance_m"] = info[_CLEARANCE].masked_fill(~alive, torch.inf).amin(0)
    return figures


def task_figures(task: Task, info: dict[str, Tensor], alive: Tensor) -> dict[str, Tensor]:
    """The task's own measures by their names, in the units of those: (B,), or (B, T) of all steps
    that count.
    """
    return {
        one.name: one.in_results(_reduced(one, task, info[one.of], alive)) for one in task.measures
    }


def _reduced(measure: Measure, task: Task, series: Tensor, alive: Tensor) -> Tensor:
    """What a measure makes of a series (T, B): (B,), or (B, T) with NaN for steps that do not
    count.
    """
    if measure.reduction == "last":
        return last(series, alive)
    if measure.reduction == "least":
        return series.masked_fill(~alive, torch.inf).amin(0)
    if measure.reduction == "steps":
        return series.masked_fill(~counted(task, alive), torch.nan).T
    anywhere = (series * alive).amax(0)
    return anywhere if measure.reduction == "any" else 1.0 - anywhere


def counted(task: Task, alive: Tensor) -> Tensor:
    """(T, B) bool: the steps whose errors count, those after the task's `settle_steps`."""
    return alive & (torch.arange(len(alive), device=alive.device) >= task.settle_steps)[:, None]


def join(rounds: list[dict[str, Tensor]], episodes: int) -> dict[str, Tensor]:
    """What `measure` gave of several rounds, as of one; cut to the first `episodes`."""
    return {name: torch.cat([part[name] for part in rounds])[:episodes] for name in rounds[0]}
