"""What an evaluation measures of each episode: how the arm moved, what it kept clear of, and what its task asks for."""

import torch
from torch import Tensor

from envs.collision import CollisionModel, clearance, known_collision
from envs.evaluation.motion import arm_figures, last
from envs.simulation.engine import SimModel
from envs.tasks.measures import Measure
from envs.tasks.task import Task
from envs.world import World
from td3_robot.errors import need

_EVERY_TASK = ("success", "position_error", "q", "qd", "tcp")
_CLEARANCE = "clearance"  # of tasks that know what is around the arm


def measure(
    task: Task, model: SimModel, info: dict[str, Tensor], alive: Tensor, collision: CollisionModel | None = None
) -> dict[str, Tensor]:
    """Figures of each of B episodes; docs/evaluation.md defines them for the reader of the table.

    Args:
        task: whose `measures` are among them.
        info: `success` (T, B) bool, `position_error` (T, B) [m], `q` and `qd` (T, B, n), `tcp` (T, B, 3) [m] after
            each control step, as `ArmEnv.step` gives them; and what the task's measures are made of, in SI units.
        alive: (T, B) bool, whether the step belongs to the episode; true from the first step to the last.
        collision: the arm's capsules, where it has any.

    Returns:
        What `arm_figures` gives, `task_figures`, and `minimum_clearance_m` (B,), on the CPU.
    """
    wanted = {*_EVERY_TASK, _CLEARANCE, *(measure.of for measure in task.measures)}
    info = {name: info[name].cpu().double() for name in wanted & info.keys()}
    alive = alive.cpu()
    figures = arm_figures(model, info, alive) | task_figures(task, info, alive)
    if _CLEARANCE in info or collision is not None:
        distance = info[_CLEARANCE] if _CLEARANCE in info else _own_clearance(need(collision), info["q"])
        figures["minimum_clearance_m"] = distance.masked_fill(~alive, torch.inf).amin(0)
    return figures


def task_figures(task: Task, info: dict[str, Tensor], alive: Tensor) -> dict[str, Tensor]:
    """The task's own measures by their names, in the units of those: (B,), or (B, T) of all steps that count."""
    return {one.name: one.in_results(_reduced(one, task, info[one.of], alive)) for one in task.measures}


def _reduced(measure: Measure, task: Task, series: Tensor, alive: Tensor) -> Tensor:
    """What a measure makes of a series (T, B): (B,), or (B, T) with NaN for steps that do not count."""
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


def capsules(world: World) -> CollisionModel | None:
    """The collision geometry that `measure` needs; None where the robot or its gripper has none in a file."""
    return known_collision(world.robot) if world.collision is None else world.collision


def _own_clearance(collision: CollisionModel, q: Tensor) -> Tensor:
    """(T, B) signed distance of the arm to itself and to the ground, the plane that its base stands on [m]."""
    model = collision.to("cpu")
    return clearance(model, q.flatten(0, 1).float(), ground=0.0).double().view(q.shape[:2])
