"""Capsules around the shapes that a roboticstoolbox model carries: exact where they are capsules
already.
"""

from typing import cast

import numpy as np
import trimesh

from envs.collision.fitting.capsule import compute_reach, compute_volume, fit_capsule, fit_mesh
from envs.robots.meshes import load_mesh
from td3_robot.errors import ConfigError

RIM = 64  # points in place of a circle
MERGE = 0.8  # two capsules become one whose volume is less than this part of theirs
SAME = 1e-4  # [m] what is nearer counts as the same place


def join_meshes(meshes: list[trimesh.Trimesh]) -> trimesh.Trimesh:
    """Join meshes into one."""
    return cast(trimesh.Trimesh, trimesh.util.concatenate(meshes))


def select_shapes(link) -> list:
    """Select the shapes of a link to enclose: the drawn ones, or else its collision shapes.

    Shapes without a surface, which some files have for want of others, are left out.
    """
    return [*filter(_has_surface, link.geometry)] or [*filter(_has_surface, link.collision)]


def _has_surface(shape) -> bool:
    if shape.stype == "cuboid":
        return int(np.count_nonzero(shape.scale)) >= 2
    return shape.stype not in ("sphere", "cylinder") or shape.radius > 0


def fit_link(shapes: list, most: int, closer: bool = False) -> list[np.ndarray]:
    """Fit capsules around the shapes of a link, in its frame.

    A sphere, and a cylinder that has a sphere of its own radius on each end, are capsules as they
    stand. Other cylinders get the smallest capsule around each, all meshes and boxes together up to
    `most`, see `fit_mesh`.
    """
    meshes = [make_mesh(shape) for shape in shapes if shape.stype in ("mesh", "cuboid")]
    spheres = [(shape.T[:3, 3], shape.radius) for shape in shapes if shape.stype == "sphere"]
    capsules = [_fit_cylinder(shape, spheres) for shape in shapes if shape.stype == "cylinder"]
    capsules += [np.array([*centre, *centre, radius]) for centre, radius in spheres]
    if others := {shape.stype for shape in shapes} - {"mesh", "cuboid", "sphere", "cylinder"}:
        raise ConfigError(f"no capsules for a collision shape of kind {', '.join(sorted(others))}")
    if meshes:
        capsules += fit_mesh(join_meshes(meshes), most, closer)
    return merge_capsules(capsules)


def _fit_cylinder(shape, spheres: list[tuple[np.ndarray, float]]) -> np.ndarray:
    """Fit one capsule around a cylinder and the spheres on its ends."""
    T = np.asarray(shape.T)
    half = shape.length / 2
    ends = np.stack([T[:3, 3] + side * half * T[:3, 2] for side in (-1, 1)])
    caps = [
        (centre, radius)
        for centre, radius in spheres
        if np.linalg.norm(ends - centre, axis=1).min() < SAME
    ]
    if len(caps) == 2 and all(abs(radius - shape.radius) < SAME for _, radius in caps):
        return np.append(ends, shape.radius)
    angle = np.linspace(0, 2 * np.pi, RIM, endpoint=False)
    rim = (
        shape.radius
        / np.cos(np.pi / RIM)
        * np.stack((np.cos(angle), np.sin(angle)), 1)
        @ T[:3, :2].T
    )
    centres = np.array([*(ends[0] + rim), *(ends[1] + rim), *(centre for centre, _ in caps)])
    return fit_capsule(centres, np.array([0.0] * 2 * RIM + [radius for _, radius in caps]))


def merge_capsules(capsules: list[np.ndarray]) -> list[np.ndarray]:
    """Drop capsules inside others, and merge two into one if that adds little volume."""
    kept = []
    for capsule in sorted(capsules, key=compute_volume, reverse=True):
        for index, other in enumerate(kept):
            ends = np.stack((other, capsule))[:, :6].reshape(4, 3)
            radii = np.repeat((other[6], capsule[6]), 2)
            if compute_reach(other[:6].reshape(2, 3), ends, radii) < other[6] + SAME:
                break
            both = fit_capsule(ends, radii)
            if compute_volume(both) < MERGE * (compute_volume(other) + compute_volume(capsule)):
                kept[index] = both
                break
        else:
            kept.append(capsule)
    return kept


def make_mesh(shape) -> trimesh.Trimesh:
    """Make triangles of a model's shape in its link's frame [m].

    Raises:
        ConfigError: its mesh file cannot be read, see `load_mesh`.
    """
    if shape.stype == "cuboid":
        mesh = trimesh.creation.box(shape.scale)
    elif shape.stype == "sphere":
        mesh = trimesh.creation.icosphere(radius=shape.radius)
    elif shape.stype == "cylinder":
        mesh = trimesh.creation.cylinder(shape.radius, shape.length, sections=RIM)
    else:
        mesh = load_mesh(shape.filename, shape.scale)
    return mesh.apply_transform(np.asarray(shape.T))
