"""Contact by the arm's drawn meshes: in each capsule the convex hull of the surface inside it.

A hull never leaves its capsule, so the checked pairs are those of the capsules, and where hulls
touch, capsules do.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's Python package has no type stubs.

import numpy as np
from mujoco import MjSpec

from envs.robots import Robot
from td3_robot.errors import missing_package

_LEAST = 1e-7  # [m3] what is smaller is as good as flat
_EDGE = 0.03  # [m] longest of the triangles whose corners stand for a surface
_CORNERS = 64  # of a hull at most


class Hulls:
    """Hulls of one robot; the meshes of a link are read when first needed.

    Raises:
        ConfigError: the readers of meshes are not installed.
    """

    def __init__(self, robot: Robot):
        try:
            from envs.collision.fitting import capsule, shapes
        except ImportError as error:
            raise missing_package("arm_shapes: meshes", error.name) from None
        self._robot = robot
        self._capsule = capsule
        self._shapes = shapes
        self._links = {link.name: link for link in robot.rtb.links}
        self._points: dict[str, np.ndarray] = {}

    def add(self, spec: MjSpec, name: str, link: str, axis: np.ndarray, radius: float) -> bool:
        """Add to a model the mesh of a capsule.

        Args:
            name: of the mesh.
            link: that carries the capsule, around an axis (2, 3) in the link's frame [m].

        Returns:
            True if a surface with a volume is drawn inside.

        Raises:
            ConfigError: a mesh cannot be read.
        """
        import trimesh  # here: it is an extra

        if link not in self._points:
            self._points[link] = self._sample_surface(link)
        points = self._points[link]
        inside = points[self._capsule.compute_distances(axis, points) <= radius]
        if len(inside) < 4 or np.linalg.matrix_rank(inside - inside[0], tol=1e-4) < 3:
            return False
        hull = trimesh.convex.convex_hull(inside)
        if hull.volume < _LEAST:
            return False
        spec.add_mesh(name=name, uservert=hull.vertices.ravel(), maxhullvert=_CORNERS)
        return True

    def _sample_surface(self, name: str) -> np.ndarray:
        """Sample points (P, 3) on the drawn surface of a link, in its frame [m]."""
        import trimesh

        shapes = self._shapes.select_shapes(self._links[name]) if name in self._links else []
        meshes = [self._shapes.make_mesh(shape) for shape in shapes]
        parts = [
            trimesh.remesh.subdivide_to_size(mesh.vertices, mesh.faces, _EDGE)[0] for mesh in meshes
        ]
        return np.concatenate(parts) if parts else np.empty((0, 3))
