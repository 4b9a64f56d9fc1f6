"""Batched distances against coal, on the same capsules, and on the shapes and meshes that they
stand for.
"""

import functools

import coal
import numpy as np
import pytest
import torch
from spatialmath import UnitQuaternion

from envs.collision import (
    Obstacles,
    compile_collision,
    obstacle_distance,
    pair_distances,
    self_distance,
)
from envs.collision.files import read_capsules
from envs.collision.fitting.meshes import Meshes, make_transform, measure_gap, touch
from envs.collision.links import compute_link_pose
from envs.collision.pairs import NEAR
from envs.robots import make_robot

ROBOTS = ["panda", "lbr", "puma560", "ur3e", "ur5e", "vx300s", "wx250s"]
FULL = pytest.param(1000, marks=pytest.mark.slow)  # configurations
# near in every position, in part, which no distance counts
BESIDE = ("base_link_inertia", "upper_arm_link")


def coal_capsule(capsule: np.ndarray) -> tuple[coal.CollisionGeometry, np.ndarray]:
    """A capsule, and its pose in the frame of its link."""
    ends = capsule[:6].reshape(2, 3)
    extent = capsule[3:6] - capsule[:3]
    length = np.linalg.norm(extent)
    T = np.eye(4)
    T[:3, 3] = ends.mean(0)
    if length > 0:
        T[:3, :3] = np.linalg.svd(extent[None])[2].T[:, [1, 2, 0]]
        T[:3, 0] *= np.sign(np.linalg.det(T[:3, :3]))
    return coal.Capsule(float(capsule[6]), float(length)), T


class Reference:
    """A robot's capsules as coal sees them, moved by roboticstoolbox."""

    def __init__(self, robot):
        self.robot = robot
        self.shapes = {}
        self.shapes |= {
            link: list(map(coal_capsule, rows))
            for link, rows in read_capsules(robot.name).links.items()
        }
        if (hand := robot.gripper) is not None:
            rows = [row for group in read_capsules(hand.name).links.values() for row in group]
            self.shapes[hand.name] = list(map(coal_capsule, rows))

    def place(self, q: np.ndarray) -> dict[str, list]:
        """Every link's capsules with their poses in the base frame."""
        links = {link.name: link for link in self.robot.rtb.links}
        if (hand := self.robot.gripper) is not None:
            links[hand.name] = self.robot.rtb.grippers[0].links[0]
        return {
            name: [
                (shape, make_transform(compute_link_pose(links[name], q) @ T))
                for shape, T in shapes
            ]
            for name, shapes in self.shapes.items()
        }


@functools.cache
def meshes_of(name: str) -> Meshes:
    """What is drawn of a robot, read once for all tests."""
    return Meshes(make_robot(name))


