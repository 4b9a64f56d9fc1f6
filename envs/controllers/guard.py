"""A guard between a controller and an arm: it changes a velocity command just enough that nothing is run into.

What the arm is near to bounds the speeds at which distances may fall, as in a velocity damper (Faverjon & Tournassoud,
"A local based approach for path planning of manipulators with a high number of degrees of freedom", IEEE Int. Conf.
Robotics and Automation, 1987), but the bound is what the arm can still brake from with its accelerations. In a control
period an arm moves by centimetres, and what is nearest changes on the way; so the guard also looks where it would be
after the period, once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.collision import Nearest
from envs.simulation.kinematic import SimModel, SimState, reachable, stopping_speed

LEAST_RATE = 1e-6  # [m/s] a distance that the joints cannot change by more in a period is not theirs to keep


@dataclass(frozen=True)
class GuardConstants:
    """The constants of the guard. How they were chosen: docs/guard.md.

    Attributes:
        stop: distance at which everything that comes nearer has been braked [m].
        least: distance that is kept after the period that begins, seen from its end [m].
        share: of what all joints together could brake a distance with, this much is counted on: joints brake for
            several things at once.
        sweeps: over all distances, one after the other; each takes back part of what the one before did.
    """

    stop: float = 0.01
    least: float = 0.005
    share: float = 0.15
    sweeps: int = 3


DEFAULTS = GuardConstants()


def guarded(
    model: SimModel,
    state: SimState,
    action: Tensor,
    near: Nearest,
    nearest_at: Callable[[Tensor], Nearest],
    constants: GuardConstants = DEFAULTS,
) -> Tensor:
    """The action nearest to a wanted one under which every distance can still be braked to `stop`.

    With velocity qd a distance d of gradient g changes at g . qd, which may be no less than minus its stopping speed,
    and seen from the end of the period it may not be below `least`. Where bounds contradict each other they are
    kept in part.

    Args:
        action: (B, n) in [-1, 1].
        near: what the arms are near to.
        nearest_at: what they would be near to at other joint positions (B, n).

    Returns:
        (B, n) in [-1, 1].
    """
    within = reachable(model, state)
    qd = torch.clamp(action.clamp(-1.0, 1.0) * model.qdlim, *within)
    bounds = _halfspaces(model, near.gradient, -allowed_rates(model, near, constants))
    qd = _moved_into(bounds, qd, within, constants.sweeps)
    ahead = nearest_at(state.q + qd * model.dt)
    slack = (ahead.distance - constants.least) / model.dt
    bounds += _halfspaces(model, ahead.gradient, (ahead.gradient @ qd[:, :, None])[:, :, 0] - slack)
    return _moved_into(bounds, qd, within, constants.sweeps) / model.qdlim


def allowed_rates(model: SimModel, near: Nearest, constants: GuardConstants) -> Tensor:
    """How fast each distance may fall, (B, L) [m/s]; where it is below `stop`, minus how fast it has to grow."""
    slowing = (near.gradient.abs() * model.dqd).nan_to_num(nan=0.0, posinf=torch.inf)  # 0 * inf: not by this joint
    braking = constants.share * slowing.sum(2)  # [m/s] a period
    room = near.distance - constants.stop
    stopping = stopping_speed(room.clamp_min(0.0), braking.clamp_min(LEAST_RATE), model.dt)
    return torch.where(room > 0, stopping, room / model.dt)


def _halfspaces(model: SimModel, gradient: Tensor, least: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """The conditions gradient . qd >= least, one after the other: gradient (n, B), a step (n, B) that raises the
    product by one, and least (B,). The step is the smallest in units of what each joint can change its speed by.
    """
    weight = torch.where(model.dqd.isinf(), model.qdlim, model.dqd).square()
    step = gradient * weight
    step = step / (step * gradient).sum(2, keepdim=True).clamp_min(LEAST_RATE**2)
    apart = lambda x: x.permute(1, 2, 0).contiguous().unbind(0)  # noqa: E731
    return list(zip(apart(gradient), apart(step), least.T.contiguous().unbind(0)))


def _moved_into(
    bounds: list[tuple[Tensor, Tensor, Tensor]], qd: Tensor, within: tuple[Tensor, Tensor], sweeps: int
) -> Tensor:
    """Velocities (B, n) moved onto the bound of each half-space that they are outside of, in turn, again and again.

    Agmon, "The relaxation method for linear inequalities", Canadian J. Mathematics 6, 1954.
    """
    qd, lower, upper = (value.T.clone(memory_format=torch.contiguous_format) for value in (qd, *within))
    for _ in range(sweeps):
        for gradient, step, least in bounds:
            missing = (least - (gradient * qd).sum(0)).clamp_min_(0.0)
            qd.addcmul_(missing, step)
        torch.clamp(qd, lower, upper, out=qd)
    return qd.T.contiguous()
