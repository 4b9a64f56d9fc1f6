"""Resolved-rate control of a hand that points down."""

import torch
from torch import Tensor

from envs.kinematics.least_squares import damped_least_squares
from envs.kinematics.pointing_down import turn_down
from envs.simulation import grasp
from envs.world import Moment, World
from td3_robot.errors import not_none


def point_down(
    world: World,
    moment: Moment,
    way: Tensor,
    turn: Tensor | None,
    gain: float,
    damping: float,
    preferred: Tensor | None = None,
) -> Tensor:
    """Compute the action (B, n) in [-1, 1] that moves the TCP and points the hand down.

    This is resolved-rate control, see `ResolvedRate`. Joints stop at their limits, and the others
    make up for them. Without `turn` the rotation about the vertical is free. Of the motions that do
    all this, the one nearest to `preferred` is taken (Liégeois, "Automatic supervisory control of
    the configuration and behavior of multibody mechanisms", IEEE Trans. Systems, Man, and
    Cybernetics 7(12), 1977).

    Args:
        way: (B, 3) displacement of the TCP [m].
        turn: (B,) rotation about the vertical [rad]; None: free.
        gain: TCP speed per distance, and turning speed per sine of the tilt [1/s].
        damping: see `ResolvedRate` [m/rad].
        preferred: (B, n) speeds of the joints [rad/s or m/s]; None: at rest.
    """
    model = world.model
    approach = grasp.compute_hand_axes(not_none(model.hand), moment.T_be)[:, :, 2]
    wanted = (way, turn_down(approach), *(() if turn is None else (turn[:, None],)))
    twist = gain * torch.cat(wanted, 1)
    J = moment.J[:, : twist.shape[1]]
    # The speeds from which joints brake in time.
    fastest = torch.minimum(model.qdlim, model.dqd / model.dt / gain)
    qd = _solve_near(preferred, J, twist, damping)
    slower = _compute_slowdown(qd, fastest)
    room = gain * (model.qlim[:, None] - moment.state.q)
    preferred = None if preferred is None else slower * preferred
    qd = _stop_at_limits(J, slower * twist, damping, slower * qd, room, preferred)
    return _compute_slowdown(qd, fastest) * qd / model.qdlim


def _compute_slowdown(qd: Tensor, fastest: Tensor) -> Tensor:
    """Return the factor (B, 1) that keeps joint speeds (B, n) below the fastest, (n,)."""
    return 1.0 / (qd.abs() / fastest).amax(1, keepdim=True).clamp_min(1.0)


def _stop_at_limits(
    J: Tensor, twist: Tensor, damping: float, qd: Tensor, room: Tensor, preferred: Tensor | None
) -> Tensor:
    """Return the joint speeds (B, n) for a twist (B, k) of joints that stop at their limits.

    Args:
        qd: (B, n) the speeds without limits [rad/s or m/s].
        room: (2, B, n) the speeds at which joints stop at the lower and the upper limit.
        preferred: see `point_down`.
    """
    lower = room[0].clamp_max(0.0)
    upper = room[1].clamp_min(0.0)
    stopped = qd.clamp(lower, upper)
    held = stopped != qd
    rest = twist - (J @ torch.where(held, stopped, 0.0)[:, :, None])[:, :, 0]
    free = _solve_near(preferred, torch.where(held[:, None], 0.0, J), rest, damping)
    return torch.where(held, stopped, free).clamp(lower, upper)


def _solve_near(preferred: Tensor | None, J: Tensor, twist: Tensor, damping: float) -> Tensor:
    """Solve for the qd (B, n) that minimises |J qd - twist|^2 + damping^2 |qd - preferred|^2."""
    if preferred is None:
        return damped_least_squares(J, twist, damping)
    rest = twist - (J @ preferred[:, :, None])[:, :, 0]
    return preferred + damped_least_squares(J, rest, damping)
