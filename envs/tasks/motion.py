"""What the motion of an arm costs, whatever the task, and how near its joints are to their
limits.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from envs.simulation.engine import SimModel, SimState

if TYPE_CHECKING:
    from envs.tasks.task import Outcome, Task

NEAR_LIMIT = 0.2  # distance from a position limit at which `compute_limit_proximity` has fallen to 1/e [rad or m]


def compute_limit_proximity(model: SimModel, q: Tensor) -> Tensor:
    """(B, n) how near each joint is to a limit: -1 at the lower, 1 at the upper, 0 where both are
    far.
    """
    lower, upper = model.qlim
    return torch.exp((q - upper) / NEAR_LIMIT) - torch.exp((lower - q) / NEAR_LIMIT)


def add_change_cost(
    task: "Task", model: SimModel, before: SimState, action: Tensor, outcome: "Outcome"
) -> "Outcome":
    """What a step was worth, with what it costs to ask for a change of velocity, where that costs
    anything.

    The price is in proportion to the change, not to its square: small unsteadiness is what shakes
        an arm.

    Args:
        before: the arms as the step began.
        action: (B, a_dim) in [-1, 1].
    """
    if not task.change_weight:
        return outcome
    change = action[:, : len(model.qdlim)] - before.qd / model.qdlim
    price = -task.change_weight * change.square().mean(1).sqrt()
    return replace(outcome, terms={**outcome.terms, "change": price})
