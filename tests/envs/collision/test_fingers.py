"""A gripper at its present opening: where fingers and finger tips are, in every query, against the
drawn meshes.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import envs.collision.files
from envs.collision import (
    Obstacles,
    clearance,
    compile_collision,
    compute_nearest,
    ground_distance,
    link_clearance,
    obstacle_distance,
    pair_distances,
    self_distance,
)
from envs.collision.files import BASE, CAPSULES, FINGERS, Shapes, write_capsules
from envs.collision.fitting.capsule import fit_capsule
from envs.collision.fitting.gripper import collect_moving_meshes, find_outermost, sweep_fingers
from envs.collision.fitting.shapes import make_mesh, select_shapes
from envs.collision.links import compute_link_pose, find_carrier
from envs.collision.queries import CACHE_ROWS
from envs.collision.surroundings import MOST
from envs.robots import make_robot
from td3_robot.errors import ConfigError
from tests.envs.collision.test_proximity import in_float64
from tests.envs.collision.test_queries import draw

ARMS = {"panda": "panda_hand", "ur5e": "robotiq_2f_85"}


def base_vertices(robot) -> np.ndarray:
    """(N, 3) of what no driver moves, in the frame of the gripper's base."""
    model = robot.rtb.grippers[0]
    rigid = []
    for link in model.links:
        if select_shapes(link) and find_carrier(link, model.links[0]) is model.links[0]:
            T = compute_link_pose(link, np.zeros(model.n), model.links[0])
            rigid += [make_mesh(shape).apply_transform(T).vertices for shape in select_shapes(link)]
    return np.concatenate(rigid)


@pytest.fixture(scope="module", params=ARMS)
def arm(request, tmp_path_factory):
    """A robot, and its model with one capsule around each part of the gripper."""
    folder = tmp_path_factory.mktemp("capsules")
    robot = make_robot(request.param)
    name = ARMS[request.param]
    model = robot.rtb.grippers[0]
    hand = robot.gripper
    meshes = {link: mesh.vertices for link, mesh in collect_moving_meshes(model, hand).items()}
    corners = {link: find_outermost(points) for link, points in meshes.items()} | {
        BASE: find_outermost(base_vertices(robot))
    }
    moving = {link: [fit_capsule(points, thorough=False)] for link, points in meshes.items()}
    swept = np.concatenate([mesh.vertices for mesh in sweep_fingers(model, hand)])
    links = {
        "palm": [fit_capsule(base_vertices(robot), thorough=False)],
        FINGERS: [fit_capsule(swept, thorough=False)],
    }
    write_capsules(folder / f"{name}.yaml", "arm", Shapes(links, (), moving, corners))
    (folder / f"{robot.name}.yaml").write_text((CAPSULES / f"{robot.name}.yaml").read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envs.collision.files, "CAPSULES", folder)
        return robot, compile_collision(robot)


def openings(robot, count: int) -> torch.Tensor:
    hand = robot.gripper
    return hand.closed + (hand.opened - hand.closed) * torch.rand(count)


def finger_vertices(robot, q: np.ndarray, driver: float) -> np.ndarray:
    """(N, 3) of all that is drawn of the fingers, in the base frame, by roboticstoolbox."""
    model = robot.rtb.grippers[0]
    hand = robot.gripper
    root = model.links[0]
    joints = hand.compute_model_q(model.links, driver)
    base = compute_link_pose(root, q)
    found = []
    for link in model.links:
        if select_shapes(link) and find_carrier(link, root) is not root:
            T = base @ compute_link_pose(link, joints, root)
            found += [
                make_mesh(shape).vertices @ T[:3, :3].T + T[:3, 3] for shape in select_shapes(link)
            ]
    return np.concatenate(found)


def test_a_gripper_is_as_high_above_the_ground_as_it_is_drawn(arm):
    """To a millimetre, however it is held and opened."""
    robot, model = arm
    q = draw(robot, 10)
    drivers = openings(robot, 10)
    found = link_clearance(model, q, ground=0.0, gripper=drivers)[:, -1]
    for height, row, driver in zip(found.tolist(), q.double().numpy(), drivers.tolist()):
        palm = moved_points(
            compute_link_pose(robot.rtb.grippers[0].links[0], row), base_vertices(robot)
        )
        lowest = min(palm[:, 2].min(), finger_vertices(robot, row, driver)[:, 2].min())
        assert -1e-5 <= height - lowest < 0.001


