"""Geoms of a body as the shapes of a link: what is drawn, and what touches."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's Python package has no type stubs.

import numpy as np

from envs.robots.mjcf.compile import CompiledFile
from envs.robots.mjcf.frames import make_pose, make_transform
from envs.robots.mjcf.names import GeomType
from envs.robots.urdf.tree import Shape

_DRAWN = 2  # the last group that MuJoCo's viewer shows from the start


def read_shapes(file: CompiledFile, body: int) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
    """Read the drawn and the touching shapes of a body, in its frame.

    Drawn are geoms that touch nothing, as files have them beside simpler ones that do; of a body
    without such geoms those that touch, if MuJoCo's viewer shows them. Planes and height fields are
    left out.
    """
    model = file.model
    first = int(model.body_geomadr[body])
    visuals = []
    collisions = []
    shown = []
    for geom in range(first, first + int(model.body_geomnum[body])):
        T = make_transform(model.geom_pos[geom], model.geom_quat[geom])
        shape = _read_shape(file, geom, T)
        if shape is None:
            continue
        if not model.geom_contype[geom] and not model.geom_conaffinity[geom]:
            visuals.append(shape)
            continue
        collisions.append(shape)
        if model.geom_group[geom] <= _DRAWN:
            shown.append(shape)
    return tuple(visuals or shown), tuple(collisions)


def _read_shape(file: CompiledFile, geom: int, T: np.ndarray) -> Shape | None:
    model = file.model
    material = int(model.geom_matid[geom])
    rgba = model.geom_rgba[geom] if material < 0 else model.mat_rgba[material]
    color = tuple(np.clip(rgba, 0.0, 1.0).tolist())
    a, b, c = model.geom_size[geom].tolist()
    match int(model.geom_type[geom]):
        case GeomType.SPHERE:
            return Shape("sphere", (a,), make_pose(T), color=color)
        case GeomType.CAPSULE:
            return Shape("capsule", (a, 2.0 * b), make_pose(T), color=color)
        case GeomType.ELLIPSOID:  # as the sphere around it
            return Shape("sphere", (max(a, b, c),), make_pose(T), color=color)
        case GeomType.CYLINDER:
            return Shape("cylinder", (a, 2.0 * b), make_pose(T), color=color)
        case GeomType.BOX:
            return Shape("box", (2.0 * a, 2.0 * b, 2.0 * c), make_pose(T), color=color)
        case GeomType.MESH:
            return _read_mesh(file, geom, T, color)
    return None


def _read_mesh(
    file: CompiledFile, geom: int, T: np.ndarray, color: tuple[float, ...]
) -> Shape | None:
    """Read a mesh as its file has it.

    MuJoCo takes a point v for scale * R^T (v - p), with R and p of the mesh's reference, and then
    moves meshes to their principal axes.
    """
    model = file.model
    mesh = int(model.geom_dataid[geom])
    name = model.mesh(mesh).name
    path = file.meshes.get(name)
    if path is None:
        return None
    moved = make_transform(model.mesh_pos[mesh], model.mesh_quat[mesh])
    scale = model.mesh_scale[mesh]
    own = np.linalg.inv(file.references[name])
    own[:3, 3] *= scale
    pose = make_pose(T @ np.linalg.inv(moved) @ own)
    return Shape("mesh", tuple(scale.tolist()), pose, path, color)
