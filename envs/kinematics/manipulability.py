"""Manipulability and its gradient by the joints, batched."""

import torch
from torch import Tensor

from envs.kinematics.least_squares import damped_inverse


def manipulability(J: Tensor) -> Tensor:
    """Compute sqrt(det(J J^T)) (Yoshikawa, "Manipulability of robotic mechanisms", Int. J. Robotics
    Research 4(2), 1985).

    Of an arm with fewer joints than rows, sqrt(det(J^T J)): either is the product of the singular
    values.

    Args:
        J: (B, m, n) rows of Jacobians; with all six, metres and radians together, only values of
            one arm compare.

    Returns:
        (B,); zero in a singularity.
    """
    gram = J @ J.mT if J.shape[2] >= J.shape[1] else J.mT @ J
    # rounding can leave a singular one a little below
    return torch.linalg.det(gram).clamp_min(0.0).sqrt()


def kinematic_hessian(J: Tensor) -> Tensor:
    """Compute the derivative of a geometric Jacobian by every joint, from the Jacobian alone.

    Haviland & Corke, "A systematic approach to computing the manipulator Jacobian and Hessian using
    the elementary transform sequence" (2020), https://arxiv.org/abs/2010.08696. A joint turns or
    carries with it the axes after it, and moves the TCP under the axes before it.

    Args:
        J: (B, 6, n) in the base frame, of revolute and prismatic joints.

    Returns:
        (B, 6, n, n): element [:, :, i, j] is dJ_j / dq_i.
    """
    v = J[:, :3]
    w = J[:, 3:]
    linear = torch.linalg.cross(
        w[:, :, :, None], v[:, :, None, :], dim=1
    ).triu()  # w_i x v_j for i <= j
    linear = linear + linear.triu(1).mT  # partial derivatives of the position commute
    angular = torch.linalg.cross(w[:, :, :, None], w[:, :, None, :], dim=1).triu()
    return torch.cat((linear, angular), 1)


def manipulability_gradient(J: Tensor, rows: int) -> Tensor:
    """Compute the derivative of the `manipulability` of the first rows of J by every joint.

    By Jacobi's formula dm/dq_i = m tr(dJ/dq_i J^+), with J^+ = J^T (J J^T)^-1, or (J^T J)^-1 J^T of
    an arm with fewer joints than rows, whose J J^T has no inverse.

    Args:
        J: (B, 6, n) in the base frame.
        rows: 3 for that of the TCP's position, 6 for that of its pose.

    Returns:
        (B, n).
    """
    J_r = J[:, :rows]
    H = kinematic_hessian(J)[:, :rows]
    tiny = torch.finfo(J.dtype).eps  # for singularities
    wide = J_r.shape[2] >= rows
    inverse = damped_inverse(J_r, tiny) if wide else damped_inverse(J_r.mT, tiny).mT  # (B, n, rows)
    weight = manipulability(J_r)[:, None, None] * inverse.mT
    return (H * weight[:, :, None, :]).sum((1, 3))