def distance(first: list, second: list) -> float:
    """The least signed distance between two links' shapes."""
    return min(
        coal.distance(a, Ta, b, Tb, coal.DistanceRequest(), coal.DistanceResult())
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
@pytest.mark.parametrize("name", ROBOTS)
def test_the_arm_is_as_far_from_itself_as_coal_says(name, count):
    """No pair is closer than coal has it; where the arm is near to itself, the closest is as close,
    but for a few.
    """
    robot = make_robot(name)
    model = compile_collision(robot)
    reference = Reference(robot)
    q = configurations(robot, count)
    found = by_links(model, q)
    wrong = 0
    for row, placed in enumerate(map(reference.place, q)):
        expected = {pair: distance(placed[pair[0]], placed[pair[1]]) for pair in found}
        assert all(found[pair][row] > expected[pair] - 2e-5 for pair in found)
        held = found.keys() - {BESIDE}
        least = min(expected[pair] for pair in held)
        wrong += least < NEAR and abs(min(found[pair][row] for pair in held) - least) > 2e-5
    assert wrong <= 1 + count // 500


@pytest.mark.parametrize("count", [100, FULL])
@pytest.mark.parametrize("name", ROBOTS)
def test_no_collision_of_what_is_drawn_is_missed(name, count):
    """Whatever the gripper's opening, told or not; and few free configurations are taken for a
    collision.
    """
    robot = make_robot(name)
    model = compile_collision(robot)
    meshes = meshes_of(name)
    q = configurations(robot, count)
    hand = robot.gripper
    share = np.random.default_rng(2).uniform(size=count)
    drivers = hand.closed + share * (hand.opened - hand.closed) if hand else share
    touching = np.zeros(count, bool)
    for row, placed in enumerate(map(meshes.place, q, drivers)):
        touching[row] = any(touch(placed[a], placed[b]) for a, b in meshes.list_pairs())
    for gripper in (None, torch.tensor(drivers, dtype=torch.float32)):
        alarm = (self_distance(model, torch.tensor(q, dtype=torch.float32), gripper) <= 0).numpy()
        assert not (touching & ~alarm).any()
        assert count < 1000 or (alarm & ~touching).sum() < 0.15 * (~touching).sum()


@pytest.mark.parametrize("name", ROBOTS)
def test_capsules_are_never_farther_apart_than_what_is_drawn(name):
    robot = make_robot(name)
    model = compile_collision(robot)
    meshes = meshes_of(name)
    q = configurations(robot, 5)
    hand = robot.gripper
    found = self_distance(model, torch.tensor(q, dtype=torch.float32))
    for row in range(len(q)):
        placed = meshes.place(q[row], hand.opened if hand else 0.0)
        apart = min(
            measure_gap(placed[first], placed[second])
            for first, second in set(model.pairs) - {BESIDE}
        )
        assert apart > NEAR or found[row] <= apart + 1e-5


def test_obstacles_are_as_far_away_as_coal_says():
    """The arm's capsules against one sphere, one turned box and one wall, each other in every
    configuration.
    """
    robot = make_robot("panda")
    model = compile_collision(robot)
    reference = Reference(robot)
    q = configurations(robot, 200)
    rng = np.random.default_rng(3)
    sizes = rng.uniform(0.02, 0.2, (200, 3))
    turns = [UnitQuaternion.Rand() for _ in range(200)]
    centres = rng.uniform(-0.8, 0.8, (200, 3))
    normals = rng.normal(size=(200, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    rows = {
        "spheres": np.c_[centres, sizes[:, 0]],
        "boxes": np.c_[centres, sizes, [turn.vec for turn in turns]],
        "walls": np.c_[normals, np.full(200, -0.3)],
    }
    found = {
        kind: obstacle_distance(
            model, torch.tensor(q, dtype=torch.float32), Obstacles(**{kind: as_tensor(values)})
        )
        for kind, values in rows.items()
    }
    for row, placed in enumerate(map(reference.place, q)):
        T = np.eye(4)
        T[:3, 3] = centres[row]
        turned = T.copy()
        turned[:3, :3] = turns[row].R
        capsules = [part for link in placed.values() for part in link]
        sphere = distance(capsules, [(coal.Sphere(sizes[row, 0]), make_transform(T))])
        wall = distance(capsules, [(coal.Halfspace(normals[row], -0.3), make_transform(np.eye(4)))])
        box = distance(capsules, [(coal.Box(*(2 * sizes[row])), make_transform(turned))])
        assert found["spheres"][row] == pytest.approx(sphere, abs=2e-5)
        assert found["walls"][row] == pytest.approx(wall, abs=2e-5)
        if box > -0.02:
            assert found["boxes"][row] == pytest.approx(box, abs=1e-3)
        else:  # coal's depth is how far to move a capsule out, ours that of its deepest point
            assert found["boxes"][row] < 0


def as_tensor(rows: np.ndarray) -> torch.Tensor:
    """One obstacle for each environment."""
    return torch.tensor(rows[:, None], dtype=torch.float32)
