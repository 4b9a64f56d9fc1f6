"""The robot registry: every robot is whole, and a wrong file is named before it does harm."""

import functools
import importlib.util
import subprocess
import time

import numpy as np
import pytest
import roboticstoolbox as rtb
import torch
import yaml

from envs.kinematics import compile_ets, fkine, jacob0
from envs.robots import assembly, make_robot, robot_names, shipped_robots
from envs.robots import make as robot_file
from envs.robots.observation import o
from td3_robot.errors import ConfigError

FETCHED = {"jaco", "kinova_gen3", "ur5"}  # with git, on first use
OFFLINE = sorted(set(robot_names()) - FETCHED)
GRIPPERS = {
    "lbr": "robotiq_2f_85",
    "panda": "panda_hand",
    "puma560": None,
    "ur3e": "robotiq_2f_85",
    "ur5e": "robotiq_2f_85",
    "vx300s": "vx300s_fingers",
    "wx250s": "wx250s_fingers",
}
JOINTS = {"lbr": 7, "panda": 7}  # the others have 6


@functools.cache
def shared(name: str):
    """A robot for tests that change nothing of it."""
    return make_robot(name)


def random_q(robot, count: int, seed: int = 0) -> np.ndarray:
    lower, upper = robot.qlim
    return lower + np.random.default_rng(seed).random((count, robot.n)) * (upper - lower)


def test_the_robots_that_need_no_network_are_all_here():
    assert set(OFFLINE) == set(GRIPPERS) == set(shipped_robots())


@pytest.mark.parametrize("name", OFFLINE)
def test_every_registered_robot_is_whole(name):
    robot = shared(name)
    n = robot.n
    assert robot.name == name
    assert n == robot.rtb.n == JOINTS.get(name, 6), "the fingers are no joints of the arm"
    assert robot.q.shape == robot.home.shape == robot.qdlim.shape == robot.qddlim.shape == (n,)
    assert robot.qlim.shape == (2, n) and robot.workspace.shape == (2, 3)
    assert (robot.qlim[0] <= robot.home).all() and (robot.home <= robot.qlim[1]).all()
    assert (robot.gripper and robot.gripper.name) == GRIPPERS[name]


@pytest.mark.parametrize("name", OFFLINE)
def test_batched_kinematics_are_roboticstoolboxs(name):
    robot = shared(name)
    q = random_q(robot, 50)
    T = fkine(robot.chain, torch.as_tensor(q, dtype=torch.float32))
    J = jacob0(robot.chain, torch.as_tensor(q, dtype=torch.float32))
    for row in range(len(q)):
        np.testing.assert_allclose(T[row], robot.rtb.fkine(q[row]).A, atol=1e-5)
        np.testing.assert_allclose(J[row], robot.rtb.jacob0(q[row]), atol=1e-5)


@pytest.mark.parametrize("name", OFFLINE)
def test_home_is_in_the_workspace_and_goals_are_found_there(name):
    robot = shared(name)
    q = np.concatenate((robot.home[None], random_q(robot, 4000)))
    tcp = fkine(robot.chain, torch.as_tensor(q, dtype=torch.float32))[:, :3, 3].numpy()
    inside = ((tcp > robot.workspace[0]) & (tcp < robot.workspace[1])).all(1)
    assert inside[0] and inside[1:].mean() > 0.03
    assert ((robot.home - 0.3 > robot.qlim[0]) & (robot.home + 0.3 < robot.qlim[1])).all(), (
        "starts are home +-0.3 rad"
    )
    assert robot.workspace[0, 0] > 0 and robot.workspace[0, 2] > 0, (
        "in front of the base and above its floor"
    )


@pytest.mark.parametrize("name", OFFLINE)
def test_limits_are_those_of_the_model_where_it_has_any(name):
    """A typing error in a file would show here; velocities are compared where the model's are the
    maker's.
    """
    robot = shared(name)
    joints = [link for link in robot.rtb.links if link.isjoint]
    if name != "puma560":  # its URDF has no more than a quarter turn, and no speeds
        np.testing.assert_allclose(
            robot.qlim, np.transpose([link.qlim for link in joints]), atol=1e-3
        )
        assert (robot.qdlim <= [link.qdlim + 2e-3 for link in joints]).all()


