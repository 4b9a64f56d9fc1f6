"""What each link is nearest to: against the arm's clearance, a search over points of the capsules,
and differences.
"""

from dataclasses import replace

import numpy as np
import pytest
import roboticstoolbox as rtb
import torch
from torch.testing import assert_close

from envs.collision import (
    Obstacles,
    clearance,
    compile_collision,
    compute_nearest,
    link_clearance,
    link_poses,
    self_distance,
)
from envs.collision.compiler import place_capsules
from envs.collision.files import Shapes, read_capsules
from envs.collision.geometry import box_gap
from envs.collision.pairs import choose_pairs
from envs.collision.surroundings import MOST
from envs.kinematics import compile_ets
from envs.robots import Robot, make_robot
from envs.robots.body import take_links
from tests.envs.collision.test_queries import draw, random_obstacles

GROUND = 0.02


@pytest.fixture(scope="module")
def panda():
    robot = make_robot("panda")
    return robot, compile_collision(robot)


def in_float64(model):
    return replace(
        model,
        chain=model.chain.to(dtype=torch.float64),
        points=tuple((body, local.double()) for body, local in model.points),
        **{
            name: getattr(model, name).double()
            for name in ("length_squared", "radius", "joints_below")
        },
    )


def doubled(obstacles: Obstacles) -> Obstacles:
    return Obstacles(*(value.double() for value in obstacles.kinds))


# A segment and a box


@pytest.fixture(scope="module")
def segments_and_boxes():
    generator = torch.Generator().manual_seed(0)
    p, d, half = torch.rand(3, 3, 3000, generator=generator, dtype=torch.float64) - 0.5
    d[:, ::10] = 0.0  # points
    d[1:, 5::10] = 0.0  # along an axis
    return p, d, half.abs() + 0.01


def test_the_point_of_a_segment_nearest_to_a_box_is_where_the_distance_is(segments_and_boxes):
    p, d, half = segments_and_boxes
    found, normal, s = box_gap(p, d, half)
    assert 500 < (found > 0).sum() < 2500
    point = box_gap(p + s * d, 0 * d, half)
    assert_close(point[0], found)
    assert_close(torch.linalg.vector_norm(normal, dim=0), torch.ones(3000, dtype=torch.float64))
    assert ((s >= 0) & (s <= 1)).all()


def test_along_its_normal_a_segment_leaves_a_box_as_fast_as_it_moves(segments_and_boxes):
    p, d, half = segments_and_boxes
    found, normal, _ = box_gap(p, d, half)
    farther, _, _ = box_gap(p + 1e-5 * normal, d, half)
    outside = found > 0
    assert_close(
        (farther - found)[outside],
        torch.full((int(outside.sum()),), 1e-5, dtype=torch.float64),
        rtol=1e-2,
        atol=0,
    )


# Arms


def test_the_least_of_all_links_and_the_arm_itself_is_its_clearance(panda):
    robot, model = panda
    q = draw(robot, 500)
    obstacles = random_obstacles(500)
    whole = clearance(model, q, obstacles, GROUND)
    found = compute_nearest(model, q, obstacles, GROUND)
    least = found.distance.amin(1)
    assert 100 < (whole > -0.02).sum() < 450
    assert_close(least, whole, atol=1e-6, rtol=0)
    assert_close(found.distance[:, -1], self_distance(model, q))
    assert_close(found.distance[:, :-1], link_clearance(model, q, obstacles, GROUND))


def test_each_link_has_its_own_distance(panda):
    """Points along the capsules of each link, placed by the links' poses, held against each shape's
    definition.
    """
    robot, model = panda
    q = draw(robot, 40)
    obstacles = random_obstacles(40)
    capsules = {
        **read_capsules("panda").links,
        "panda_hand": sum(read_capsules("panda_hand").links.values(), []),
    }
    expected = np.full((40, len(model.links)), np.inf)
    for link, (name, T) in enumerate(
        zip(model.links, link_poses(model, q).double().numpy().transpose(1, 0, 2, 3))
    ):
        for capsule in capsules[name]:
            local = capsule[:3] + np.linspace(0, 1, 300)[:, None] * (capsule[3:6] - capsule[:3])
            points = local @ T[:, :3, :3].transpose(0, 2, 1) + T[:, None, :3, 3]  # (40, 300, 3)
            near = to_obstacles(points, obstacles)
            if name not in ("panda_link0", "panda_link1"):
                near = np.minimum(near, points[:, :, 2].min(1) - GROUND)
            expected[:, link] = np.minimum(expected[:, link], near - capsule[6])
    found = link_clearance(model, q, obstacles, GROUND).numpy()
    outside = expected > -0.02
    np.testing.assert_allclose(found[outside], expected[outside], atol=2e-4)
    assert (found[~outside] < -0.01).all()


