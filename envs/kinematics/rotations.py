"""Orientations of a batch: rotation matrices, unit quaternions (wxyz) and rotation vectors.

Siciliano, Sciavicco, Villani & Oriolo, "Robotics: Modelling, Planning and Control" (2009), sections
2.5 and 2.6.
"""

import torch
from torch import Tensor


def build_rotations(quaternions: Tensor) -> Tensor:
    """Build rotation matrices (3, 3, ...) from unit quaternions (4, ...), wxyz.

    Siciliano et al., "Robotics: Modelling, Planning and Control" (2009), section 2.6.
    """
    w = quaternions[0]
    v = quaternions[1:]
    twice = 2.0 * v
    x, y, z = w * twice
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = twice[:, None] * v
    own = 1.0 - (xx + yy + zz)
    rows = (own + xx, xy - z, xz + y, xy + z, own + yy, yz - x, xz - y, yz + x, own + zz)
    return torch.stack(rows).unflatten(0, (3, 3))


def to_matrix(quaternion: Tensor) -> Tensor:
    """Convert unit quaternions (B, 4), wxyz, to rotation matrices (B, 3, 3)."""
    return build_rotations(quaternion.T).permute(2, 0, 1)


def to_quaternion(R: Tensor) -> Tensor:
    """Convert rotation matrices (B, 3, 3) to unit quaternions (B, 4), wxyz, with w >= 0.

    Of the four ways to read the quaternion off the matrix the one with the largest divisor is taken
    (Shepperd, "Quaternion from rotation matrix", J. Guidance and Control 1(3), 1978), so that no
    rotation is inaccurate.
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = (row.unbind(1) for row in R.unbind(1))
    # 4 w2, 4 x2...
    squares = torch.stack(
        (1 + xx + yy + zz, 1 + xx - yy - zz, 1 - xx + yy - zz, 1 - xx - yy + zz), 1
    )
    candidates = torch.stack(  # row i is the quaternion times four times its element i
        (
            torch.stack((squares[:, 0], zy - yz, xz - zx, yx - xy), 1),
            torch.stack((zy - yz, squares[:, 1], yx + xy, xz + zx), 1),
            torch.stack((xz - zx, yx + xy, squares[:, 2], zy + yz), 1),
            torch.stack((yx - xy, xz + zx, zy + yz, squares[:, 3]), 1),
        ),
        1,
    )
    best = candidates[torch.arange(len(R), device=R.device), squares.argmax(1)]
    best = best / torch.linalg.vector_norm(best, dim=1, keepdim=True)
    return torch.where(best[:, :1] < 0, -best, best)


def from_vector(vector: Tensor) -> Tensor:
    """Convert rotation vectors (B, 3), axis times angle [rad], to unit quaternions (B, 4), wxyz."""
    half = 0.5 * torch.linalg.vector_norm(vector, dim=1, keepdim=True)
    # sin(half) / angle has no hole
    return torch.cat((half.cos(), 0.5 * torch.sinc(half / torch.pi) * vector), 1)


def rotation_vector(R: Tensor) -> Tensor:
    """Convert (B, 3, 3) to rotation vectors (B, 3), axis times angle in [0, pi] [rad]."""
    quaternion = to_quaternion(R)
    sine = torch.linalg.vector_norm(quaternion[:, 1:], dim=1, keepdim=True)
    angle = 2.0 * torch.atan2(sine, quaternion[:, :1])
    # angle / sine tends to 2 where there is no rotation
    return quaternion[:, 1:] * torch.where(sine > 1e-7, angle / sine.clamp_min(1e-7), 2.0)


def rotation_error(R: Tensor, R_goal: Tensor) -> Tensor:
    """Compute the rotation vector (B, 3) from R (B, 3, 3) to R_goal, in the base frame [rad]."""
    return rotation_vector(R_goal @ R.mT)
