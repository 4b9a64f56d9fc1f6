"""Robots from files: home and workspace worked out from the model, and an arm that learns can be
made of them.
"""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from envs.arm_env.arm_env import ArmEnv
from envs.kinematics import fkine, jacob0
from envs.robots import Robot
from envs.robots.from_file import find_home, find_workspace, make_robot_from_file
from envs.robots.urdf import load_urdf
from envs.tasks.registry import make_task
from td3_robot.errors import ConfigError

GANTRY = Path(__file__).parents[1] / "data" / "gantry.urdf"


@pytest.fixture(scope="module")
def gantry() -> Robot:
    return make_robot_from_file(str(GANTRY))


def tcp_at(robot: Robot, q) -> np.ndarray:
    return fkine(robot.chain, torch.as_tensor(np.array(q), dtype=torch.float32)[None])[
        0, :3, 3
    ].numpy()


def test_a_file_makes_a_robot(gantry):
    assert (gantry.name, gantry.n, gantry.gripper, gantry.qddlim) == ("gantry", 3, None, None)
    assert gantry.qdlim.tolist() == [0.5, 2.0, 3.0]


def assert_central(chain, box, home, margin=0.25) -> None:
    """The TCP is in the middle half of the box, or, with a margin of 0.5, in the box."""
    tcp = fkine(chain, torch.as_tensor(home, dtype=torch.float32)[None])[0, :3, 3].numpy()
    assert (np.abs(tcp - box.mean(0)) <= margin * np.ptp(box, axis=0) + 1e-6).all()


def worst_speed(chain, q: np.ndarray, directions: int = 3) -> np.ndarray:
    """(B,) how fast the TCP moves, for joint velocities of norm 1, in the worst of the directions
    it can move in.
    """
    J = jacob0(chain, torch.as_tensor(q, dtype=torch.float32))[:, :3]
    return torch.linalg.svdvals(J)[:, directions - 1].numpy()


def test_home_is_inside_the_limits_with_the_tcp_in_the_box_and_able_to_move_any_way(gantry):
    lower, upper = gantry.qlim
    assert (lower + 0.1 * (upper - lower) < gantry.home).all() and (
        gantry.home < upper - 0.1 * (upper - lower)
    ).all()
    assert_central(gantry.chain, gantry.workspace, gantry.home)
    assert worst_speed(gantry.chain, gantry.home[None]) > 0.05


def test_the_box_is_in_front_and_above_and_can_be_reached(gantry):
    low, high = gantry.workspace
    assert low[0] > 0 and low[2] > 0 and (high - low > 0.1).all()
    q = np.random.default_rng(3).uniform(*gantry.qlim, (4000, 3))
    tcp = fkine(gantry.chain, torch.tensor(q, dtype=torch.float32))[:, :3, 3].numpy()
    inside = ((tcp > low) & (tcp < high)).all(1)
    in_front = (tcp[:, 0] > low[0]) & (tcp[:, 2] > low[2])
    assert inside.sum() > 0.5 * in_front.sum()


def test_the_same_file_gives_the_same_robot(gantry):
    again = make_robot_from_file(str(GANTRY))
    assert np.array_equal(again.home, gantry.home) and np.array_equal(
        again.workspace, gantry.workspace
    )


def written(folder: Path, axis: str, offset: str, lift: str = "0 0 0") -> Path:
    """Three links that turn about parallel axes, each as long as the offset."""
    joint = '<joint name="j{0}" type="revolute"><parent link="l{0}"/><child link="l{1}"/><origin xyz="{2}"/>'
    joint += f'<axis xyz="{axis}"/><limit lower="-3" upper="3" velocity="1"/></joint><link name="l{{1}}"/>'
    tip = f'<joint name="t" type="fixed"><parent link="l3"/><child link="tcp"/><origin xyz="{offset}"/></joint>'
    path = folder / "flat.urdf"
    links = '<link name="l0"/><link name="tcp"/>'
    chain = joint.format(0, 1, lift) + joint.format(1, 2, offset) + joint.format(2, 3, offset)
    path.write_text(f'<robot name="flat">{links}{chain}{tip}</robot>')
    return path


