"""Guard: a velocity-damper shield that changes a command as little as needed to avoid contact.

It bounds the speeds at which distances may fall, as velocity dampers do, but by what the arm can
still brake from with its accelerations. An arm moves by centimetres in a control period, and the
nearest obstacle may change meanwhile; so the guard also checks the position after the period, once.
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
    """The constants of the guard. How they were chosen: benchmarks/notes/guard-constants.md.

    Attributes:
        stop: distance at which every approach has been braked [m].
        least: least distance after the period that begins [m].
        share: assumed share of the braking of all joints together: they brake for several distances
            simultaneously.
        sweeps: passes over all distances; each reverts part of the one before.
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
    """Return the action nearest to a given one that lets every distance be braked to `stop`.

    Nearest is in units of the joints' largest speed changes. In addition, no distance may be below
    `least` at the end of the period. Bounds that contradict each other are met in part.

    Args:
        bound: the arms half a period ahead, see `bound_for`.
        action: (B, n) in [-1, 1].
        near: their distances there.
        nearest_at: finds the distances at other joint positions (B, n).

    Returns:
        (B, n) in [-1, 1].
    """
    k = constants
    within = find_reachable_velocities(model, bound)
    weight = torch.where(model.dqd.isinf(), model.qdlim, model.dqd).square()
    qd = torch.clamp(action.clamp(-1.0, 1.0) * model.qdlim, *within)
    spaces = make_brakes(model, near, k.stop, k.share)
    qd = project_agmon(spaces, qd, weight, within, k.sweeps)
    spaces &= make_lookahead(nearest_at(bound.q + qd * model.dt), qd, k.least, model.dt)
    return project_agmon(spaces, qd, weight, within, k.sweeps) / model.qdlim
