"""A registry file that is written from a URDF makes the robot that the URDF makes."""

from pathlib import Path

import numpy as np
import pytest
import torch

import envs
from envs.collision.fitting.__main__ import make_parser
from envs.collision.links import compute_link_pose
from envs.config.env_options import EnvOptions
from envs.kinematics import fkine
from envs.robots import make, make_robot, register
from td3_robot.config.schema import build, make_schema
from td3_robot.errors import ConfigError

GANTRY = Path(__file__).parents[1] / "data" / "gantry.urdf"
XACRO = """<robot name="r" xmlns:xacro="http://www.ros.org/wiki/xacro">
<xacro:arg name="reach" default="0.1"/><xacro:arg name="prefix" default=""/>
<link name="base"/><link name="upper"/><link name="$(arg prefix)tool0"/>
<joint name="j1" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 0 1"/>
<limit lower="-2" upper="2" velocity="2"/></joint>
<joint name="t" type="fixed"><parent link="upper"/><child link="$(arg prefix)tool0"/>
<origin xyz="$(arg reach) 0 0"/></joint></robot>"""

MJCF = """<mujoco><compiler angle="radian"/><worldbody><body name="base"><geom size=".05"/>
<body name="upper" pos="0 0 .2"><joint name="a" axis="0 1 0" range="-2 2"/><geom size=".05"/>
<site name="tcp" pos="0 0 .2"/></body></body></worldbody></mujoco>"""


@pytest.fixture
def configs(tmp_path, monkeypatch) -> Path:
    """A folder of registry files of its own."""
    folder = tmp_path / "configs"
    (folder / "robots").mkdir(parents=True)
    monkeypatch.setattr(make, "CONFIGS", folder)
    monkeypatch.setattr(register, "CONFIGS", folder)
    return folder


@pytest.fixture
def arm(tmp_path) -> Path:
    path = tmp_path / "arm.xacro"
    path.write_text(XACRO)
    return path


def assert_same(registered, expected) -> None:
    for key in ("home", "qlim", "qdlim", "qddlim", "workspace"):
        np.testing.assert_allclose(getattr(registered, key), getattr(expected, key), atol=1e-9)
    low, high = torch.tensor(expected.qlim, dtype=torch.float32)
    q = low + (high - low) * torch.rand(50, expected.n, generator=torch.Generator().manual_seed(0))
    places = [fkine(robot.chain, q) for robot in (registered, expected)]
    torch.testing.assert_close(*places, atol=1e-5, rtol=0)
    if expected.physics.torque is not None:
        np.testing.assert_allclose(registered.physics.torque, expected.physics.torque)


def test_a_registered_robot_is_the_one_of_its_file(configs, capsys):
    words = [str(GANTRY), "--name", "my_gantry", "--tcp", "tool0", "--acceleration", "3"]
    assert register.main(words) == 0
    assert "now it is --robot my_gantry" in capsys.readouterr().out
    expected = make_robot(str(GANTRY), tcp="tool0", acceleration=3.0)
    assert_same(make_robot("my_gantry"), expected)
    (path,) = (configs / "robots").iterdir()
    assert path.name == "my_gantry.yaml"
    assert expected.qlim[1, 2] == pytest.approx(2.0 * np.pi)  # of the endless wrist
    assert "endless joints have one turn either way" in path.read_text()


def test_the_arguments_of_a_xacro_file_are_kept(configs, arm):
    words = [str(arm), "--name", "mine", "--acceleration", "2"]
    assert register.main([*words, "--xacro", "reach=0.5", "prefix=left_"]) == 0
    given = {"reach": 0.5, "prefix": "left_"}
    assert_same(make_robot("mine"), make_robot(str(arm), xacro=given, acceleration=2.0))
    assert "flange: left_tool0" in (configs / "robots" / "mine.yaml").read_text()


@pytest.mark.parametrize("parse", [register.main, lambda words: make_parser().parse_args(words)])
def test_an_option_is_written_out(configs, arm, capsys, parse):
    words = [str(arm), *(("--name", "mine") if parse is register.main else ())]
    with pytest.raises(SystemExit) as refused:
        parse([*words, "--xac", "reach=0.5"])
    assert refused.value.code == 2 and "--xac" in capsys.readouterr().err
    assert not list((configs / "robots").iterdir())


