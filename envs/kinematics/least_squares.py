"""The damped inverse of Jacobians, finite in every singularity, so that nothing is checked.

Nakamura & Hanafusa, "Inverse kinematic solutions with singularity robustness", J. Dyn. Sys. Meas.
Control 108(3), 1986.
"""

import functools

import torch
from torch import Tensor

LEAST_WORK = 4096  # elements of products that are worth more calls


def damped_least_squares(J: Tensor, velocity: Tensor, damping: float) -> Tensor:
    """Solve for the qd that minimises |J qd - velocity|^2 + damping^2 |qd|^2.

    Args:
        J: (B, m, n); velocity: (B, m).
        damping: positive.

    Returns:
        (B, n).
    """
    damped = _damp_gram(J, damping**2)
    return multiply_small(J.mT, _solve(damped, velocity[:, :, None]))[:, :, 0]


def damped_inverse(J: Tensor, ridge: float | Tensor) -> Tensor:
    """Compute J^T (J J^T + ridge I)^-1, by which `damped_least_squares` multiplies a velocity.

    Args:
        J: (B, m, n).
        ridge: the damping squared, positive; one for all, or (B, 1, 1).

    Returns:
        (B, n, m).
    """
    damped = _damp_gram(J, ridge)
    if torch.compiler.is_exporting():
        return J.mT @ _solve(damped, torch.eye(J.shape[1], dtype=J.dtype).expand_as(damped))
    return multiply_small(J.mT, torch.linalg.inv_ex(damped)[0])


def multiply_small(A: Tensor, B: Tensor) -> Tensor:
    """Compute A @ B of many small matrices, A (N, m, k) and B (N, k, n).

    Where there is much to do, a CPU works over N: up to 15 times as fast as `torch.bmm`, which adds
    in the same order.
    """
    work = A.shape[1] * B.shape[2] * len(A)
    if torch.compiler.is_exporting() or A.device.type != "cpu" or work < LEAST_WORK:
        return A @ B
    columns = A.permute(2, 1, 0).contiguous()  # (k, m, N)
    rows = B.permute(1, 2, 0).contiguous()  # (k, n, N)
    parts = (column[:, None] * row for column, row in zip(columns, rows))
    return functools.reduce(torch.add, parts).permute(2, 0, 1)


def _damp_gram(J: Tensor, ridge: float | Tensor) -> Tensor:
    gram = multiply_small(J, J.mT)
    return gram + ridge * torch.eye(J.shape[1], dtype=J.dtype, device=J.device)


def _solve(A: Tensor, b: Tensor) -> Tensor:
    """Solve A x = b for symmetric positive definite A (B, m, m) and b (B, m, k); (B, m, k)."""
    if not torch.compiler.is_exporting():
        return torch.linalg.solve_ex(A, b)[0]
    table = torch.cat((A, b), 2)  # ONNX knows no solver: Gauss-Jordan elimination
    for k, unit in enumerate(torch.eye(A.shape[1], dtype=A.dtype)):
        column = table[:, :, k, None]
        row = table[:, None, k]
        table = table - (column - unit[:, None]) * (row / row[:, :, k, None])
    return table[:, :, A.shape[1] :]