def test_the_puma_has_the_limits_of_its_dh_model():
    robot = shared("puma560")
    dh = rtb.models.DH.Puma560()
    np.testing.assert_allclose(robot.qlim, dh.qlim, atol=1e-9)
    for joint in range(6):  # which turns the same way about the same axis
        q = np.eye(6)[joint] * 0.4
        turned = robot.rtb.fkine(q).R @ robot.rtb.fkine(0 * q).R.T
        np.testing.assert_allclose(turned, dh.fkine(q).R @ dh.fkine(0 * q).R.T, atol=1e-9)


def test_the_lbr_is_the_iiwa_14_r820():
    """Flange height of KUKA's data sheet: 360 + 420 + 400 + 126 mm."""
    assert make_robot("lbr", gripper="none").rtb.fkine(np.zeros(7)).t[2] == pytest.approx(
        1.306, abs=1e-6
    )


def test_the_panda_is_to_the_last_bit_what_checkpoints_were_trained_on():
    robot = make_robot("panda")
    assert torch.equal(robot.chain.constants, compile_ets(rtb.models.Panda().ets()).constants)
    assert type(robot.rtb) is rtb.models.Panda


@pytest.mark.parametrize("name", OFFLINE)
def test_a_robot_starts_at_home_and_keeps_its_home(name):
    robot = make_robot(name)
    np.testing.assert_array_equal(robot.q, robot.home)
    robot.q += 0.1
    assert not np.array_equal(robot.q, robot.home)
    np.testing.assert_array_equal(make_robot(name).q, robot.home)


@pytest.mark.parametrize("name", ["ur5e", "ur3e", "lbr"])
def test_the_observation_reads_both_drivers_of_the_2f_85(name):
    robot = make_robot(name)
    robot.gripper.q = np.arange(10.0, 18.0)
    np.testing.assert_array_equal(o(None, robot), [*robot.home, 10.0, 14.0])


@pytest.mark.parametrize("name", ["panda", "ur5e", "wx250s", "puma560"])
def test_another_gripper_moves_the_tcp_by_its_own_length(name):
    bare = make_robot(name, gripper="none")
    gripped = make_robot(name, gripper="robotiq_2f_85")
    assert bare.gripper is None and bare.rtb.grippers == []
    assert gripped.gripper.name == "robotiq_2f_85" and gripped.n == bare.n == gripped.rtb.n
    tcp = np.linalg.inv(bare.rtb.fkine(bare.home).A) @ gripped.rtb.fkine(bare.home).A
    np.testing.assert_allclose(tcp[:3, 3], gripped.gripper.tcp[:3, 3], atol=1e-9)
    assert tcp[:3, 2] == pytest.approx([0, 0, 1], abs=1e-9)


def test_another_gripper_is_mounted_as_the_robots_file_says():
    """The Panda's hand is turned by -45 degrees on the flange; so is what takes its place."""
    hand = shared("panda")
    other = make_robot("panda", gripper="robotiq_2f_85")
    np.testing.assert_allclose(other.rtb.fkine(hand.home).R, hand.rtb.fkine(hand.home).R, atol=1e-9)


@pytest.mark.parametrize("name", OFFLINE)
def test_arm_and_gripper_are_drawn_whole(name):
    """Every shape of the model that the robot is made of is there once, and nothing else."""
    robot = shared(name)
    shown = [shape for link in robot.rtb.links for shape in link.geometry]
    hand = [shape for tool in robot.rtb.grippers for link in tool.links for shape in link.geometry]
    arm = {"lbr": 8, "panda": 8, "puma560": 7, "ur3e": 7, "ur5e": 7, "vx300s": 7, "wx250s": 7}
    gripper = {
        "robotiq_2f_85": 11,
        "panda_hand": 3,
        "wx250s_fingers": 4,
        "vx300s_fingers": 4,
        None: 0,
    }
    assert len(shown) == arm[name]
    assert len(hand) == gripper[GRIPPERS[name]]
    assert len(robot.rtb.fkine_geometry(robot.home)) >= len(shown)


