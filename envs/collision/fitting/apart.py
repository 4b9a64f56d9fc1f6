"""Pairs of an arm's links whose meshes never come close, though the capsules around them do; for files.

Capsules are larger than the links, and a maker's own may be coarse: the Panda's shoulder and upper arm overlap
in a quarter of all configurations, where the real ones never touch. The meshes decide, by coal.
"""

import coal
import numpy as np
import trimesh

from envs.collision.capsules import CollisionModel
from envs.collision.fitting.shapes import shape_mesh
from envs.collision.links import link_pose
from envs.robots import Robot

SAMPLES = 10_000
MARGIN = 0.01  # [m]


def never_close(robot: Robot, model: CollisionModel) -> list[tuple[str, str]]:
    """The checked pairs of the arm's own links that stay more than `MARGIN` apart in `SAMPLES` configurations.

    The meshes are what is drawn of each link, and its collision shapes where nothing is.
    """
    links = {link.name: link for link in robot.rtb.links}
    meshes = {name: _coal_mesh(link) for name, link in links.items() if name in model.links}
    left = {pair for pair in model.pairs if meshes.get(pair[0]) and meshes.get(pair[1])}
    request = coal.CollisionRequest()
    request.security_margin = MARGIN
    for q in np.random.default_rng(0).uniform(*robot.qlim, (SAMPLES, robot.n)):
        poses = {}
        for name in {name for pair in left for name in pair}:
            T = link_pose(links[name], q)
            poses[name] = coal.Transform3s(np.ascontiguousarray(T[:3, :3]), np.ascontiguousarray(T[:3, 3]))
        for a, b in list(left):
            if coal.collide(meshes[a], poses[a], meshes[b], poses[b], request, coal.CollisionResult()):
                left.remove((a, b))
    return sorted(left)


def _coal_mesh(link):
    """A link's meshes as one of coal's, or None where it has none."""
    drawn = [shape for shape in link.geometry if shape.stype in ("mesh", "cuboid")]
    found = [shape_mesh(shape) for shape in drawn or link.collision if shape.stype in ("mesh", "cuboid")]
    if not found:
        return None
    mesh, bvh = trimesh.util.concatenate(found), coal.BVHModelOBBRSS()
    bvh.beginModel(len(mesh.faces), len(mesh.vertices))
    bvh.addVertices(np.array(mesh.vertices, order="C"))
    bvh.addTriangles(np.array(mesh.faces, np.int64, order="C"))
    bvh.endModel()
    return bvh
