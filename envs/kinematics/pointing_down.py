"""Joint positions with the hand over a point and pointing straight down, by damped least squares
for many at once.
"""

import torch
from torch import Tensor

from envs.kinematics.chain import Chain, fkine_jacob0
from envs.kinematics.least_squares import damped_least_squares

ITERATIONS = 10
DAMPING = 0.03  # [m/rad]
LONGEST = 0.4  # [rad] that a joint moves in one iteration
POSITION, TILT = 1e-3, 0.01  # [m], sine: what counts as there


def solve_pointing_down(
    chain: Chain, qlim: Tensor, hand: Tensor, q: Tensor, tcp: Tensor
) -> tuple[Tensor, Tensor]:
    """Newton's method with the damped least-squares inverse, held to the joints' limits at every
    iteration.

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
    there = torch.linalg.vector_norm(error[:, :3], dim=1) < POSITION
    return q, there & (torch.linalg.vector_norm(error[:, 3:], dim=1) < TILT) & down


def turn_down(approach: Tensor) -> Tensor:
    """(B, 2) the level part of approach x down, about which a hand that points along approach (B,
    3) has to turn; of the length of the sine of its tilt.
    """
    return torch.stack((-approach[:, 1], approach[:, 0]), 1)


def _compute_errors(
    chain: Chain, hand: Tensor, q: Tensor, tcp: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What is missing (B, 5) [m; sine], whether the hand points down and not up (B,), and the
    Jacobian (B, 5, n).
    """
    T_be, J = fkine_jacob0(chain, q)
    approach = T_be[:, :3, :3] @ hand
    return torch.cat((tcp - T_be[:, :3, 3], turn_down(approach)), 1), approach[:, 2] < 0, J[:, :5]
