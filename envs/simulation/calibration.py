"""What is off in how an arm was measured: where its TCP, a cube that a camera sees, and its base
are believed to be.

Each is in the scene, one row an arm, for a whole episode: `tcp_offset` (B, 3) in the TCP's frame
[m], `object_offset` (B, 3) [m], and `base_error` (B, 4, 4), the pose of the true base in the frame
of the one that it is taken for.
"""

import torch
from torch import Tensor

from envs.kinematics.rotations import from_vector, to_matrix, to_quaternion
from envs.simulation.engine import OBJECT, SUPPORT, Scene

_POINTS = ("goal", OBJECT, SUPPORT, "path", "spheres", "boxes")  # what begins with a place
_VECTORS = ("goal_velocity",)


def make_pose_error(offset: Tensor, turn: Tensor) -> Tensor:
    """(B, 4, 4) poses: displaced by `offset` (B, 3) [m] and turned by the rotation vector `turn`
    (B, 3) [rad].
    """
    T = torch.eye(4, dtype=offset.dtype, device=offset.device).repeat(len(offset), 1, 1)
    T[:, :3, :3], T[:, :3, 3] = to_matrix(from_vector(turn)), offset
    return T


def measured_tcp(T_be: Tensor, scene: Scene) -> Tensor:
    """Where TCPs with poses T_be (B, 4, 4) are believed to be, whose place in the hand is known
    wrongly.
    """
    if "tcp_offset" not in scene:
        return T_be
    moved = T_be.clone()
    moved[:, :3, 3] += (T_be[:, :3, :3] @ scene["tcp_offset"][:, :, None])[:, :, 0]
    return moved


def measured_scene(scene: Scene) -> Scene:
    """The scene as it is measured: cubes where a camera sees them, in the hand too, and all that is
    measured in the world, goals, cubes and obstacles, where that is for who takes the base to be
    elsewhere. The table is where the base stands.
    """
    if "object_offset" in scene:
        cubes = [
            name for name in (OBJECT, SUPPORT) if name in scene
        ]  # a camera that is off is so for all of them
        scene = {**scene, **{name: scene[name] + scene["object_offset"] for name in cubes}}
    return displace_scene(scene, scene["base_error"]) if "base_error" in scene else scene


def displace_scene(scene: Scene, T: Tensor) -> Scene:
    """The scene with all that stands in it in other places, each moved by the same pose T (B, 4,
    4).
    """
    R, p = T[:, :3, :3], T[:, :3, 3]
    moved = {name: _displace_points(scene[name], R, p) for name in _POINTS if name in scene}
    moved |= {name: (R @ scene[name][:, :, None])[:, :, 0] for name in _VECTORS if name in scene}
    if "walls" in scene:
        normal = scene["walls"][:, :, :3] @ R.mT
        moved["walls"] = torch.cat((normal, scene["walls"][:, :, 3:] + (normal @ p[:, :, None])), 2)
    return {**scene, **moved}


def _displace_points(values: Tensor, R: Tensor, p: Tensor) -> Tensor:
    """Points, spheres, boxes or poses (B, ..., k), which begin with a place; the last of 7 or 10
    are a quaternion.
    """
    rows = values.view(len(values), -1, values.shape[-1])
    place, size, orientation = rows[:, :, :3] @ R.mT + p[:, None], rows[:, :, 3:], rows[:, :, :0]
    if values.shape[-1] in (7, 10):
        size, given = size[:, :, :-4], rows[:, :, -4:]
        turned = R[:, None] @ to_matrix(given.flatten(0, 1)).unflatten(0, given.shape[:2])
        orientation = to_quaternion(turned.flatten(0, 1)).unflatten(0, given.shape[:2])
    return torch.cat((place, size, orientation), 2).view(values.shape)
