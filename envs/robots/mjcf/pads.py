"""Pads of fingers: their inner sides near the tips, measured on the geoms that touch."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's Python package has no type stubs.

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from envs.robots.gripper import Pads
from envs.robots.mjcf.compile import CompiledFile
from envs.robots.mjcf.hand import FingerJoints
from envs.robots.mjcf.names import GeomType, Names

_SPACING = 0.002  # [m] of points on a surface, about
_SPLITS = 6  # of a triangle at most, each into four
_FLAT = 0.001  # [m] what is this near to the innermost point belongs to the pad
_SNAP = 0.95  # cosine up to which the approach is along an axis of the hand
_LEAST = 0.001  # [m] that a pad is wide and long, and that fingers move apart, at least
_ASIDE = 0.005  # [m] that a TCP may be off the middle between the pads


@dataclass(frozen=True)
class FingerPads:
    """The inner sides of two fingers, in the frame of the body that they hang on.

    Attributes:
        body: that body.
        closing: (3,) unit vector from the second finger to the first.
        approach: (3,) unit vector to the tips, at a right angle to it.
        center: (3,) of the space between the pads [m].
        gap: (3,) between the pads when shut, half way, and when open [m].
        size: (2,) of a pad, across and along the approach [m].
        thickness: of a finger along the closing direction [m].
        tip, palm: along the approach, where the fingers and what they hang on end [m].
        width: (2,) half of what they hang on, across and along the closing direction [m].
    """

    body: str
    closing: np.ndarray
    approach: np.ndarray
    center: np.ndarray
    gap: np.ndarray
    size: np.ndarray
    thickness: float
    tip: float
    palm: float
    width: np.ndarray


def measure_fingers(file: CompiledFile, names: Names, hand: FingerJoints) -> FingerPads | None:
    """Measure the fingers of a hand; None where they have no sides that face each other."""
    import mujoco  # here: it is an extra

    model = file.model
    indices = [names.joints.index(joint.name) for joint in hand.joints]
    bodies = [int(model.jnt_bodyid[indices[finger]]) for finger in hand.fingers]
    palm = int(model.body_parentid[bodies[0]])
    if int(model.body_parentid[bodies[1]]) != palm:
        return None
    data = mujoco.MjData(model)
    clouds = []
    for driver in np.linspace(hand.closed, hand.opened, 3):
        data.qpos[:] = model.qpos0
        data.qpos[model.jnt_qposadr[indices]] = hand.mimic * driver
        mujoco.mj_kinematics(model, data)
        clouds.append([_sample(model, data, palm, _list_below(model, body)) for body in bodies])
    if any(len(cloud) == 0 for pair in clouds for cloud in pair):
        return None
    axes = _find_directions(clouds)
    if axes is None:
        return None
    back = _sample(model, data, palm, [palm])
    return _measure(names.bodies[palm], [[p @ axes for p in pair] for pair in clouds], back, axes)


def make_pads(fingers: FingerPads, T_ht: np.ndarray, links: tuple[str, str]) -> Pads | None:
    """Make the pads as a TCP sees them; None where the TCP is not in the middle between them.

    Args:
        T_ht: (4, 4) pose of the TCP in the frame of the body that the fingers hang on.
        links: of the two fingers.
    """
    R, p = T_ht[:3, :3], T_ht[:3, 3]
    aside = fingers.center - p
    if np.linalg.norm(aside - fingers.approach * (aside @ fingers.approach)) > _ASIDE:
        return None
    height = float(p @ fingers.approach)
    return Pads(
        links=links,
        closing=R.T @ fingers.closing,
        approach=R.T @ fingers.approach,
        gap=fingers.gap,
        size=fingers.size,
        tip=fingers.tip - height,
        finger=fingers.thickness,
        palm=np.array([height - fingers.palm, *fingers.width]),
    )


def _measure(
    body: str, clouds: list[list[np.ndarray]], back: np.ndarray, axes: np.ndarray
) -> FingerPads | None:
    """Measure fingers by points (k, 3) on each, as (across, closing, approach).

    Args:
        clouds: shut, half way and open; two fingers each.
        back: (k, 3) points on what they hang on, in its frame.
        axes: (3, 3) the three directions in its frame, in columns.
    """
    tip = max(p[:, 2].max() for p in clouds[0])
    root = min(p[:, 2].min() for p in clouds[0])
    half_way = (tip + root) / 2.0  # pads are in the half that ends in the tip
    ends = [[p[p[:, 2] >= half_way] for p in pair] for pair in clouds]
    if any(len(p) == 0 for pair in ends for p in pair):
        return None
    inner = np.array([(first[:, 1].min(), second[:, 1].max()) for first, second in ends])
    gap = np.maximum(inner[:, 0] - inner[:, 1], 0.0)
    first, second = ends[0]
    pads = [first[first[:, 1] <= inner[0, 0] + _FLAT], second[second[:, 1] >= inner[0, 1] - _FLAT]]
    across = np.array([(p[:, 0].min(), p[:, 0].max()) for p in pads])
    lowest = float(np.mean([p[:, 2].min() for p in pads]))
    size = np.array([np.ptp(across, axis=1).mean(), tip - lowest])
    if size.min() < _LEAST or (np.diff(gap) < _LEAST).any():
        return None
    center = np.array([across.mean(), inner[0].mean(), tip - size[1] / 2.0])
    thickness = float(np.mean([np.ptp(p[p[:, 2] >= lowest][:, 1]) for p in (first, second)]))
    if len(back):
        local = back @ axes
        palm = min(float(local[:, 2].max()), lowest)
        width = np.abs(local[:, :2] - center[:2]).max(0)
    else:
        palm = root
        width = np.array([size[0], gap[2]]) / 2.0 + [0.0, thickness]
    return FingerPads(
        body=body,
        closing=axes[:, 1],
        approach=axes[:, 2],
        center=axes @ center,
        gap=gap,
        size=size,
        thickness=thickness,
        tip=float(tip),
        palm=palm,
        width=width,
    )


def _find_directions(clouds: list[list[np.ndarray]]) -> np.ndarray | None:
    """Find across, closing and approach (3, 3), in columns; None where fingers do not part."""
    shut, _, opened = ([p.mean(0) for p in pair] for pair in clouds)
    apart = (opened[0] - shut[0]) - (opened[1] - shut[1])
    if np.linalg.norm(apart) < _LEAST:
        return None
    closing = apart / np.linalg.norm(apart)
    out = (shut[0] + shut[1]) / 2.0
    out -= closing * (out @ closing)
    if np.linalg.norm(out) < _LEAST:
        return None
    approach = out / np.linalg.norm(out)
    near = int(np.abs(approach).argmax())
    if abs(approach[near]) > _SNAP:
        axis = np.sign(approach[near]) * np.eye(3)[near]
        axis -= closing * (axis @ closing)
        approach = axis / np.linalg.norm(axis)
    return np.stack((np.cross(closing, approach), closing, approach), 1)


def _list_below(model: Any, body: int) -> list[int]:
    """List a body and all below it."""
    found = [body]
    for other in range(body + 1, model.nbody):  # MuJoCo numbers parents before children
        if int(model.body_parentid[other]) in found:
            found.append(other)
    return found


def _sample(model: Any, data: Any, frame: int, bodies: list[int]) -> np.ndarray:
    """Sample points (k, 3) on what touches of bodies, or else on all, in the frame of a body."""
    geoms = [geom for geom in range(model.ngeom) if int(model.geom_bodyid[geom]) in bodies]
    touching = [geom for geom in geoms if model.geom_contype[geom] or model.geom_conaffinity[geom]]
    points = [np.zeros((0, 3))]
    R_wf = data.xmat[frame].reshape(3, 3)
    for geom in touching or geoms:
        local = _split(np.array(list(_iter_triangles(model, geom))).reshape(-1, 3, 3))
        world = local @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
        points.append((world - data.xpos[frame]) @ R_wf)
    return np.concatenate(points)


def _iter_triangles(model: Any, geom: int) -> Iterator[np.ndarray]:
    """Yield triangles (3, 3) of a mesh, or of the box around another shape, in its frame."""
    if int(model.geom_type[geom]) == GeomType.MESH:
        mesh = int(model.geom_dataid[geom])
        first = int(model.mesh_vertadr[mesh])
        vertices = model.mesh_vert[first : first + int(model.mesh_vertnum[mesh])]
        begin = int(model.mesh_faceadr[mesh])
        yield from vertices[model.mesh_face[begin : begin + int(model.mesh_facenum[mesh])]]
        return
    center, half = model.geom_aabb[geom].reshape(2, 3)
    corners = {signs: center + half * signs for signs in product((-1, 1), repeat=3)}
    for axis, side in product(range(3), (-1, 1)):
        face = [corner for signs, corner in corners.items() if signs[axis] == side]
        yield np.array(face[:3])
        yield np.array(face[1:])


def _split(triangles: np.ndarray) -> np.ndarray:
    """Split triangles (t, 3, 3) into four until they are small; return all corners (k, 3)."""
    corners = [triangles.reshape(-1, 3)]
    for _ in range(_SPLITS):
        edges = np.linalg.norm(triangles - np.roll(triangles, 1, axis=1), axis=2)
        triangles = triangles[edges.max(1) > _SPACING]
        if len(triangles) == 0:
            break
        middles = (triangles + np.roll(triangles, 1, axis=1)) / 2.0  # of each corner and the last
        outer = [
            np.stack((triangles[:, i], middles[:, i], middles[:, (i + 1) % 3]), 1) for i in range(3)
        ]
        triangles = np.concatenate([*outer, middles])
        corners.append(middles.reshape(-1, 3))
    return np.concatenate(corners)
