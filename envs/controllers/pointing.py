"""Resolved-rate control of a hand that points down."""

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
    """Compute the action (B, n) in [-1, 1] that moves the TCP and points the hand down.

    This is resolved-rate control, see `ResolvedRate`. Without `turn` the rotation about the
    vertical is free, and the smallest joint motion is taken.

    Args:
        way: (B, 3) displacement of the TCP [m].
        turn: (B,) rotation about the vertical [rad]; None: free.
        gain: TCP speed per distance, and turning speed per sine of the tilt [1/s].
        damping: see `ResolvedRate` [m/rad].
    """
    model = world.model
    approach = grasp.compute_hand_axes(not_none(model.hand), moment.T_be)[:, :, 2]
    wanted = (way, turn_down(approach), *(() if turn is None else (turn[:, None],)))
    twist = gain * torch.cat(wanted, 1)
    qd = damped_least_squares(moment.J[:, : twist.shape[1]], twist, damping)
    # The speeds from which joints brake in time.
    fastest = torch.minimum(model.qdlim, model.dqd / model.dt / gain)
    return qd / (qd.abs() / fastest).amax(1, keepdim=True).clamp_min(1.0) / model.qdlim
