"""The capsules and corners of a gripper from its model, into its file."""

import numpy as np
import trimesh

from envs.collision.files import BASE, FINGERS, Shapes
from envs.collision.fingers import OPENINGS
from envs.collision.fitting.capsule import fit_capsule, fit_mesh, spread_directions
from envs.collision.fitting.shapes import fit_link, join_meshes, make_mesh, select_shapes
from envs.collision.links import compute_link_pose, find_carrier
from envs.robots import Robot
from envs.robots.gripper import Gripper
from td3_robot.errors import not_none

FLAT = 5e-4  # [m] by which a plane may touch a gripper before its corners


def fit_gripper(robot: Robot, most: int) -> Shapes:
    """Fit a gripper's capsules.

    They are those of each rigid link and around all that the fingers sweep, in the frame of the
    base; one around each moving link, in its frame; and the corners of both.
    """
    model = robot.rtb.grippers[0]
    hand = not_none(robot.gripper)
    root = model.links[0]
    links = {}
    base = []
    for link in model.links:
        if select_shapes(link) and find_carrier(link, root) is root:
            T = compute_link_pose(link, np.zeros(model.n), root)
            links[hand.strip_name(link)] = [
                _transform_capsule(capsule, T) for capsule in fit_link(select_shapes(link), most)
            ]
            base += [make_mesh(shape).apply_transform(T) for shape in select_shapes(link)]
    if swept := sweep_fingers(model, hand):
        links[FINGERS] = fit_mesh(join_meshes(swept), most)
    groups = collect_moving_meshes(model, hand)
    corners = {name: find_outermost(mesh.vertices) for name, mesh in groups.items()}
    if base:
        corners |= {BASE: find_outermost(join_meshes(base).vertices)}
    return Shapes(
        links, (), {name: [fit_capsule(mesh.vertices)] for name, mesh in groups.items()}, corners
    )


def collect_moving_meshes(model, hand: Gripper) -> dict[str, trimesh.Trimesh]:
    """Collect the triangles of each driven link in its frame: its shapes and those fixed to it.

    Args:
        model: roboticstoolbox's gripper.
    """
    root = model.links[0]
    found = {}
    for link in model.links:
        if select_shapes(link) and (moved := find_carrier(link, root)) is not root:
            T = compute_link_pose(link, np.zeros(model.n), moved)
            found.setdefault(hand.strip_name(moved), []).extend(
                make_mesh(shape).apply_transform(T) for shape in select_shapes(link)
            )
    return {name: join_meshes(meshes) for name, meshes in found.items()}


def sweep_fingers(model, hand: Gripper) -> list[trimesh.Trimesh]:
    """Collect the convex hulls of a gripper's moving parts at every opening, in its base's frame.

    Args:
        model: roboticstoolbox's gripper.
    """
    links = {hand.strip_name(link): link for link in model.links}
    hulls = {name: mesh.convex_hull for name, mesh in collect_moving_meshes(model, hand).items()}
    swept = []
    for driver in np.linspace(hand.opened, hand.closed, OPENINGS):
        q = hand.compute_model_q(model.links, driver)
        for name, hull in hulls.items():
            swept.append(
                hull.copy().apply_transform(compute_link_pose(links[name], q, model.links[0]))
            )
    return swept


def find_outermost(points: np.ndarray) -> list[np.ndarray]:
    """Find outer points of (N, 3): no touching plane meets them more than `FLAT` after the rest."""
    heights = points @ spread_directions(1024).T  # (N, directions)
    kept = []
    reached = np.full(heights.shape[1], -np.inf)
    highest = heights.max(0)
    while (short := highest - reached).max() > FLAT:
        kept.append(int(heights[:, short.argmax()].argmax()))
        reached = np.maximum(reached, heights[kept[-1]])
    return list(points[kept])


def _transform_capsule(capsule: np.ndarray, T: np.ndarray) -> np.ndarray:
    """Transform a capsule (7,) by a pose (4, 4)."""
    return np.append(capsule[:6].reshape(2, 3) @ T[:3, :3].T + T[:3, 3], capsule[6])
