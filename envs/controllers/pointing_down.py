"""Joint positions with the hand over a point and pointing straight down, by damped least squares for many at once."""

import torch
from torch import Tensor

from envs import kinematics
from envs.simulation import grasp
from envs.simulation.engine import SimModel
from envs.simulation.grasp import Hand

ITERATIONS = 10
DAMPING = 0.03  # [m/rad]
LONGEST = 0.4  # [rad] that a joint moves in one iteration
POSITION, TILT = 1e-3, 0.01  # [m], sine: what counts as there


def joints_pointing_down(model: SimModel, hand: Hand, q: Tensor, tcp: Tensor) -> tuple[Tensor, Tensor]:
    """Newton's method with the damped least-squares inverse (Nakamura & Hanafusa, "Inverse kinematic solutions with
    singularity robustness", J. Dyn. Sys. Meas. Control 108(3), 1986), held to the joints' limits at every iteration.

    Five equations, three of position and two of direction; the turn about the vertical is left free.

    Args:
        q: (B, n) where to begin [rad or m].
        tcp: (B, 3) wanted TCP positions in the base frame [m].

    Returns:
        q (B, n) inside qlim, and (B,) bool whether it is there. That none was found does not prove that there is none.
    """
    ridge = DAMPING**2 * torch.eye(5, dtype=q.dtype, device=q.device)
    for _ in range(ITERATIONS):
        error, _, J = _errors(model, hand, q, tcp)
        step = (J.mT @ torch.linalg.solve(J @ J.mT + ridge, error[:, :, None]))[:, :, 0]
        step = step * (LONGEST / step.abs().amax(1, keepdim=True)).clamp_max(1.0)
        q = torch.clamp(q + step, *model.qlim)
    error, down, _ = _errors(model, hand, q, tcp)
    there = torch.linalg.vector_norm(error[:, :3], dim=1) < POSITION
    return q, there & (torch.linalg.vector_norm(error[:, 3:], dim=1) < TILT) & down


def _errors(model: SimModel, hand: Hand, q: Tensor, tcp: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What is missing (B, 5) [m; sine], whether the hand points down rather than up (B,), and the Jacobian (B, 5, n).

    The sines are the level parts of approach x down, about which the hand has to turn.
    """
    T_be, J = kinematics.fkine_jacob0(model.chain, q)
    approach = grasp.hand_axes(hand, T_be)[:, :, 2]
    error = torch.cat((tcp - T_be[:, :3, 3], -approach[:, 1:2], approach[:, :1]), 1)
    return error, approach[:, 2] < 0, J[:, :5]
