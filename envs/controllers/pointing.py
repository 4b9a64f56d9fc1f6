"""A hand that points down and goes where it is led."""

import torch
from torch import Tensor

from envs.controllers.controlled import Controlled
from envs.kinematics.least_squares import damped_least_squares
from envs.kinematics.pointing_down import turn_down
from envs.simulation import grasp
from td3_robot.errors import need


class PointingDown:
    """Resolved-rate control of the TCP's velocities, see `ResolvedRate`. The turn about the vertical is left free
    unless one is asked for, and of the joint motions that do the rest the smallest is taken.

    Args:
        env: an environment whose robot has a hand.
        gain: TCP speed per distance, and turning speed per sine of the tilt [1/s].
        damping: see `ResolvedRate` [m/rad].
    """

    def __init__(self, env: Controlled, gain: float, damping: float):
        self._env, self._gain, self._damping = env, gain, damping
        model = env.model
        self._fastest = torch.minimum(model.qdlim, model.dqd / model.dt / gain)  # from which a joint brakes in time

    def action(self, way: Tensor, turn: Tensor | None = None) -> Tensor:
        """(B, n) in [-1, 1] that goes along way (B, 3) [m] and turns by turn (B,) about the vertical [rad]."""
        env, moment = self._env, self._env.moment
        approach = grasp.hand_axes(need(env.world.model.hand), moment.T_be)[:, :, 2]
        wanted = (way, turn_down(approach), *(() if turn is None else (turn[:, None],)))
        twist = self._gain * torch.cat(wanted, 1)
        qd = damped_least_squares(moment.J[:, : twist.shape[1]], twist, self._damping)
        return qd / (qd.abs() / self._fastest).amax(1, keepdim=True).clamp_min(1.0) / env.model.qdlim
