"""The way among obstacles beside the simulator's, and how an arm is led along it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import envs
from envs.collision import Obstacles as Around
from envs.export.robot_description import describe
from envs.planning.motion_planner import plan_path as simulated
from envs.world import get_obstacles
from td3_robot.deploy import DeployError, Robot
from td3_robot.deploy import Obstacles as Parked
from td3_robot.deploy.planning.motion_planner import AT_VIA, ROOM, PathFollower, find_clearance
from td3_robot.deploy.robot.obstacles import KINDS
from tests.double_precision import double, exact_shape

COUNT = 40


@pytest.fixture(scope="module")
def env():
    return envs.make("panda", "reach_avoid", COUNT, "cpu", 0)


@pytest.fixture
def led(env):
    return PathFollower(Robot.from_dict(describe(env.robot)))


def told(env, row):
    return {name: env.scene[name][row].double().numpy() for name in ("goal", *KINDS)}


def test_it_is_the_simulators(env):
    """In double precision and from the same numbers: a search that begins a 1e-7 beside may end
    elsewhere.
    """
    robot = Robot.from_dict(describe(env.robot))

    def single(x):
        return x.astype(np.float32).astype(float)

    limits = {name: single(getattr(robot.limits, name)) for name in ("lower", "upper", "velocity")}
    robot = replace(robot, limits=replace(robot.limits, **limits))
    chain = env.model.chain.to(dtype=torch.float64)
    collision = exact_shape(env.world.collision)
    world = replace(env.world, model=replace(double(env.model), chain=chain), collision=collision)
    q = env.state.q.double()
    around = Around(*(x.double() for x in get_obstacles(env.scene).kinds))
    via, solution = simulated(world, q, env.goal.double(), around)
    found = [PathFollower(robot)(q[row].numpy(), told(env, row)) for row in range(COUNT)]
    for name, theirs in (("via", via), ("solution", solution)):
        ours = np.array([each[name] for each in found])
        assert (np.abs(ours - theirs.numpy()).max(1) < 1e-6).mean() > 0.95
    assert not any(each["passed"][0] for each in found)


def test_an_arm_without_capsules_is_named_where_a_path_is_asked_for(env, led):
    bare = PathFollower(replace(led._robot, capsules=None))
    with pytest.raises(DeployError, match="robot 'panda' has no capsules, so no path"):
        bare(env.state.q[0].double().numpy(), told(env, 0))


def test_a_corner_is_passed_for_good_when_every_joint_is_near(env, led):
    q = env.state.q[0].double().numpy()
    scene = told(env, 0)
    via = led(q, scene)["via"]
    far = via + np.append(np.zeros(6), 1.1 * AT_VIA)
    assert not led(far, scene)["passed"][0]
    assert led(via + 0.9 * AT_VIA, scene)["passed"][0] and led(q, scene)["passed"][0]


def test_what_stands_where_the_way_ends_bars_it(env, led):
    """A ball at the wrist of the solution, which the way up to its last sample is clear of."""
    robot = led._robot
    sizes = {name: tuple(env.scene[name].shape[1:]) for name in KINDS}
    tcp = robot.chain.frames(robot.home[None])[0, -1, :3, 3]
    scene = Parked().fill_slots(sizes) | {"goal": tcp + np.array([0.0, 0.45, -0.2])}
    first = led(robot.home, scene)
    ball = np.array([[0.406, 0.525, 0.209, 0.055]])
    around = Parked(spheres=ball, ground=0.0)
    assert find_clearance(robot, first["solution"][None], around)[0] < 0.0
    again = led(robot.home, scene | Parked(spheres=ball).fill_slots(sizes))
    assert find_clearance(robot, again["solution"][None], around)[0] > ROOM


def test_it_is_looked_for_again_for_another_goal_and_where_something_moves_into_it(env, led):
    """Not for what moves elsewhere, so that a camera's noise does not make an arm change its
    mind.
    """
    row = next(row for row in range(COUNT) if (env.scene["spheres"][row, 0, 0] < 100))
    q = env.state.q[row].double().numpy()
    scene = told(env, row)
    first = led(q, scene)
    aside = scene | {"spheres": scene["spheres"] + np.array([0.0, 0.0, 0.0, -1e-3])}
    later = 0.9 * q + 0.1 * first["via"]
    assert np.array_equal(led(later, aside)["via"], first["via"])
    middle = led._robot.chain.frames(((later + first["via"]) / 2)[None])[0, -1, :3, 3]
    ball = scene["spheres"].copy()
    ball[0] = (*middle, 0.05)
    barred = led(later, scene | {"spheres": ball})
    assert not np.array_equal(barred["via"], first["via"])
    assert not np.array_equal(
        led(later, scene | {"spheres": ball, "goal": scene["goal"] + 0.01})["via"], barred["via"]
    )
