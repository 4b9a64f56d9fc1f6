"""Orientations: unit quaternions (wxyz), rotation matrices and rotation vectors; Siciliano et al.,
2.5, 2.6.
"""

import numpy as np


def to_matrix(quaternion: np.ndarray) -> np.ndarray:
    """Convert a unit quaternion (4,), or (N, 4), to a rotation matrix (3, 3), or (N, 3, 3)."""
    w, x, y, z = np.moveaxis(quaternion, -1, 0)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def to_quaternion(R: np.ndarray) -> np.ndarray:
    """Convert a rotation matrix (3, 3) to a unit quaternion (4,) with w >= 0.

    Of the four divisors the largest is taken (Shepperd, J. Guidance and Control 1(3), 1978).
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = R
    squares = np.array((1 + xx + yy + zz, 1 + xx - yy - zz, 1 - xx + yy - zz, 1 - xx - yy + zz))
    rows = (
        (squares[0], zy - yz, xz - zx, yx - xy),
        (zy - yz, squares[1], yx + xy, xz + zx),
        (xz - zx, yx + xy, squares[2], zy + yz),
        (yx - xy, xz + zx, zy + yz, squares[3]),
    )
    best = np.array(rows[squares.argmax()])
    return best / np.copysign(np.linalg.norm(best), best[0])


def rotation_vector(R: np.ndarray) -> np.ndarray:
    """Convert a rotation matrix (3, 3) to axis times angle (3,) [rad], the angle in [0, pi]."""
    quaternion = to_quaternion(R)
    sine = np.linalg.norm(quaternion[1:])
    return quaternion[1:] * (2.0 * np.arctan2(sine, quaternion[0]) / sine if sine > 1e-7 else 2.0)