RODS = """<robot name="r"><link name="base"/><link name="tcp"/>
<link name="upper"><inertial><mass value="2"/>{I}</inertial>{box}</link>
<link name="rod"><inertial><mass value="0.3"/>{I}</inertial>{box}</link>
<link name="lid"><inertial><mass value="0.2"/>{I}</inertial>{box}</link>
<joint name="j1" type="revolute"><parent link="base"/><child link="upper"/>{limit}</joint>
<joint name="rod" type="revolute"><parent link="base"/><child link="rod"/><origin xyz="0 0.1 0"/>
{limit}<mimic joint="j1" multiplier="-0.5" offset="0.2"/></joint>
<joint name="lid" type="revolute"><parent link="upper"/><child link="lid"/><origin xyz="0 0 0.1"/>
{limit}</joint>
<joint name="t" type="fixed"><parent link="upper"/><child link="tcp"/><origin xyz="0.3 0 0"/></joint>
</robot>""".format(
    I='<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>',
    box='<visual><geometry><box size="0.2 0.02 0.02"/></geometry></visual>',
    limit='<axis xyz="0 0 1"/><limit lower="-2" upper="2" velocity="2" acceleration="3"/>',
)


BEYOND = """<link name="camera">{box}</link><link name="finger">{box}</link>
<joint name="c" type="fixed"><parent link="tcp"/><child link="camera"/><origin xyz="0 0 0.1"/></joint>
<joint name="f" type="prismatic"><parent link="camera"/><child link="finger"/>
<axis xyz="0 1 0"/><limit lower="0.01" upper="0.05" velocity="1"/></joint></robot>""".format(
    box='<visual><geometry><box size="0.02 0.02 0.02"/></geometry></visual>'
)


def test_a_registered_arm_has_all_links_of_its_file(configs, tmp_path):
    """A rod that follows the joint, a lid that stands still beside the TCP, and beyond it a camera
    and a finger that stands still.
    """
    path = tmp_path / "rods.urdf"
    path.write_text(RODS.replace("</robot>", BEYOND))
    expected = make_robot(str(path), tcp="tcp")
    register.register(expected, "rods")
    made = make_robot("rods")
    names = {"base", "upper", "rod", "lid", "tcp", "camera", "finger"}
    for links, others in ((made.body.arm, expected.body.arm), (made.rtb.links, expected.rtb.links)):
        assert {link.name for link in others} == names
        assert [link.name for link in links] == [link.name for link in others]
        for link, other in zip(links, others):
            for q in (np.array([-1.0]), np.array([1.5])):
                T = compute_link_pose(other, q)
                np.testing.assert_allclose(compute_link_pose(link, q), T, atol=1e-12)
    for robot in (made, expected):  # whichever branch is the first
        np.testing.assert_allclose(robot.rtb.fkine([0.0]).t, [0.3, 0.0, 0.0], atol=1e-12)
    assert [link.m for link in made.rtb.links] == [link.m for link in expected.rtb.links]


HAND = """<link name="panda_hand">{box}</link><link name="panda_leftfinger">{box}</link>
<link name="panda_rightfinger">{box}</link>
<joint name="h" type="fixed"><parent link="tcp"/><child link="panda_hand"/></joint>
<joint name="l" type="prismatic"><parent link="panda_hand"/><child link="panda_leftfinger"/>
<axis xyz="0 1 0"/>{limit}</joint>
<joint name="r" type="prismatic"><parent link="panda_hand"/><child link="panda_rightfinger"/>
<axis xyz="0 -1 0"/>{limit}<mimic joint="l"/></joint></robot>""".format(
    box='<visual><geometry><box size="0.02 0.02 0.02"/></geometry></visual>',
    limit='<limit lower="0" upper="0.04" velocity="1"/>',
)


@pytest.fixture
def handed(tmp_path) -> str:
    path = tmp_path / "handed.urdf"
    path.write_text(RODS.replace("</robot>", HAND))
    return str(path)


@pytest.mark.parametrize("tcp", ["upper", "tcp", "panda_hand"])
def test_the_gripper_of_a_file_moves_its_fingers(configs, handed, tcp):
    """By name, whichever link before its fingers is the TCP; also in MuJoCo, and registered."""
    made = make_robot(handed, "panda_hand", tcp)
    register.register(made, "handed")
    for robot in (made, make_robot("handed")):
        assert {link.name for link in robot.body.arm} == {"base", "upper", "rod", "lid", "tcp"}
        places = []
        for links in (robot.body.hand, robot.rtb.grippers[0].links):
            q = robot.gripper.compute_model_q(links, 0.03)
            places += [compute_link_pose(link, q, links[0])[:3, 3] for link in links]
        np.testing.assert_allclose(places, 2 * [[0, 0, 0], [0, 0.03, 0], [0, -0.03, 0]], atol=1e-12)
        np.testing.assert_allclose(robot.rtb.fkine(np.zeros(1)).t, [0.3, 0, 0.1034], atol=1e-9)
    pytest.importorskip("mujoco")
    env = envs.make(handed, "reach", gripper="panda_hand", tcp=tcp, engine="mujoco")
    env.reset(0)
    assert torch.isfinite(env.step(torch.ones(1, env.a_dim)).observation).all()


