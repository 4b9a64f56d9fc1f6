"""The robot registry: every robot is whole, and a wrong file is named before it does harm."""

import numpy as np
import pytest
import yaml

from envs import robots
from envs.robots import make_robot, robot_names
from td3_robot.errors import ConfigError


@pytest.mark.parametrize("name", robot_names())
def test_every_registered_robot_is_whole(name):
    robot = make_robot(name)
    n = robot.n
    assert robot.name == name
    assert robot.q.shape == robot.home.shape == robot.qdlim.shape == (n,)
    assert robot.qlim.shape == (2, n) and robot.workspace.shape == (2, 3)
    assert (robot.qlim[0] <= robot.home).all() and (robot.home <= robot.qlim[1]).all()
    assert len(robot.rtb.fkine(robot.home).A) == 4, "the model is not roboticstoolbox's"


@pytest.mark.parametrize("name", robot_names())
def test_a_robot_starts_at_home_and_keeps_its_home(name):
    robot = make_robot(name)
    np.testing.assert_array_equal(robot.q, robot.home)
    robot.q += 0.1
    assert not np.array_equal(robot.q, robot.home)
    np.testing.assert_array_equal(make_robot(name).q, robot.home)


def test_the_panda_has_its_makers_limits():
    """https://frankaemika.github.io/docs/control_parameters.html#limits-for-panda"""
    robot = make_robot("panda")
    np.testing.assert_allclose(robot.qdlim, [2.1750, 2.1750, 2.1750, 2.1750, 2.6100, 2.6100, 2.6100])
    np.testing.assert_allclose(robot.qddlim, [15, 7.5, 10, 12.5, 15, 20, 20])
    np.testing.assert_allclose(robot.qlim[0], [-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973])
    np.testing.assert_allclose(robot.qlim[1], [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973])
    assert robot._gripper.name == "panda_hand"


def test_an_unknown_robot_is_refused_with_the_valid_ones():
    with pytest.raises(ConfigError, match="robot 'pnda'; did you mean 'panda'.*valid choices:.*panda"):
        make_robot("pnda")


@pytest.mark.parametrize("name", ["../tasks/reach", "", ".", "panda.yaml"])
def test_a_name_is_no_path(name):
    with pytest.raises(ConfigError, match="unknown robot"):
        make_robot(name)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A registry of its own; call it with changes to the Panda's file."""
    values = yaml.safe_load((robots.CONFIGS / "robots" / "panda.yaml").read_text())
    (tmp_path / "robots").mkdir()
    monkeypatch.setattr(robots, "CONFIGS", tmp_path)

    def write(name="mine", without=(), **changes):
        kept = {key: value for key, value in (values | changes).items() if key not in without}
        (tmp_path / "robots" / f"{name}.yaml").write_text(yaml.safe_dump(kept))
        return values

    return write


def test_a_new_file_is_a_new_robot(files):
    files("mine", home=[0.0, -0.1, 0.0, -2.0, 0.0, 1.5, 0.0])
    assert robot_names() == ["mine"]
    assert make_robot("mine").home[1] == -0.1


def test_gripper_and_acceleration_limits_may_be_left_out(files):
    files(without=("gripper", "qddlim"))
    robot = make_robot("mine")
    assert robot._gripper is None and robot.qddlim is None


SEVEN = [1.0] * 7


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"home": SEVEN[:6]}, "home .*shape.*7"),
        ({"home": [0.0, -0.3, 0.0, 2.2, 0.0, 2.0, 0.78]}, "home .*outside qlim"),
        ({"home": [0.0, float("nan"), 0.0, -2.2, 0.0, 2.0, 0.78]}, "home must be finite"),
        ({"qlim": [SEVEN, SEVEN]}, "qlim"),
        ({"qlim": [SEVEN]}, "qlim .*shape.*2, 7"),
        ({"qdlim": [*SEVEN[:6], 0.0]}, "qdlim must be positive"),
        ({"qdlim": [*SEVEN[:6], float("inf")]}, "qdlim must be finite"),
        ({"qddlim": [*SEVEN[:6], -1.0]}, "qddlim must be positive"),
        ({"qddlim": SEVEN[:3]}, "qddlim .*shape"),
        ({"workspace": [[0, 0, 0]]}, "workspace .*shape"),
        ({"without": ("home",)}, "home missing in configs/robots/mine.yaml"),
        ({"without": ("qdlim", "workspace")}, "qdlim, workspace missing"),
        ({"qdlim": [*SEVEN[:6], "fast"]}, "qdlim must be numbers, got .*fast"),
        ({"qlim": [SEVEN, SEVEN[:3]]}, "qlim must be numbers"),
        ({"gripper": "panda_hnd"}, "gripper 'panda_hnd'.*panda_hand"),
    ],
)
def test_values_that_cannot_be_right_are_named(files, changes, words):
    files(**changes)
    with pytest.raises(ConfigError, match=words) as caught:
        make_robot("mine")
    assert "\n" not in str(caught.value)