def to_obstacles(points: np.ndarray, obstacles: Obstacles) -> np.ndarray:
    """The least signed distance (B,) of points (B, N, 3) to any of their obstacles."""
    spheres, boxes, walls = (value.double().numpy() for value in obstacles.kinds)
    near = [
        np.linalg.norm(points[:, :, None] - spheres[:, None, :, :3], axis=3)
        - spheres[:, None, :, 3]
    ]
    near.append((points[:, :, None] * walls[:, None, :, :3]).sum(3) - walls[:, None, :, 3])
    w = boxes[:, None, :, 6:7]
    v = -boxes[:, None, :, 7:]  # the inverse turn
    r = points[:, :, None] - boxes[:, None, :, :3]
    v, r = np.broadcast_arrays(v, r)
    turned = r + 2 * np.cross(v, np.cross(v, r) + w * r)
    beyond = np.abs(turned) - boxes[:, None, :, 3:6]
    near.append(np.linalg.norm(np.maximum(beyond, 0), axis=3) + np.minimum(beyond.max(3), 0))
    return np.concatenate(near, 2).min((1, 2))


def sliding_arm() -> Robot:
    """A joint that slides along y, two that turn, one that slides along the arm, and a last one
    that turns.
    """
    parts = [
        rtb.ET.ty(),
        rtb.ET.Rz(),
        rtb.ET.tx(0.4),
        rtb.ET.Ry(),
        rtb.ET.tx(0.4),
        rtb.ET.tx(),
        rtb.ET.Rz(),
        rtb.ET.tx(0.3),
    ]
    ets = rtb.ETS(parts)
    qlim = np.array([[-0.5, -3.0, -3.0, 0.0, -3.0], [0.5, 3.0, 3.0, 0.3, 3.0]])
    home = np.array([0, 0.1, 0.1, 0.1, 0.1])
    box = np.array([[-1.0] * 3, [1.0] * 3])
    model = rtb.Robot(ets)
    limits = (home, qlim, np.ones(5), None, box, None)
    return Robot("sliding", lambda: model, take_links(model), compile_ets(ets), *limits)


def sliding():
    robot = sliding_arm()
    shapes = {link.name: [np.array([0, 0, 0, -0.15, 0, 0, 0.03])] for link in robot.rtb.links[1:]}
    return robot, choose_pairs(place_capsules(robot, Shapes(shapes)), robot.qlim, robot.home)


@pytest.mark.parametrize("arm", ["panda", "sliding"])
def test_gradients_are_differences(panda, arm):
    robot, model = panda if arm == "panda" else sliding()
    model = in_float64(model)
    h = 1e-6
    q = draw(robot, 200).double()
    obstacles = doubled(random_obstacles(200))
    found = compute_nearest(model, q, obstacles, GROUND)
    assert found.gradient.shape == (*found.distance.shape, robot.n)
    for joint in range(robot.n):
        dq = h * torch.eye(robot.n, dtype=torch.float64)[joint]
        ahead, behind = (
            compute_nearest(model, q + step, obstacles, GROUND).distance for step in (dq, -dq)
        )
        wrong = ((ahead - behind) / (2 * h) - found.gradient[:, :, joint]).abs() > 1e-4
        wrong &= found.distance > -0.02  # deeper, a capsule's segment may be inside a box
        assert wrong.double().mean() < 0.002  # where what is nearest changes
    moved = found.gradient.abs().amax(0) > 0.05
    assert moved[:, :-1].any(0).all() and moved[1:-1].any(1).sum() > 2


def test_where_there_is_nothing_it_is_far_and_flat(panda):
    robot, model = panda
    found = compute_nearest(model, draw(robot, 5))
    assert (found.distance[:, :-1] == MOST).all() and not found.gradient[:, :-1].any()
    assert (link_clearance(model, draw(robot, 5)) == MOST).all()
    alone = replace(model, first=model.first[:0], second=model.second[:0])
    assert (compute_nearest(alone, draw(robot, 5)).distance == MOST).all()


def test_a_batch_is_its_rows_and_shared_obstacles_are_everyones(panda):
    robot, model = panda
    q = draw(robot, 20)
    obstacles = random_obstacles(20)
    shared = random_obstacles(1)
    for around, of_row in ((obstacles, obstacles.select_rows), (shared, lambda rows: shared)):
        found = compute_nearest(model, q, around, GROUND)
        for row in (0, 7, 19):
            rows = slice(row, row + 1)
            alone = compute_nearest(model, q[rows], of_row(rows), GROUND)
            assert_close(found.distance[rows], alone.distance)
            assert_close(found.gradient[rows], alone.gradient, atol=1e-5, rtol=1e-4)


def test_nothing_waits_for_the_device(panda):
    """On the meta device a tensor has no values: whoever asks for one raises."""
    robot, model = panda
    q = draw(robot, 8).to("meta")
    obstacles = random_obstacles(8)
    obstacles = Obstacles(*(value.to("meta") for value in obstacles.kinds))
    assert compute_nearest(model.to("meta"), q, obstacles, 0.0).gradient.shape == (
        8,
        len(model.links) + 1,
        7,
    )
