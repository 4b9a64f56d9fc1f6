"""A hand that points down and goes where it is led."""

import torch
from torch import Tensor

from envs.kinematics.least_squares import damped_least_squares
from envs.kinematics.pointing_down import turn_down
from envs.simulation import grasp
from envs.world import Moment, World
from td3_robot.errors import not_none


def point_down(
    world: World, moment: Moment, way: Tensor, turn: Tensor | None, gain: float, damping: float
) -> Tensor:
    """Resolved-rate control of the TCP's velocities, see `ResolvedRate`. The turn about the
    vertical is left free unless one is asked for, and of the joint motions that do the rest the
    smallest is taken.

    Args:
        way: (B, 3) where the TCP is to go [m].
        turn: (B,) what it is to turn by about the vertical [rad].
        gain: TCP speed per distance, and turning speed per sine of the tilt [1/s].
        damping: see `ResolvedRate` [m/rad].

    Returns:
        (B, n) in [-1, 1].
    """
    model = world.model
    approach = grasp.compute_hand_axes(not_none(model.hand), moment.T_be)[:, :, 2]
    wanted = (way, turn_down(approach), *(() if turn is None else (turn[:, None],)))
    twist = gain * torch.cat(wanted, 1)
    qd = damped_least_squares(moment.J[:, : twist.shape[1]], twist, damping)
    fastest = torch.minimum(
        model.qdlim, model.dqd / model.dt / gain
    )  # from which a joint brakes in time
    return qd / (qd.abs() / fastest).amax(1, keepdim=True).clamp_min(1.0) / model.qdlim
