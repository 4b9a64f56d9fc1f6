"""Batched distances against coal, on the same capsules, and on the shapes and meshes that they stand for."""

import coal
import numpy as np
import pytest
import torch
from spatialmath import UnitQuaternion

from envs.collision import Obstacles, compile_collision, obstacle_distance, pair_distances, self_distance
from envs.collision.files import read_capsules
from envs.collision.fitting.shapes import shape_mesh
from envs.collision.links import link_pose
from envs.robots import make_robot

FITTED = ["lbr", "puma560", "ur3e", "ur5e", "vx300s", "wx250s"]
FULL = pytest.param(1000, marks=pytest.mark.slow)  # configurations


def transform(T: np.ndarray) -> coal.Transform3s:
    return coal.Transform3s(np.ascontiguousarray(T[:3, :3]), np.ascontiguousarray(T[:3, 3]))


def coal_capsule(capsule: np.ndarray) -> tuple[coal.CollisionGeometry, np.ndarray]:
    """A capsule, and its pose in the frame of its link."""
    ends, extent = capsule[:6].reshape(2, 3), capsule[3:6] - capsule[:3]
    length = np.linalg.norm(extent)
    T = np.eye(4)
    T[:3, 3] = ends.mean(0)
    if length > 0:
        T[:3, :3] = np.linalg.svd(extent[None])[2].T[:, [1, 2, 0]]
        T[:3, 0] *= np.sign(np.linalg.det(T[:3, :3]))
    return coal.Capsule(float(capsule[6]), float(length)), T


def coal_shape(shape) -> tuple[coal.CollisionGeometry, np.ndarray]:
    """A model's own collision shape, and its pose in the frame of its link."""
    if shape.stype == "sphere":
        return coal.Sphere(shape.radius), np.asarray(shape.T)
    if shape.stype == "cylinder":
        return coal.Cylinder(shape.radius, shape.length), np.asarray(shape.T)
    mesh, bvh = shape_mesh(shape), coal.BVHModelOBBRSS()
    bvh.beginModel(len(mesh.faces), len(mesh.vertices))
    bvh.addVertices(np.array(mesh.vertices, order="C"))
    bvh.addTriangles(np.array(mesh.faces, np.int64, order="C"))
    bvh.endModel()
    return bvh, np.eye(4)


class Reference:
    """A robot's links as coal sees them, moved by roboticstoolbox.

    Args:
        robot: the robot; its gripper stands as open as `driver` says.
        own: True for the model's own shapes, False for our capsules.
    """

    def __init__(self, robot, own: bool):
        self.robot, hand = robot, robot._gripper
        self.shapes, self.moving = {}, {}
        files = {} if own else read_capsules(robot.name).links
        for link in robot.rtb.links:
            shapes = [coal_shape(s) for s in link.collision] if own else map(coal_capsule, files.get(link.name, []))
            self.shapes[link.name] = list(shapes)
        if hand is not None and not own:
            self.shapes[hand.name] = [coal_capsule(c) for row in read_capsules(hand.name).links.values() for c in row]
        elif hand is not None:
            self.moving = {link: [coal_shape(s) for s in link.collision] for link in robot.rtb.grippers[0].links}

    def place(self, q: np.ndarray, driver: float | None = None) -> dict[str, list]:
        """Every link's shapes with their poses in the base frame."""
        poses = self.robot.rtb.fkine_all(q)
        frames = {link.name: poses[link.number].A for link in self.robot.rtb.links}
        placed = {
            name: [(shape, transform(frames[name] @ T)) for shape, T in shapes]
            for name, shapes in self.shapes.items()
            if name in frames
        }
        if (hand := self.robot._gripper) is not None:
            model = self.robot.rtb.grippers[0]
            flange = frames[model.links[0].parent.name]
            base = flange @ model.links[0].A().A
            if driver is None:
                placed[hand.name] = [(shape, transform(base @ T)) for shape, T in self.shapes.get(hand.name, [])]
            else:
                joints = hand.model_q(model, driver)
                placed[hand.name] = [
                    (shape, transform(base @ link_pose(link, joints, model.links[0]) @ T))
                    for link, shapes in self.moving.items()
                    for shape, T in shapes
                ]
        return placed


def distance(first: list, second: list) -> float:
    """The least signed distance between two links' shapes."""
    return min(
        coal.distance(a, Ta, b, Tb, coal.DistanceRequest(), coal.DistanceResult())
        for a, Ta in first
        for b, Tb in second
    )


def collide(first: list, second: list) -> bool:
    return any(
        coal.collide(a, Ta, b, Tb, coal.CollisionRequest(), coal.CollisionResult()) > 0
        for a, Ta in first
        for b, Tb in second
    )


