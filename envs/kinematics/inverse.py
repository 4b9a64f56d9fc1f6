"""Joint positions whose TCP has a wanted pose, for many arms and starting points together.

Newton's method by damped least squares, the damping in proportion to what is left: Sugihara,
"Solvability- unconcerned inverse kinematics by the Levenberg-Marquardt method", IEEE Trans. on
Robotics 27(5), 2011.
"""

import torch
from torch import Tensor

from envs.kinematics.chain import Chain, fkine, fkine_jacob0
from envs.kinematics.least_squares import damped_inverse, multiply_small
from envs.kinematics.rotations import rotation_error

ITERATIONS = 10
METRES_PER_RADIAN = 0.3  # an angle counts as this distance where the damping is chosen
DAMPING = (0.02, 0.2)  # [m/rad]: at the goal, and per metre that is left
LONGEST = 1.0  # [rad or m] that a joint moves in one iteration
POSITION = 5e-3  # [m] of a solution
ANGLE = 0.03  # [rad]


def spread_joints(qlim: Tensor, count: int) -> Tensor:
    """Spread (count, n) joint positions evenly over the limits (2, n), always the same ones.

    The additive recurrence of the generalised golden ratio (Roberts, "The unreasonable
    effectiveness of quasirandom sequences", 2018).
    """
    n = qlim.shape[1]
    ratio = 2.0
    for _ in range(50):
        ratio = (1.0 + ratio) ** (1.0 / (n + 1))
    power = torch.arange(1, n + 1, dtype=torch.float64, device=qlim.device)
    share = (0.5 + torch.arange(1, count + 1, device=qlim.device)[:, None] * ratio**-power) % 1.0
    return qlim[0] + share.to(qlim.dtype) * (qlim[1] - qlim[0])


def solve_pose(
    chain: Chain, qlim: Tensor, q: Tensor, tcp: Tensor, R: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve for joint positions of poses, or of positions at any orientation.

    Positions are held to the limits at every iteration: a joint that would leave them stops there,
    and the others make up for it.

    Args:
        qlim: (2, n) [rad or m].
        q: (B, n) where to begin [rad or m].
        tcp: (B, 3) wanted TCP positions in the base frame [m].
        R: (B, 3, 3) wanted orientations in the base frame; None for any.

    Returns:
        Joint positions (B, n) inside qlim; whether the TCP is within 5 mm of its goal and, of a
        pose, within 0.03 rad, (B,) bool; and its distance from the goal (B,), in metres and angles
        as metres. A goal that was not reached may still have a solution.
    """
    lower, upper = qlim
    for _ in range(ITERATIONS):
        T_be, J = fkine_jacob0(chain, q)
        error = _compute_error(T_be, tcp, R)
        J = J[:, : error.shape[1]]
        damping = DAMPING[0] + DAMPING[1] * _measure_error(error)
        motion = _solve_step(J, error, damping)
        target = q + motion
        stopped = (target < lower) | (target > upper)
        to_limit = torch.where(stopped, torch.clamp(target, lower, upper) - q, 0.0)
        rest = error - _apply_jacobian(J, to_limit)  # for the joints that do not stop
        motion = torch.where(stopped, to_limit, _solve_step(J * ~stopped[:, None], rest, damping))
        motion = motion * (LONGEST / motion.abs().amax(1, keepdim=True)).clamp_max(1.0)
        q = torch.clamp(q + motion, lower, upper)
    error = _compute_error(fkine(chain, q), tcp, R)
    near = torch.linalg.vector_norm(error[:, :3], dim=1) < POSITION
    return q, near & (torch.linalg.vector_norm(error[:, 3:], dim=1) < ANGLE), _measure_error(error)


def _compute_error(T_be: Tensor, tcp: Tensor, R: Tensor | None) -> Tensor:
    """Compute the error (B, 6) [m, rad], or (B, 3) [m] without orientations."""
    if R is None:
        return tcp - T_be[:, :3, 3]
    return torch.cat((tcp - T_be[:, :3, 3], rotation_error(T_be[:, :3, :3], R)), 1)


def _measure_error(error: Tensor) -> Tensor:
    turn = torch.linalg.vector_norm(error[:, 3:], dim=1)
    return torch.linalg.vector_norm(error[:, :3], dim=1) + METRES_PER_RADIAN * turn


def _solve_step(J: Tensor, error: Tensor, damping: Tensor) -> Tensor:
    inverse = damped_inverse(J, damping.square()[:, None, None])
    return multiply_small(inverse, error[:, :, None])[:, :, 0]


def _apply_jacobian(J: Tensor, motion: Tensor) -> Tensor:
    return multiply_small(J, motion[:, :, None])[:, :, 0]
