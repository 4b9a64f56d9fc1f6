"""The geometry of the filter beside the simulator's, and the shipped descriptions beside what they
were made of.
"""

import dataclasses
import json

import numpy as np
import pytest
import torch

from envs import kinematics, make_robot
from envs.collision import Obstacles as SimulatedObstacles
from envs.collision import compile_collision, compute_nearest, ground_distance, pair_distances
from envs.export.robot_description import describe
from envs.robots import shipped_robots
from td3_robot.deploy.robot.description import ROBOTS, Robot
from td3_robot.deploy.robot.obstacles import Obstacles
from td3_robot.deploy.safety.safety_filter import SafetyFilter
from td3_robot.errors import ConfigError

SPHERES = np.array([[0.4, 0.1, 0.3, 0.1], [-0.3, 0.2, 0.6, 0.05]])
BOXES = np.array(
    [
        [0.5, 0.0, 0.2, 0.1, 0.2, 0.1, 0.5, 0.5, -0.5, 0.5],
        [0.1, -0.4, 0.5, 0.05, 0.1, 0.2, 1, 0, 0, 0],
    ]
)
WALLS = np.array([[0.6, 0.8, 0.0, -0.5]])


@pytest.fixture(scope="module", params=["panda", "ur5e", "vx300s"])
def both(request):
    """A robot as the simulator has it, in double precision, as its description says, and
    configurations of it.
    """
    robot = make_robot(request.param)
    model = compile_collision(robot)
    floats = {
        key: value
        for key, value in vars(model).items()
        if torch.is_tensor(value) and value.is_floating_point()
    }
    double = {key: value.double() for key, value in floats.items()}
    chain = model.chain.to(dtype=torch.float64)
    points = tuple((body, local.double()) for body, local in model.points)
    model = dataclasses.replace(model, chain=chain, points=points, **double)
    q = np.random.default_rng(0).uniform(*robot.qlim, (300, robot.n))
    return model, Robot.load(request.param), q


def test_kinematics_are_the_simulators(both):
    model, robot, q = both
    frames = robot.chain.frames(q)
    T, J = kinematics.fkine_jacob0(model.chain, torch.tensor(q))
    assert np.allclose(frames[:, -1], T, atol=1e-6) and np.allclose(
        robot.chain.jacobian(frames), J, atol=1e-6
    )


def test_distances_are_the_simulators(both):
    model, robot, q = both
    at = robot.capsules.place(robot.chain.frames(q))
    assert (
        np.abs(
            robot.capsules.measure_self(at) - pair_distances(model, torch.tensor(q)).numpy()
        ).max()
        < 1e-6
    )
    ground = robot.capsules.measure_surroundings(at, Obstacles(ground=0.1)).min(1)
    assert np.abs(ground - ground_distance(model, torch.tensor(q), 0.1).numpy()).max() < 1e-6
    for name, value in (("spheres", SPHERES), ("boxes", BOXES), ("walls", WALLS)):
        ours = robot.capsules.measure_surroundings(at, Obstacles(**{name: value})).min(1)
        theirs = compute_nearest(
            model, torch.tensor(q), SimulatedObstacles(**{name: torch.tensor(value)[None]})
        )
        theirs = theirs.distance[:, :-1].amin(1).numpy()
        # deeper, a capsule's segment may be inside a box, where half of the depth is enough here
        clear = theirs > -float(model.radius.min())
        assert np.abs(np.minimum(ours, 10.0) - theirs)[clear].max() < 1e-6
        assert clear.sum() > 10 and (ours[~clear] <= 0.5 * theirs[~clear]).all()


def test_no_motion_changes_a_distance_faster_than_the_reach_says(both):
    _, robot, q = both
    reach = robot.capsules.find_reach(robot.chain, np.ptp(q, axis=0))
    step = np.random.default_rng(1).uniform(-1e-3, 1e-3, q.shape)
    obstacles = Obstacles(spheres=SPHERES, boxes=BOXES, walls=WALLS, ground=0.0)
    before, after = (
        robot.capsules.find_clearance(robot.chain.frames(x), obstacles) for x in (q, q + step)
    )
    assert (np.abs(after - before) <= np.abs(step) @ reach + 1e-9).all()


@pytest.mark.parametrize("name", shipped_robots())
def test_shipped_descriptions_are_what_is_described_now(name):
    """Where this fails a robot's files have changed: python export.py --robot NAME."""
    shipped = json.loads((ROBOTS / f"{name}.json").read_text())
    now = describe(make_robot(name))
    assert (
        shipped["joints"] == now["joints"]
        and shipped["limits"] == now["limits"]
        and shipped["home"] == now["home"]
    )
    assert np.allclose(shipped["chain"]["constants"], now["chain"]["constants"], atol=1e-7)
    for key in ("bodies", "first", "second", "over_ground"):
        assert shipped["capsules"][key] == now["capsules"][key]
    assert np.allclose(shipped["capsules"]["ends"], now["capsules"]["ends"], atol=1e-7)


def test_a_robot_from_a_file_is_described_with_an_acceleration_that_is_said(tmp_path):
    joint = '<joint name="{}" type="revolute"><parent link="{}"/>'
    joint += '<child link="{}"/><origin xyz="0 0 0.3"/>'
    joint += '<axis xyz="0 1 0"/><limit lower="-2" upper="2" velocity="2"/></joint>'
    links = "".join(f'<link name="{name}"/>' for name in ("base", "upper", "tcp"))
    text = links + joint.format("shoulder", "base", "upper") + joint.format("elbow", "upper", "tcp")
    (tmp_path / "two.urdf").write_text(f'<robot name="two">{text}</robot>')
    robot = make_robot(str(tmp_path / "two.urdf"))
    with pytest.raises(ConfigError, match="no acceleration limits.*--acceleration"):
        describe(robot)
    described = Robot.from_dict(json.loads(json.dumps(describe(robot, 5.0))))
    assert described.joints == ("shoulder", "elbow") and described.limits.acceleration.tolist() == [
        5.0,
        5.0,
    ]
    safe = SafetyFilter(described)
    safe.reset(described.home)
    assert safe(np.full(2, 0.1)).shape == (2,)