@pytest.mark.parametrize("name", [name for name in OFFLINE if GRIPPERS[name]])
def test_the_drawn_fingers_follow_the_driver(name):
    robot = shared(name)
    hand = robot.gripper
    (drawn,) = robot.rtb.grippers
    joints = [link for link in drawn.links if link.isjoint]
    q = hand.compute_model_q(drawn.links, 0.02)
    for link in joints:
        followed = link.name.removeprefix(f"{hand.name}/")
        expected = 0.02 * hand.mimic[hand.links.index(followed)] if followed in hand.links else 0.0
        assert q[link.jindex] == pytest.approx(expected)
    assert np.count_nonzero(q) == {"robotiq_2f_85": 6}.get(hand.name, 2)


def test_the_panda_has_its_makers_limits():
    """https://frankaemika.github.io/docs/control_parameters.html#limits-for-panda"""
    robot = shared("panda")
    np.testing.assert_allclose(
        robot.qdlim, [2.1750, 2.1750, 2.1750, 2.1750, 2.6100, 2.6100, 2.6100]
    )
    np.testing.assert_allclose(robot.qddlim, [15, 7.5, 10, 12.5, 15, 20, 20])
    np.testing.assert_allclose(robot.qdddlim, [7500, 3750, 5000, 6250, 7500, 10000, 10000])
    np.testing.assert_allclose(
        robot.qlim[0], [-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973]
    )
    np.testing.assert_allclose(
        robot.qlim[1], [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973]
    )
    assert robot.gripper.name == "panda_hand"


