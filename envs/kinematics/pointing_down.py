"""Joint positions with the hand over a point and pointing down, by damped least squares."""

import torch
from torch import Tensor

from envs.kinematics.chain import Chain, fkine_jacob0
from envs.kinematics.least_squares import damped_least_squares

ITERATIONS = 10
DAMPING = 0.03  # [m/rad]
LONGEST = 0.4  # [rad] that a joint moves in one iteration
POSITION = 1e-3  # [m] of a solution
TILT = 0.01  # its sine


def solve_pointing_down(
    chain: Chain, qlim: Tensor, hand: Tensor, q: Tensor, tcp: Tensor
) -> tuple[Tensor, Tensor]:
    """Solve by Newton's method with the damped inverse, inside the limits at every iteration.

    Five equations, three of position and two of direction; the turn about the vertical is left
    free.

    Args:
        qlim: (2, n) [rad or m].
        hand: (3,) unit vector along which the hand points, in the TCP frame.
        q: (B, n) where to begin [rad or m].
        tcp: (B, 3) wanted TCP positions in the base frame [m].

    Returns:
        q (B, n) inside qlim, and (B,) bool whether it is there. That none was found does not prove
        that there is none.
    """
    for _ in range(ITERATIONS):
        error, _, J = _compute_errors(chain, hand, q, tcp)
        step = damped_least_squares(J, error, DAMPING)
        step = step * (LONGEST / step.abs().amax(1, keepdim=True)).clamp_max(1.0)
        q = torch.clamp(q + step, *qlim)
    error, down, _ = _compute_errors(chain, hand, q, tcp)
    near = torch.linalg.vector_norm(error[:, :3], dim=1) < POSITION
    return q, near & (torch.linalg.vector_norm(error[:, 3:], dim=1) < TILT) & down


def turn_down(approach: Tensor) -> Tensor:
    """Compute the level axis (B, 2) that turns a hand along approach (B, 3) down.

    It is approach x down, and so as long as the sine of the tilt.
    """
    return torch.stack((-approach[:, 1], approach[:, 0]), 1)


def _compute_errors(
    chain: Chain, hand: Tensor, q: Tensor, tcp: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the error (B, 5) [m; sine], if the hand points down, and the Jacobian (B, 5, n)."""
    T_be, J = fkine_jacob0(chain, q)
    approach = T_be[:, :3, :3] @ hand
    return torch.cat((tcp - T_be[:, :3, 3], turn_down(approach)), 1), approach[:, 2] < 0, J[:, :5]