def moved_points(T: np.ndarray, points: np.ndarray) -> np.ndarray:
    return points @ T[:3, :3].T + T[:3, 3]


def test_the_ground_is_as_far_for_every_query(arm):
    robot, model = arm
    q = draw(robot, 100)
    drivers = openings(robot, 100)
    ground = ground_distance(model, q, -0.1, drivers)
    assert_close(ground, link_clearance(model, q, ground=-0.1, gripper=drivers).amin(1))
    own = self_distance(model, q, drivers)
    assert_close(own, pair_distances(model, q, drivers).amin(1))
    assert_close(clearance(model, q, ground=-0.1, gripper=drivers), torch.minimum(own, ground))


def test_capsules_hold_the_fingers_at_every_opening(arm):
    robot, model = arm
    q = draw(robot, 10)
    drivers = openings(robot, 10)
    for row, driver in zip(q, drivers):
        points = torch.tensor(
            finger_vertices(robot, row.double().numpy(), driver.item())[::7], dtype=torch.float32
        )
        spheres = torch.cat((points, torch.full((len(points), 1), 1e-6)), 1)[:, None]
        alone = row.expand(len(points), -1), Obstacles(spheres), driver.expand(len(points))
        assert obstacle_distance(model, *alone).max() < 2e-5


def test_a_thing_between_open_fingers_is_clear_and_one_between_shut_ones_is_not(arm):
    robot, model = arm
    q = torch.tensor(robot.home, dtype=torch.float32)[None]
    hand = robot.gripper
    tcp = robot.rtb.fkine(robot.home).t
    thing = Obstacles(torch.tensor([[[*tcp, 0.002]]], dtype=torch.float32))
    assert obstacle_distance(model, q, thing, torch.tensor([hand.opened])) > 0
    assert obstacle_distance(model, q, thing) < 0


def test_a_batch_is_its_rows_one_by_one(arm):
    robot, model = arm
    q = draw(robot, CACHE_ROWS + 3)
    drivers = openings(robot, CACHE_ROWS + 3)
    found = clearance(model, q, ground=0.0, gripper=drivers)
    for rows in (slice(0, 1), slice(CACHE_ROWS - 1, CACHE_ROWS + 1)):
        assert_close(found[rows], clearance(model, q[rows], ground=0.0, gripper=drivers[rows]))


def test_distances_change_with_the_joints_as_their_gradients_say(arm):
    """By central differences, in float64, where both sides of a step have the same nearest pair or
    corner.
    """
    robot, model = arm
    at = in_float64(model.at_opening)
    model = replace(
        in_float64(model), at_opening=replace(at, fingers=in_float64_fingers(at.fingers))
    )
    q = draw(robot, 200).double()
    drivers = openings(robot, 200).double()
    found = compute_nearest(model, q, ground=-0.2, gripper=drivers)
    assert_close(found.distance[:, -1], self_distance(model, q, drivers).clamp(max=MOST))
    right = 0
    for joint in range(robot.n):
        step = torch.zeros(robot.n, dtype=torch.float64)
        step[joint] = 1e-6
        up, down = (
            compute_nearest(model, q + side * step, ground=-0.2, gripper=drivers).distance
            for side in (1, -1)
        )
        right += ((up - down) / 2e-6 - found.gradient[:, :, joint]).abs() < 1e-4
    assert (right == robot.n).double().mean() > 0.97


def in_float64_fingers(fingers):
    corners = tuple((body, local.double()) for body, local in fingers.corners)
    return replace(fingers, poses=fingers.poses.double(), corners=corners)


def test_an_opening_without_fingers_in_the_file_changes_nothing(arm):
    robot, model = arm
    q = draw(robot, 10)
    swept = replace(model, at_opening=None)
    assert_close(
        clearance(swept, q, ground=0.0, gripper=openings(robot, 10)),
        clearance(model, q, ground=0.0),
    )


def test_an_opening_for_each_row_is_asked_for(arm):
    robot, model = arm
    with pytest.raises(ConfigError, match=r"gripper must have shape \(10,\), got \(10, 2\)"):
        clearance(model, draw(robot, 10), gripper=torch.zeros(10, 2))
