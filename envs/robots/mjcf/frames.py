"""Frames from MuJoCo's positions and quaternions."""

import numpy as np

from envs.robots.urdf.tree import Pose


def make_transform(pos: np.ndarray, quat: np.ndarray) -> np.ndarray:
    """Make a transform (4, 4) of a position [m] and a quaternion, wxyz."""
    w, x, y, z = quat / np.linalg.norm(quat)
    T = np.eye(4)
    T[:3, :3] = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    T[:3, 3] = pos
    return T


def make_pose(T: np.ndarray) -> Pose:
    """Make a `Pose` of a transform (4, 4)."""
    R = T[:3, :3]
    yaw = np.arctan2(R[1, 0], R[0, 0])
    pitch = np.arctan2(-R[2, 0], np.hypot(R[0, 0], R[1, 0]))
    # of what is left without the yaw: exact also where the pitch is a right angle
    roll = np.arctan2(
        np.sin(yaw) * R[0, 2] - np.cos(yaw) * R[1, 2], np.cos(yaw) * R[1, 1] - np.sin(yaw) * R[0, 1]
    )
    x, y, z = T[:3, 3].tolist()
    return Pose((x, y, z), (float(roll), float(pitch), float(yaw)))
