"""Terms of any task that concern the arm's motion: cost of velocity changes, nearness to limits."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from envs.simulation.engine import SimModel
from envs.world import Moment, World

if TYPE_CHECKING:
    from envs.tasks.task import Outcome, Task

NEAR_LIMIT = 0.2  # distance from a limit at which the proximity has fallen to 1/e [rad or m]


def compute_limit_proximity(model: SimModel, q: Tensor) -> Tensor:
    """Return the proximity (B, n) of joints to their limits: -1 at the lower, 1 at the upper limit,
    and 0 far from both.
    """
    lower, upper = model.qlim
    return torch.exp((q - upper) / NEAR_LIMIT) - torch.exp((lower - q) / NEAR_LIMIT)


def add_change_cost(
    task: "Task", world: World, before: Moment, action: Tensor, outcome: "Outcome"
) -> "Outcome":
    """Return the outcome with the cost of commanding a change of velocity, if that has a weight.

    The cost is proportional to the change, not to its square: small jitter is what shakes an arm.

    Args:
        before: the moment before the step.
        action: (B, a_dim) in [-1, 1], which the task turns into velocities.
    """
    if not task.change_weight:
        return outcome
    wanted = task.make_command(world, before, action).joints
    change = wanted - before.state.qd / world.model.qdlim
    cost = task.change_weight * change.square().mean(1).sqrt()
    return replace(outcome, terms={**outcome.terms, "change": -cost})