def test_a_tcp_beyond_a_finger_is_not_where_the_gripper_is(handed):
    words = "TCP 'panda_leftfinger' is not moved by .* choose 'tcp', which carries it"
    with pytest.raises(ConfigError, match=words):
        make_robot(handed, "panda_hand", "panda_leftfinger")


def test_what_a_gripper_takes_the_place_of_is_said_and_comes_back_without(
    configs, tmp_path, capsys
):
    path = tmp_path / "rods.urdf"
    path.write_text(RODS.replace("</robot>", BEYOND))
    register.register(make_robot(str(path), "robotiq_2f_85", "tcp"), "gripping")
    assert "the gripper takes the place of camera, finger" in capsys.readouterr().err
    there = [
        {link.name for link in make_robot("gripping", hand).body.arm} for hand in (None, "none")
    ]
    assert there[1] - there[0] == {"camera", "finger"}


WRONG = {
    "a name that is taken": ((str(GANTRY), "--name", "there"), "there is a robot 'there' already"),
    "a path as a name": ((str(GANTRY), "--name", "../x"), "name must be of a-z"),
    "a registered robot": (("panda", "--name", "x"), "is registered already"),
    "no file": (("none.urdf", "--name", "x"), "cannot be read"),
    "another arm's gripper": (
        (str(GANTRY), "--name", "x", "--gripper", "wx250s_fingers"),
        "a part of another arm's model",
    ),
    "a wrong argument": ((str(GANTRY), "--name", "x", "--xacro", "dof"), "--xacro must be KEY="),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_one_line_and_writes_nothing(configs, capsys, wrong, monkeypatch):
    (configs / "robots" / "there.yaml").touch()
    if wrong == "a registered robot":
        monkeypatch.undo()
    words, named = WRONG[wrong]
    tcp = ("--tcp", "tool0") if str(GANTRY) in words else ()
    assert register.main([*words, *tcp]) == 2
    error = capsys.readouterr().err
    assert error.startswith("register: ") and named in error and error.count("\n") == 1
    assert [path.name for path in (configs / "robots").iterdir()] == ["there.yaml"]


# The same from options


def test_arguments_and_accelerations_are_options_of_a_training(arm):
    words = ("--robot", str(arm), "--xacro", "reach=0.5", "prefix=a_", "--acceleration", "4")
    options = EnvOptions(
        robot=str(arm), xacro=("reach=0.5", "prefix=a_"), acceleration=4.0, task="reach"
    )
    given = make_schema("x", "x", EnvOptions).read_flags(list(words))
    assert build(EnvOptions, given) == options
    env = envs.make_from_config(options)
    T = env.fkine(torch.zeros(1, 1))
    torch.testing.assert_close(T[0, :3, 3], torch.tensor([0.5, 0.0, 0.0]))
    assert env.robot.qddlim.tolist() == [4.0]
    direct = envs.make(str(arm), "reach", xacro={"reach": 0.5}, acceleration=4.0)
    torch.testing.assert_close(direct.fkine(torch.zeros(1, 1)), T)


def test_wrong_arguments_and_accelerations_are_refused(arm):
    def refusal(**given) -> str:
        with pytest.raises(ConfigError) as error:
            make_robot(str(given.pop("name", arm)), **given)
        return str(error.value)

    assert "only a .xacro file takes arguments, got a" in refusal(name=GANTRY, xacro={"a": 1})
    assert "takes no xacro arguments" in refusal(name="panda", xacro={"a": 1})
    assert "has no argument 'rech'; it takes reach, prefix" in refusal(xacro={"rech": 1})
    assert "has acceleration limits of its own" in refusal(name="panda", acceleration=1.0)
    assert "acceleration must be a positive number" in refusal(acceleration=-1.0)
    for words, named in ((("dof",), "must be KEY=VALUE, got 'dof'"), (("a=1", "a=2"), "for 'a'")):
        with pytest.raises(ConfigError, match=named):
            EnvOptions(robot=str(arm), xacro=words)


def test_an_arm_with_a_given_acceleration_keeps_to_it(arm):
    """From rest with the full command: 2 rad/s2 for 50 ms are 0.1 rad/s."""
    env = envs.make(str(arm), "reach", acceleration=2.0)
    env.reset(0)
    step = env.step(torch.ones(1, 1))
    assert step.info["qd"].item() == pytest.approx(0.1, abs=1e-6)


def test_an_mjcf_file_is_not_registered(configs, tmp_path, capsys):
    pytest.importorskip("mujoco")
    path = tmp_path / "arm.xml"
    path.write_text(MJCF)
    robot = make_robot(str(path), velocity=(1.0,))
    with pytest.raises(ConfigError, match=r"only a URDF or xacro file .* is MJCF: use it as"):
        register.register(robot, "mine")
    assert register.main([str(path), "--name", "mine"]) == 2
    assert capsys.readouterr().err.startswith("register: only a URDF or xacro file")
    assert list((configs / "robots").iterdir()) == []
