"""What the policy sees first: joints, then the gripper's two drivers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import envs
from envs.robots import make_robot
from envs.robots.observation import o
from envs.simulation.engine import SimState, batched_o, compile_robot
from envs.tasks.layout import Column, Layout


def test_a_gripper_that_names_no_drivers_is_taken_for_a_robotiq():
    """Its eight joints begin with right_driver and left_driver, four apart."""
    gripper = SimpleNamespace(q=np.array([0.11, 1, 2, 3, 0.22, 5, 6, 7]))
    robot = SimpleNamespace(q=np.array([0.1, 0.2, 0.3]), _gripper=gripper)
    np.testing.assert_array_equal(o(None, robot), [0.1, 0.2, 0.3, 0.11, 0.22])


def test_a_gripper_may_name_its_drivers_right_before_left():
    gripper = SimpleNamespace(q=np.array([1.0, 2.0, 3.0]), drivers=(2, 1))
    np.testing.assert_array_equal(
        o(None, SimpleNamespace(q=np.zeros(1), _gripper=gripper)), [0.0, 3.0, 2.0]
    )


def test_without_a_gripper_there_are_the_joints_alone():
    robot = SimpleNamespace(q=np.array([0.1, 0.2]), _gripper=None)
    seen = o(None, robot)
    np.testing.assert_array_equal(seen, [0.1, 0.2])
    seen[0] = 5.0
    assert robot.q[0] == 0.1, "the observation is the robot's own memory"


@pytest.mark.parametrize("args", [None, SimpleNamespace(robot="ur5"), {"seed": 3}, []])
def test_args_are_free(args):
    robot = make_robot("panda")
    robot.gripper.q[:] = [0.01, 0.03]
    np.testing.assert_array_equal(envs.o(args, robot), [*robot.home, 0.01, 0.03])


def test_lists_will_do_for_arrays():
    robot = SimpleNamespace(q=[0.1, 0.2], _gripper=SimpleNamespace(q=[0.5, 0.6], drivers=(0, 1)))
    np.testing.assert_array_equal(o(None, robot), [0.1, 0.2, 0.5, 0.6])


def test_the_batch_sees_what_each_robot_sees():
    robot = make_robot("panda")
    model = compile_robot(robot, dt=0.05)
    q = torch.randn(5, 7)
    opening = torch.rand(5) * 0.04
    seen = batched_o(model, SimState(q, torch.zeros(5, 7), opening))
    assert seen.shape == (5, 9)
    for row in range(5):
        robot.q = q[row].numpy()
        robot.gripper.q = robot.gripper.mimic * opening[row].item()
        np.testing.assert_allclose(seen[row], o(None, robot), rtol=1e-6)


def test_a_layout_gives_every_column_one_name():
    layout = Layout([Column("q", 7), Column("drivers", 2), Column("nothing", 0), Column("goal", 3)])
    assert layout.size == 12 and list(layout) == ["q", "drivers", "nothing", "goal"]
    assert [layout[name] for name in layout] == [
        slice(0, 7),
        slice(7, 9),
        slice(9, 9),
        slice(9, 12),
    ]
    with pytest.raises(KeyError):
        layout["gaol"]
