"""Calibration errors: of the TCP in the hand, of a cube seen by a camera, and of the arm's base.

Each is in the scene, one row an arm, for a whole episode: `tcp_offset` (B, 3) in the TCP's frame
[m], `object_offset` (B, 3) [m], and `base_error` (B, 4, 4), the pose of the true base in the frame
of the assumed one.
"""

import torch
from torch import Tensor

from envs.kinematics.rotations import from_vector, to_matrix, to_quaternion
from envs.simulation.engine import OBJECT, SUPPORT, Scene
from envs.simulation.force_sensors import measure_forces

_CUBES = (OBJECT, SUPPORT, "support_start")
_POINTS = ("goal", *_CUBES, "path", "spheres", "boxes", "strokes")  # they begin with a place
_VECTORS = ("goal_velocity", "sphere_velocities", "box_velocities")


def make_pose_error(offset: Tensor, turn: Tensor) -> Tensor:
    """Return poses (B, 4, 4) from offsets (B, 3) [m] and rotation vectors `turn` (B, 3) [rad]."""
    T = torch.eye(4, dtype=offset.dtype, device=offset.device).repeat(len(offset), 1, 1)
    T[:, :3, :3] = to_matrix(from_vector(turn))
    T[:, :3, 3] = offset
    return T


def measured_tcp(T_be: Tensor, scene: Scene) -> Tensor:
    """Return the measured poses of TCPs T_be (B, 4, 4), off by the scene's `tcp_offset`."""
    if "tcp_offset" not in scene:
        return T_be
    measured = T_be.clone()
    measured[:, :3, 3] += (T_be[:, :3, :3] @ scene["tcp_offset"][:, :, None])[:, :, 0]
    return measured


def measured_scene(scene: Scene, goal_is_place: bool = True) -> Scene:
    """Return the scene as it is measured.

    Cubes, held ones too, are off by the camera's error; goals, cubes and obstacles are given in the
    frame of the assumed base. The table is where the base stands. What is felt has the errors of
    its sensor, see `ForceSensors`.

    Args:
        goal_is_place: see `Task`; goals that are none are known as they are.
    """
    if felt := measure_forces(scene):
        scene = {**scene, **felt}
    if "object_offset" in scene:
        # the camera's error is the same for all cubes
        cubes = [name for name in _CUBES if name in scene]
        scene = {**scene, **{name: scene[name] + scene["object_offset"] for name in cubes}}
    if "base_error" not in scene:
        return scene
    displaced = displace_scene(scene, scene["base_error"])
    return displaced if goal_is_place else {**displaced, "goal": scene["goal"]}


def displace_scene(scene: Scene, T: Tensor) -> Scene:
    """Return the scene with its goals, cubes and obstacles moved by the pose T (B, 4, 4).

    A goal of fewer than three numbers is no place, and stays.
    """
    R = T[:, :3, :3]
    p = T[:, :3, 3]
    points = [name for name in _POINTS if name in scene and scene[name].shape[-1] >= 3]
    displaced = {name: _displace_points(scene[name], R, p) for name in points}
    displaced |= {name: _turn_vectors(scene[name], R) for name in _VECTORS if name in scene}
    if "walls" in scene:
        normal = scene["walls"][:, :, :3] @ R.mT
        offset = scene["walls"][:, :, 3:] + (normal @ p[:, :, None])
        displaced["walls"] = torch.cat((normal, offset), 2)
    return {**scene, **displaced}


def _turn_vectors(values: Tensor, R: Tensor) -> Tensor:
    """Turn vectors (B, 3) or (B, count, 3)."""
    return (R @ values[:, :, None])[:, :, 0] if values.ndim == 2 else values @ R.mT


def _displace_points(values: Tensor, R: Tensor, p: Tensor) -> Tensor:
    """Move points, spheres, boxes or poses (B, ..., k): a place first, a quaternion last if k is 7
    or 10.
    """
    rows = values.view(len(values), -1, values.shape[-1])
    place = rows[:, :, :3] @ R.mT + p[:, None]
    size = rows[:, :, 3:]
    orientation = rows[:, :, :0]
    if values.shape[-1] in (7, 10):
        size = size[:, :, :-4]
        shape = rows.shape[:2]
        turned = R[:, None] @ to_matrix(rows[:, :, -4:].flatten(0, 1)).unflatten(0, shape)
        orientation = to_quaternion(turned.flatten(0, 1)).unflatten(0, shape)
    return torch.cat((place, size, orientation), 2).view(values.shape)
