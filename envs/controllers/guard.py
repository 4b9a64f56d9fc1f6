"""A guard between a controller and an arm: it changes a velocity command just enough that nothing
is run into.

What the arm is near to bounds the speeds at which distances may fall, as a velocity damper does,
but the bound is what the arm can still brake from with its accelerations. In a control period an
arm moves by centimetres, and what is nearest changes on the way; so the guard also looks where it
would be after the period, once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.collision import Nearest
from envs.controllers.halfspaces import make_brakes, make_lookahead, project_agmon
from envs.simulation.engine import SimModel, SimState
from envs.simulation.kinematic import find_reachable_velocities


@dataclass(frozen=True)
class GuardConstants:
    """The constants of the guard. How they were chosen: docs/guard.md.

    Attributes:
        stop: distance at which everything that comes nearer has been braked [m].
        least: distance that is kept after the period that begins, seen from its end [m].
        share: of what all joints together could brake a distance with, this much is counted on:
            joints brake for several things at once.
        sweeps: over all distances, one after the other; each takes back part of what the one before
            did.
    """

    stop: float = 0.01
    least: float = 0.005
    share: float = 0.15
    sweeps: int = 3


DEFAULTS = GuardConstants()


def guard_action(
    model: SimModel,
    bound: SimState,
    action: Tensor,
    near: Nearest,
    nearest_at: Callable[[Tensor], Nearest],
    constants: GuardConstants = DEFAULTS,
) -> Tensor:
    """The action nearest to a wanted one under which every distance can still be braked to `stop`.

    Nearest in units of what each joint can change its speed by. Seen from the end of the period no
    distance may be below `least` either. Where bounds contradict each other they are kept in part.

    Args:
        bound: the arms, where they are bound for.
        action: (B, n) in [-1, 1].
        near: what they are near to there.
        nearest_at: what they would be near to at other joint positions (B, n).

    Returns:
        (B, n) in [-1, 1].
    """
    within, k = find_reachable_velocities(model, bound), constants
    weight = torch.where(model.dqd.isinf(), model.qdlim, model.dqd).square()
    qd = torch.clamp(action.clamp(-1.0, 1.0) * model.qdlim, *within)
    spaces = make_brakes(model, near, k.stop, k.share)
    qd = project_agmon(spaces, qd, weight, within, k.sweeps)
    spaces &= make_lookahead(nearest_at(bound.q + qd * model.dt), qd, k.least, model.dt)
    return project_agmon(spaces, qd, weight, within, k.sweeps) / model.qdlim
