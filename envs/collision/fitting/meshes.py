"""The drawn meshes of an arm and its gripper in coal, which capsules are judged by."""

import coal  # pyright: ignore[reportMissingImports]  # its wheel puts it where only Python looks
import numpy as np
import trimesh

from envs.collision.fitting.shapes import join_meshes, make_mesh, select_shapes
from envs.collision.links import compute_link_pose, count_joints
from envs.robots import Robot


class Meshes:
    """The drawn meshes of a robot's links, moved by roboticstoolbox; a gripper is one link of many
    parts.

    Attributes:
        parts: by link, what is drawn of it: (roboticstoolbox link, coal mesh) each.
        body: by link, how many joints of the arm move it.
    """

    def __init__(self, robot: Robot):
        self.robot = robot
        self.parts = {}
        self.body = {}
        groups = {link.name: [link] for link in robot.rtb.links}
        if robot.gripper is not None:
            groups[robot.gripper.name] = robot.rtb.grippers[0].links
        for name, links in groups.items():
            if parts := [
                (link, build_coal_mesh([make_mesh(s) for s in select_shapes(link)]))
                for link in links
                if select_shapes(link)
            ]:
                self.parts[name] = parts
                self.body[name] = count_joints(links[0])

    def list_pairs(self) -> list[tuple[str, str]]:
        """List all pairs of links but neighbours, which have at most one joint between them."""
        names = sorted(self.parts, key=self.body.__getitem__)
        return [
            (a, b)
            for i, a in enumerate(names)
            for b in names[i + 1 :]
            if self.body[b] - self.body[a] > 1
        ]

    def place(self, q: np.ndarray, driver: float = 0.0) -> dict[str, list]:
        """Place every link's meshes in the base frame.

        Args:
            q: (n,) joint positions [rad or m].
            driver: the gripper's driver coordinate [rad or m].
        """
        poses = {link: compute_link_pose(link, q) for link in self.robot.rtb.links}
        hand = self.robot.gripper
        if hand is not None:
            model = self.robot.rtb.grippers[0]
            base = compute_link_pose(model.links[0], q)
            joints = hand.compute_model_q(model.links, driver)
            poses |= {
                link: base @ compute_link_pose(link, joints, model.links[0]) for link in model.links
            }
        return {
            name: [(mesh, make_transform(poses[link])) for link, mesh in parts]
            for name, parts in self.parts.items()
        }


def touch(first: list, second: list, margin: float = 0.0) -> bool:
    """Tell if two links' placed meshes come within a margin of each other [m]."""
    request = coal.CollisionRequest()
    request.security_margin = margin
    return any(
        coal.collide(a, Ta, b, Tb, request, coal.CollisionResult()) > 0
        for a, Ta in first
        for b, Tb in second
    )


def measure_gap(first: list, second: list) -> float:
    """Measure the least distance between two links' placed meshes, 0 if they touch [m]."""
    request = coal.DistanceRequest()
    return max(
        0.0,
        min(
            coal.distance(a, Ta, b, Tb, request, coal.DistanceResult())
            for a, Ta in first
            for b, Tb in second
        ),
    )


def make_transform(T: np.ndarray) -> coal.Transform3s:
    """Convert a pose (4, 4) for coal."""
    return coal.Transform3s(np.ascontiguousarray(T[:3, :3]), np.ascontiguousarray(T[:3, 3]))


def build_coal_mesh(meshes: list[trimesh.Trimesh]) -> coal.BVHModelOBBRSS:
    """Build one coal mesh of several surfaces."""
    mesh = join_meshes(meshes)
    bvh = coal.BVHModelOBBRSS()
    bvh.beginModel(len(mesh.faces), len(mesh.vertices))
    bvh.addVertices(np.array(mesh.vertices, order="C"))
    bvh.addTriangles(np.array(mesh.faces, np.int64, order="C"))
    bvh.endModel()
    return bvh
