"""Joint velocities for a wanted TCP velocity, finite in every singularity."""

import torch
from torch import Tensor


def damped_least_squares(J: Tensor, velocity: Tensor, damping: float) -> Tensor:
    """The qd that minimises |J qd - velocity|^2 + damping^2 |qd|^2.

    Args:
        J: (B, m, n); velocity: (B, m).
        damping: positive.

    Returns:
        (B, n).
    """
    damped = J @ J.mT + damping**2 * torch.eye(J.shape[1], dtype=J.dtype, device=J.device)
    return (J.mT @ torch.linalg.solve(damped, velocity[:, :, None]))[:, :, 0]