@pytest.mark.parametrize(
    "axis, offset, lift, thin",
    [
        ("0 0 1", "0.5 0 0", "0 0 0.3", 2),  # flat above the table
        ("0 1 0", "0.5 0 0", "0 0 0.3", 1),  # upright
        ("1 0 0", "0 0 -0.5", "-2 0 0", 0),  # upright behind its base
        ("0 0 1", "0.5 0 0", "0 0 -1", 2),  # below its base
    ],
)
def test_arms_that_move_in_a_plane_have_a_home_and_a_box_too(tmp_path, axis, offset, lift, thin):
    arm = load_urdf(written(tmp_path, axis, offset, lift))
    box = find_workspace(arm.chain, arm.qlim)
    home = find_home(arm.chain, arm.qlim, box)
    assert np.ptp(box, axis=0)[thin] == pytest.approx(0.02, abs=1e-6)
    assert (np.ptp(box, axis=0) > 0).all()
    assert ((arm.qlim[0] < home) & (home < arm.qlim[1])).all()
    assert_central(arm.chain, box, home, margin=0.5 if lift.startswith("-") else 0.25)
    q = np.random.default_rng(0).uniform(-1.5, 1.5, (1000, 3))
    # the elbow is bent
    assert worst_speed(arm.chain, home[None], 2) > np.percentile(worst_speed(arm.chain, q, 2), 90)


def test_a_gripper_is_put_on_at_the_tcp_link():
    robot = make_robot_from_file(str(GANTRY), gripper="robotiq_2f_85")
    bare = make_robot_from_file(str(GANTRY), gripper="none")
    assert robot.n == 3 and robot.gripper.name == "robotiq_2f_85" and len(robot.rtb.grippers) == 1
    q = np.array([0.2, 0.3, -0.5])
    T_bt = (
        fkine(bare.chain, torch.tensor(q, dtype=torch.float32)[None])[0].numpy() @ robot.gripper.tcp
    )
    np.testing.assert_allclose(tcp_at(robot, q), T_bt[:3, 3], atol=1e-6)
    np.testing.assert_allclose(robot.rtb.fkine(q).t, T_bt[:3, 3], atol=1e-6)


def test_the_example_of_the_docs_is_a_robot(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "tutorials" / "your-arm.md").read_text()
    path = tmp_path / "lift.urdf"
    path.write_text(re.search("```xml\n(.*?)```", page, re.DOTALL)[1])
    robot = make_robot_from_file(str(path))
    assert (robot.name, robot.n) == ("lift", 3)
    low, high = robot.workspace
    assert ((low < tcp_at(robot, robot.home)) & (tcp_at(robot, robot.home) < high)).all()


def test_wrong_choices_end_in_one_line():
    for options, named in (
        ({"gripper": "hook"}, "unknown gripper 'hook'"),
        ({"tcp": "hook"}, "unknown TCP link"),
    ):
        with pytest.raises(ConfigError, match=named):
            make_robot_from_file(str(GANTRY), **options)


def test_a_file_of_another_kind_is_told_all_kinds():
    with pytest.raises(ConfigError, match=r"arm\.mjcf: .* \.urdf or \.xacro, MJCF in \.xml$"):
        make_robot_from_file("there/arm.mjcf")


def test_the_arm_can_be_trained_on(gantry):
    env = ArmEnv(gantry, make_task("reach"), num_envs=16, device="cpu", seed=0)
    for _ in range(3):
        step = env.step(torch.rand(16, 3) * 2 - 1)
    assert torch.isfinite(step.observation).all() and step.observation.shape == (16, env.o_dim)
    q = step.info["q"].numpy()
    assert (q >= gantry.qlim[0]).all() and (q <= gantry.qlim[1].astype(np.float32)).all()


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"home": np.zeros(2)}, "'gantry': home must be finite with shape"),
        ({"home": np.full(3, 9.0)}, "'gantry': home .* is outside qlim"),
        ({"qdlim": np.array([0.5, np.inf, 3.0])}, "'gantry': qdlim must be finite"),
        ({"qdlim": np.array([0.5, 0.0, 3.0])}, "'gantry': qdlim must be positive"),
        ({"workspace": np.zeros((2, 3))}, "'gantry': workspace has a lower corner"),
        ({"workspace": None}, "'gantry': workspace must be"),
    ],
)
def test_a_robot_is_checked_however_it_is_made(gantry, changes, words):
    with pytest.raises(ConfigError, match=words):
        dataclasses.replace(gantry, **changes)