def configurations(robot, count: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(*robot.qlim, (count, robot.n))


def by_links(model, q: np.ndarray) -> dict[tuple[str, str], np.ndarray]:
    """Our distances (B,), the least of each checked pair of links."""
    found = pair_distances(model, torch.tensor(q, dtype=torch.float32)).numpy()
    columns = {}
    for column, pair in enumerate(model.pairs):
        columns.setdefault(pair, []).append(column)
    return {pair: found[:, chosen].min(1) for pair, chosen in columns.items()}


@pytest.mark.parametrize("count", [50, FULL])
@pytest.mark.parametrize("name", ["panda", *FITTED])
def test_every_pair_of_capsules_is_as_far_apart_as_coal_says(name, count):
    robot = make_robot(name)
    model, reference = compile_collision(robot), Reference(robot, own=False)
    q = configurations(robot, count)
    found = by_links(model, q)
    for row, placed in enumerate(map(reference.place, q)):
        for (first, second), distances in found.items():
            assert distances[row] == pytest.approx(distance(placed[first], placed[second]), abs=2e-5)


def test_the_panda_is_as_clear_as_its_own_cylinders_and_spheres_are():
    """Within 1 mm where they are apart; where they are not, both say so. The fingers are part of the hand's shapes."""
    robot = make_robot("panda")
    model, reference = compile_collision(robot), Reference(robot, own=True)
    q = configurations(robot, 1000)
    found, links = self_distance(model, torch.tensor(q, dtype=torch.float32)).numpy(), set(model.pairs)
    placed = [reference.place(row, driver=0.04) for row in q]
    expected = np.array([min(distance(links_at[a], links_at[b]) for a, b in links) for links_at in placed])
    apart = expected > 0
    assert apart.sum() > 500 and (~apart).sum() > 20
    assert np.abs(found - expected)[apart].max() < 0.001
    assert (found[~apart] <= 0).all()


@pytest.mark.parametrize("count", [100, FULL])
@pytest.mark.parametrize("name", FITTED)
def test_no_collision_of_the_meshes_is_missed(name, count):
    """Whatever the gripper's opening; nor does a pair collide that is not checked, but for neighbours."""
    robot = make_robot(name)
    model, reference = compile_collision(robot), Reference(robot, own=True)
    q, hand = configurations(robot, count), robot._gripper
    found, never = by_links(model, q), [pair[:2] for pair in model.allowed if pair[2] != "neighbours"]
    collisions = 0
    for row, opening in enumerate(np.random.default_rng(2).uniform(size=count)):
        placed = reference.place(q[row], hand and hand.closed + opening * (hand.opened - hand.closed))
        for (first, second), distances in found.items():
            if collide(placed[first], placed[second]):
                assert distances[row] <= 0, (first, second, q[row])
                collisions += 1
        for first, second in never:
            assert not collide(placed[first], placed[second]), (first, second, q[row])
    assert collisions > 0


@pytest.mark.parametrize("name", FITTED)
def test_capsules_are_never_farther_apart_than_their_meshes(name):
    robot = make_robot(name)
    model, reference = compile_collision(robot), Reference(robot, own=True)
    q, hand = configurations(robot, 10), robot._gripper
    found = by_links(model, q)
    for row in range(len(q)):
        placed = reference.place(q[row], hand and hand.opened)
        for (first, second), distances in found.items():
            assert distances[row] <= max(distance(placed[first], placed[second]), 0) + 1e-5


def test_obstacles_are_as_far_away_as_coal_says():
    """The arm's capsules against one sphere, one turned box and one wall, each other in every configuration."""
    robot = make_robot("panda")
    model, reference = compile_collision(robot), Reference(robot, own=False)
    q, rng = configurations(robot, 200), np.random.default_rng(3)
    sizes, turns = rng.uniform(0.02, 0.2, (200, 3)), [UnitQuaternion.Rand() for _ in range(200)]
    centres, normals = rng.uniform(-0.8, 0.8, (200, 3)), rng.normal(size=(200, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    rows = {
        "spheres": np.c_[centres, sizes[:, 0]],
        "boxes": np.c_[centres, sizes, [turn.vec for turn in turns]],
        "walls": np.c_[normals, np.full(200, -0.3)],
    }
    found = {
        kind: obstacle_distance(model, torch.tensor(q, dtype=torch.float32), Obstacles(**{kind: as_tensor(values)}))
        for kind, values in rows.items()
    }
    for row, placed in enumerate(map(reference.place, q)):
        T = np.eye(4)
        T[:3, 3] = centres[row]
        turned = T.copy()
        turned[:3, :3] = turns[row].R
        capsules = [part for link in placed.values() for part in link]
        sphere = distance(capsules, [(coal.Sphere(sizes[row, 0]), transform(T))])
        wall = distance(capsules, [(coal.Halfspace(normals[row], -0.3), transform(np.eye(4)))])
        box = distance(capsules, [(coal.Box(*(2 * sizes[row])), transform(turned))])
        assert found["spheres"][row] == pytest.approx(sphere, abs=2e-5)
        assert found["walls"][row] == pytest.approx(wall, abs=2e-5)
        if box > -0.02:
            assert found["boxes"][row] == pytest.approx(box, abs=1e-3)
        else:  # coal's depth is how far to move a capsule out, ours that of its deepest point
            assert found["boxes"][row] < 0


def as_tensor(rows: np.ndarray) -> torch.Tensor:
    """One obstacle for each environment."""
    return torch.tensor(rows[:, None], dtype=torch.float32)