@pytest.mark.parametrize("name", sorted(FETCHED))
def test_a_robot_that_is_fetched_says_in_one_line_that_it_cannot_be(name, monkeypatch, tmp_path):
    monkeypatch.setenv("ROBOT_DESCRIPTIONS_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ConfigError, match=f"robot '{name}': .* https://github.com/.*git is not installed"
    ) as caught:
        make_robot(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [("exit 128", "it cannot be reached"), ("exec sleep 60", "nothing answered within 1 s")],
)
def test_a_repository_that_does_not_answer_is_given_up_soon(body, words, monkeypatch, tmp_path):
    (tmp_path / "git").write_text(f"#!/bin/sh\n{body}\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("ROBOT_DESCRIPTIONS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(assembly, "_PROBE_TIMEOUT", 1.0)
    start = time.monotonic()
    with pytest.raises(ConfigError, match=words):
        make_robot("ur5")
    assert time.monotonic() - start < 20.0


def test_what_was_fetched_before_is_not_asked_for_again(monkeypatch, tmp_path):
    (tmp_path / "example-robot-data" / ".git").mkdir(parents=True)
    monkeypatch.setenv("ROBOT_DESCRIPTIONS_CACHE", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("git was asked"))
    monkeypatch.setattr(rtb.models, "UR5", type("UR5", (), {"__init__": lambda self: 1 / 0}))
    with pytest.raises(
        ConfigError, match="robot 'ur5': roboticstoolbox could not load it .*division by zero"
    ):
        make_robot("ur5")


@pytest.mark.parametrize("name", sorted(FETCHED))
def test_files_of_robots_that_are_fetched_hold_together(name):
    """As far as can be told without their models."""
    values = yaml.safe_load((robot_file.CONFIGS / "robots" / f"{name}.yaml").read_text())
    lower, upper = np.array(values["qlim"])
    n = len(values["home"])
    assert (
        lower.shape
        == upper.shape
        == np.shape(values["qdlim"])
        == np.shape(values["qddlim"])
        == (n,)
    )
    assert (lower < np.array(values["home"]) - 0.3).all() and (
        np.array(values["home"]) + 0.3 < upper
    ).all()
    assert np.less(*values["workspace"]).all()


def test_a_package_that_is_missing_is_named_with_how_to_install_it(files):
    files(model={"package": "airo_models_of_2040", "urdf": "a.urdf"})
    with pytest.raises(
        ConfigError, match="robot 'mine': .*airo-models-of-2040; install it with: pip install"
    ):
        make_robot("mine")


def test_a_robot_may_come_from_a_urdf_of_the_users(files, monkeypatch):
    (package,) = importlib.util.find_spec("airo_models").submodule_search_locations
    files(
        "mine",
        model={"urdf": f"{package}/arms/ur5e/ur5e.urdf"},
        flange="tool0",
        gripper="robotiq_2f_85",
        mount=[0, 0, 0, 0, 0, 0],
        home=[0.0, -1.5, 1.4, -1.47, -1.57, 0.0],
        qlim=[[-3.0] * 6, [3.0] * 6],
        qdlim=[1.0] * 6,
        without=("qddlim", "qdddlim", "physics"),
    )
    mine = make_robot("mine")
    monkeypatch.undo()
    assert torch.equal(mine.chain.constants, make_robot("ur5e").chain.constants)


@pytest.mark.parametrize("path", ["arm.urdf", "some/arm.xacro", "folder/arm"])
def test_a_path_goes_to_the_urdf_reader(path, monkeypatch):
    import envs.robots.from_file

    asked = []
    arm = object()
    monkeypatch.setattr(
        envs.robots.from_file,
        "make_robot_from_file",
        lambda *given, **_: asked.append(given) or arm,
    )
    assert make_robot(path, gripper="none", tcp="tool0") is arm
    assert asked == [(path, "none", "tool0", {})]


def test_a_tcp_link_is_for_files_alone():
    with pytest.raises(
        ConfigError, match="robot 'panda' has its TCP in .*panda.yaml; tcp is for URDF"
    ):
        make_robot("panda", tcp="panda_link7")


def test_fingers_of_one_arm_do_not_fit_another():
    with pytest.raises(
        ConfigError, match="robot 'panda': gripper 'wx250s_fingers', a part of another arm's model"
    ):
        make_robot("panda", gripper="wx250s_fingers")


def test_an_unknown_robot_is_refused_with_the_valid_ones():
    with pytest.raises(
        ConfigError, match="robot 'pnda'; did you mean 'panda'.*valid choices:.*panda"
    ):
        make_robot("pnda")


@pytest.mark.parametrize("name", ["", ".", "panda.yaml"])
def test_a_name_is_no_file_of_the_registry(name):
    with pytest.raises(ConfigError, match="unknown robot"):
        make_robot(name)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A registry of its own; call it with changes to the Panda's file."""
    values = yaml.safe_load((robot_file.CONFIGS / "robots" / "panda.yaml").read_text())
    (tmp_path / "robots").mkdir()
    monkeypatch.setattr(robot_file, "CONFIGS", tmp_path)

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
    files(without=("gripper", "qddlim", "qdddlim"))
    robot = make_robot("mine")
    assert robot.gripper is None and robot.qddlim is None and robot.qdddlim is None


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
        ({"workspace": [[0, 0, 0], [1, 0, 1]]}, "workspace has a lower corner"),
        ({"without": ("qddlim",)}, "qdddlim needs qddlim"),
        ({"mount": [0, 0, 0]}, "mount must be finite with shape .6"),
        ({"flange": "panda_link9"}, "flange needs link 'panda_link9', .*panda_link8"),
        ({"model": "Pnda"}, "roboticstoolbox.models has no 'Pnda'"),
        ({"model": {"xml": "a"}}, "model must be .* got {'xml': 'a'}"),
        ({"colour": "red"}, "unknown key of robot 'mine' 'colour'"),
        ({"gripper": "panda_hnd"}, "gripper 'panda_hnd'.*panda_hand"),
    ],
)
def test_values_that_cannot_be_right_are_named(files, changes, words):
    files(**changes)
    with pytest.raises(ConfigError, match=words) as caught:
        make_robot("mine")
    assert "\n" not in str(caught.value)
