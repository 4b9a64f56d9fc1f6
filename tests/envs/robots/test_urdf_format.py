"""What URDF defines is taken; what it does not define is reported, or refused where it must be a
slip.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from envs.collision.fitting.shapes import fit_link, select_shapes
from envs.config.notices import warn_once
from envs.kinematics import fkine
from envs.robots import make_robot
from envs.robots.urdf import Pose, build_model, load_urdf, read_urdf
from td3_robot.errors import ConfigError
from tests.support import get_file_refusal

TEXT = (Path(__file__).parents[1] / "data" / "gantry.urdf").read_text()


def written(folder: Path, *changes: tuple[str, str], text: str = TEXT) -> Path:
    """The gantry with some of its text replaced."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "robot.urdf"
    path.write_text(text)
    return path


# Orientations as quaternions


def test_a_quaternion_places_the_tcp(tmp_path):
    """A quarter turn about x brings the plane of two joints upright: at q = (0.5, 0.5) the TCP is at
    0.3 cos 0.5 + 0.3 cos 1 = 0.425 along x, and 0.3 sin 0.5 + 0.3 sin 1 = 0.396 over the first
    joint, which is 0.2 up."""
    joint = '<joint name="{}" type="revolute"><parent link="{}"/><child link="{}"/><origin {}/>'
    joint += '<axis xyz="0 0 1"/><limit lower="-2" upper="2" velocity="2"/></joint>'
    turned = 'xyz="0 0 0.2" quat_xyzw="0.7071067811865476 0 0 0.7071067811865476"'
    text = '<robot name="q" version="1.1"><link name="a"/><link name="b"/><link name="c"/>'
    text += '<link name="tcp"/>' + joint.format("j1", "a", "b", turned)
    text += joint.format("j2", "b", "c", 'xyz="0.3 0 0"')
    text += '<joint name="t" type="fixed"><parent link="c"/><child link="tcp"/>'
    text += '<origin xyz="0.3 0 0"/></joint></robot>'
    arm = load_urdf(written(tmp_path, text=text))
    tcp = fkine(arm.chain, torch.tensor([[0.5, 0.5]]))[0, :3, 3]
    np.testing.assert_allclose(tcp, [0.425, 0.0, 0.596], atol=1e-3)


def quaternions() -> np.ndarray:
    """(N, 4) at random, and those around pitches of a right angle, where roll and yaw are one."""
    rng = np.random.default_rng(0)
    upright = [
        Rotation.from_euler("xyz", [roll, side * np.pi / 2 + off, yaw])
        for side in (-1, 1)
        for off in (0.0, 1e-12, 1e-9, 1e-6, -1e-8)
        for roll, yaw in rng.uniform(-np.pi, np.pi, (5, 2))
    ]
    return np.concatenate((Rotation.random(200, rng=0).as_quat(), [r.as_quat() for r in upright]))


def test_a_pose_from_a_quaternion_is_its_rotation():
    for xyzw in quaternions():
        T = Pose.from_quaternion(tuple(xyzw), (1.0, 2.0, 3.0)).T
        np.testing.assert_allclose(T[:3, :3], Rotation.from_quat(xyzw).as_matrix(), atol=1e-14)
        assert T[:3, 3].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "origin, named",
    [
        ('quat_xyzw="0 0 0 1" rpy="0 0 0"', "<origin> has both rpy and quat_xyzw"),
        ('quat_xyzw="0 0 0 2"', "'0 0 0 2' has length 2, not 1, here 0 0 0 1"),
        ('quat_xyzw="0 0 0 0"', "has length 0, not 1"),
        ('quat_xyzw="0 0 1"', "quat_xyzw of <origin> must be 4 numbers"),
    ],
)
def test_a_quaternion_that_is_none_is_refused(tmp_path, origin, named):
    changed = ('<origin xyz="0.1 0 0"/>', f'<origin xyz="0.1 0 0" {origin}/>')
    assert named in get_file_refusal(read_urdf, written(tmp_path, changed))


# Limits

LIMITS = 'velocity="{v}" effort="{e}"'


def with_limits(folder: Path, slide: str, shoulder: str, wrist: str) -> Path:
    """The gantry with more attributes in the <limit> of each joint."""
    return written(
        folder,
        ('velocity="0.5" effort="100"', f'velocity="0.5" effort="100" {slide}'),
        ('velocity="2" effort="50"', f'velocity="2" effort="50" {shoulder}'),
        ('velocity="3" effort="20"', f'velocity="3" effort="20" {wrist}'),
    )


def test_limits_of_acceleration_and_jerk_are_the_robots(tmp_path):
    both = 'acceleration="{}" deceleration="{}" jerk="{}"'.format
    path = with_limits(tmp_path, both(5, 4, 100), both(6, 7, 120), 'acceleration="8" jerk="90"')
    robot = make_robot(str(path))
    assert robot.qddlim.tolist() == [4.0, 6.0, 8.0]
    assert robot.qdddlim.tolist() == [100.0, 120.0, 90.0]


def test_limits_that_some_joints_lack_are_not_held_and_the_joints_are_named(tmp_path, capsys):
    path = with_limits(tmp_path, 'acceleration="5"', "", 'acceleration="0"')
    robot = make_robot(str(path))
    assert robot.qddlim is None and robot.qdddlim is None
    message = "no acceleration limit is held, for want of those of shoulder, wrist"
    assert capsys.readouterr().err == f"warning: {path}: {message}\n"


def test_a_negative_limit_is_refused(tmp_path):
    path = with_limits(tmp_path, 'jerk="-1"', "", "")
    assert "joint 'slide': jerk of <limit> must not be negative, got -1" in get_file_refusal(
        read_urdf, path
    )


SOFT = {  # attributes of the shoulder's safety controller, which may turn from -2 to 2.5
    "both": ('soft_lower_limit="-1.5" soft_upper_limit="1.5"', (-1.5, 1.5)),
    "one": ('soft_upper_limit="1.5"', (-2.0, 1.5)),
    "further out": ('soft_lower_limit="-3" soft_upper_limit="2"', (-2.0, 2.0)),
    "one at zero": ('soft_lower_limit="0" soft_upper_limit="2"', (0.0, 2.0)),
    "none": ("", (-2.0, 2.5)),
    "zero and zero": ('soft_lower_limit="0" soft_upper_limit="0"', (-2.0, 2.5)),
}


@pytest.mark.parametrize("soft", SOFT)
def test_soft_limits_are_held(tmp_path, soft, capsys):
    attributes, (lower, upper) = SOFT[soft]
    safety = f'<safety_controller {attributes} k_position="100" k_velocity="40"/>'
    changed = ('velocity="2" effort="50"/>', f'velocity="2" effort="50"/>{safety}')
    arm = load_urdf(written(tmp_path, changed))
    assert arm.qlim[:, 1].tolist() == [lower, upper]
    assert build_model(arm.tree, arm.moving).qlim[:, 1].tolist() == [lower, upper]
    assert capsys.readouterr().err == ""


def test_soft_limits_that_leave_nothing_are_not_held_with_a_word(tmp_path):
    safety = '<safety_controller soft_lower_limit="3" soft_upper_limit="4" k_velocity="40"/>'
    changed = ('velocity="2" effort="50"/>', f'velocity="2" effort="50"/>{safety}')
    tree = read_urdf(written(tmp_path, changed))
    assert (tree.joints["shoulder"].lower, tree.joints["shoulder"].upper) == (-2.0, 2.5)
    expected = "joint 'shoulder': its soft limits leave nothing of -2 to 2.5 and are not held"
    assert tree.notices == (expected,)


def test_soft_limits_of_an_endless_joint_are_not_held_with_a_word(tmp_path):
    safety = '<safety_controller soft_lower_limit="-1" soft_upper_limit="1" k_velocity="40"/>'
    changed = ('velocity="2" effort="50"/>', f'velocity="2" effort="50"/>{safety}')
    endless = ('name="shoulder" type="revolute"', 'name="shoulder" type="continuous"')
    tree = read_urdf(written(tmp_path, changed, endless))
    expected = "joint 'shoulder': its soft limits are not held, since it has no limits"
    assert tree.notices == (expected,)


# Capsules


@pytest.mark.parametrize("length, half", [(0.2, 0.1), (0.0, 0.0)])
def test_a_capsule_is_a_capsule(tmp_path, length, half):
    """A capsule of radius 0.05 whose axis, z, a quarter turn about y lays along x."""
    capsule = f'<capsule radius="0.05" length="{length}"/>'
    changed = ('<cylinder radius="0.04" length="0.4"/>', capsule)
    arm = load_urdf(written(tmp_path, changed), "tool0")
    (found,) = fit_link(select_shapes(build_model(arm.tree, arm.moving).link_dict["arm"]), 3)
    ends = np.sort(found[:6].reshape(2, 3), axis=0)
    np.testing.assert_allclose(ends, [[0.2 - half, 0, 0], [0.2 + half, 0, 0]], atol=1e-7)
    assert found[6] == pytest.approx(0.05, abs=1e-4)


# What no version of URDF defines

SHOULDER = '<origin xyz="0.1 0 0"/>\n    <axis xyz="0 0 -1"/>'
SLIPS = {
    "an attribute of a pose": (
        ('<origin xyz="0.1 0 0"/>', '<origin xyz="0.1 0 0" yaw="1"/>'),
        "unknown attribute of <origin> in joint 'shoulder' 'yaw'; valid choices: quat_xyzw",
    ),
    "letters in another order": (
        ('<origin xyz="0.1 0 0"/>', '<origin xzy="0.1 0 0"/>'),
        "<origin> in joint 'shoulder' 'xzy'; did you mean 'xyz'?",
    ),
    "a pose of a shape": (
        ('<origin xyz="0.2 0 0" rpy', '<origin xyz="0.2 0 0" ryp'),
        "<origin> in link 'arm' 'ryp'",
    ),
    "another case": (
        ('<limit lower="-2" upper', '<limit lower="-2" Upper'),
        "<limit> in joint 'shoulder' 'Upper'; did you mean 'upper'?",
    ),
    "a letter too few": (
        ('multiplier="-1"', 'multiplyer="-1"'),
        "<mimic> in joint 'right' 'multiplyer'; did you mean 'multiplier'?",
    ),
    "one more pose": (
        ('<origin xyz="0.1 0 0"/>', '<origin xyz="0.1 0 0"/><origin rpy="0 0 1"/>'),
        "joint 'shoulder' has 2 <origin> in a <joint>, not one",
    ),
    "an element of a joint": (
        ('<origin xyz="0.1 0 0"/>', '<orgin xyz="0.1 0 0"/>'),
        "joint 'shoulder' has <orgin>, which URDF does not define, for <origin>",
    ),
    "an element of a link": (
        ("<collision><origin", "<colision><origin"),
        "link 'base' has <colision>",
    ),
    "an element of the robot": (
        ('<link name="camera"/>', '<links name="camera"/>'),
        "has <links>, which URDF does not define, for <link>",
    ),
    "a size": (("<sphere radius", "<sphere raduis"), "'raduis'; did you mean 'radius'?"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_refused(tmp_path, slip):
    change, named = SLIPS[slip]
    changes = [change]
    if slip in ("a letter too few", "an element of a link", "a size"):
        text = TEXT.replace(*change).replace("</colision>", "</collision>")
        if slip == "an element of a link":
            text = text.replace("</collision>", "</colision>")
        assert named in get_file_refusal(read_urdf, written(tmp_path, text=text))
    else:
        assert named in get_file_refusal(read_urdf, written(tmp_path, *changes))


STRAY = {
    "an attribute": (('velocity="2"', 'velocity="2" current="3"'), "current of <limit>"),
    "one close to another that is there": (
        ('<axis xyz="0 0 -1"', '<axis xyz="0 0 -1" xzy="1"'),
        "xzy of <axis>",
    ),
    "an element": (
        ('<link name="wrist"/>', '<link name="wrist"><contact/></link>'),
        "<contact> in",
    ),
    "one inside a shape": (("<visual>\n", '<visual><surface mu="1"/>\n'), "<surface> in <visual>"),
    "a slip that changes nothing": (
        ('<child link="camera"/>', '<child link="camera"/><axis xzy="0 0 1"/>'),
        "xzy of <axis>",
    ),
}


@pytest.mark.parametrize("stray", STRAY)
def test_what_may_be_meant_for_other_programs_is_named_and_loads(tmp_path, stray, capsys):
    change, named = STRAY[stray]
    path = written(tmp_path, change)
    arm = load_urdf(path, "tool0")
    assert arm.joint_names == ("slide", "shoulder", "wrist")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {path}: ignores what URDF does not define: {named}")


def test_what_is_found_often_is_counted_and_a_long_list_is_cut(tmp_path):
    strays = "".join(f"<stray{i}/>" for i in range(9)) + "<traits/><traits/>"
    change = ('<link name="wrist"/>', f'<link name="wrist"><traits/>{strays}</link>')
    (notice,) = read_urdf(written(tmp_path, change)).notices
    assert "<traits> in <link> (3 times), <stray0> in <link>" in notice
    assert notice.endswith("and 6 more")


def test_elements_of_other_programs_are_theirs(tmp_path):
    theirs = '<gazebo reference="arm"><orgin/></gazebo><ros2_control name="x"><joint naem="y"/>'
    theirs += '</ros2_control><transmission name="t"><joint/></transmission><sensor name="s"/>'
    limit = ('velocity="2"', 'velocity="2" drake:acceleration="3" xmlns:drake="d"')
    path = written(tmp_path, limit, ("</robot>", f"{theirs}</robot>"))
    assert read_urdf(path).notices == ()


# Meshes that are not there

MESH = ('<sphere radius="0.08"/>', '<mesh filename="{}"/>')
FAULTS = {
    "a.stl": "the mesh 'a.stl' does not exist; looked for ",
    "package://p/a.stl": "the mesh 'package://p/a.stl' does not exist: package 'p' is not found",
    "https://x.org/a.stl": "is neither a file nor a package:// address",
    "/etc/passwd": "must be one of .stl, .dae",
}


@pytest.mark.parametrize("uri", FAULTS)
def test_a_mesh_that_is_not_there_costs_its_picture_alone(tmp_path, uri, capsys):
    path = written(tmp_path, (MESH[0], MESH[1].format(uri)))
    robot = make_robot(str(path), tcp="tool0")
    warning = capsys.readouterr().err
    assert warning.startswith(f"warning: {path}: nothing is drawn of meshes of carriage: ")
    assert FAULTS[uri] in warning and warning.count("\n") == 1
    assert robot.rtb.link_dict["carriage"].geometry.data == []
    assert len(robot.rtb.link_dict["arm"].geometry) == 1
    make_robot(str(path), tcp="tool0")  # a training makes several
    assert capsys.readouterr().err == ""


def test_capsules_are_not_fitted_to_what_is_not_there(tmp_path):
    pytest.importorskip("coal")
    from envs.collision.fitting.robot import fit

    robot = make_robot(str(written(tmp_path, (MESH[0], MESH[1].format("a.stl")))), tcp="tool0")
    with pytest.raises(ConfigError, match="need the meshes of link 'carriage': .*does not exist"):
        fit(robot, 3)
    assert [file.name for file in tmp_path.iterdir()] == ["robot.urdf"]


def test_a_warning_is_printed_once(capsys):
    warn_once("the only one")
    warn_once("the only one")
    assert capsys.readouterr().err == "warning: the only one\n"


# Proposals for the TCP


def frames(carrier: str, **distances: float) -> str:
    """Frames fixed to a link, by name, that far along x [m]."""
    return "".join(
        f'<link name="{name}"/><joint name="to_{name}" type="fixed"><parent link="{carrier}"/>'
        f'<child link="{name}"/><origin xyz="{x} 0 0"/></joint>'
        for name, x in distances.items()
    )


@pytest.mark.parametrize(
    "named, first",
    [
        ("gripper_frame_link", "gripper_frame_link (98 mm from wrist)"),
        ("left_grasp_frame", "left_grasp_frame (98 mm from wrist)"),
        ("robot_eef", "robot_eef (98 mm from wrist)"),
    ],
)
def test_the_frames_of_the_last_link_are_proposed_and_tool_frames_first(tmp_path, named, first):
    text = TEXT.replace("tool0", "palm").replace(
        "</robot>", frames("wrist", lens=0.05, **{named: 0.098}) + "</robot>"
    )
    with pytest.raises(ConfigError) as error:
        load_urdf(written(tmp_path, text=text))
    chosen = str(error.value).partition("--tcp: ")[2]
    assert chosen.startswith(first)
    assert "lens (50 mm from wrist)" in chosen and "palm (100 mm from wrist)" in chosen
    assert load_urdf(written(tmp_path, text=text), named).tcp_link == named


def test_a_frame_on_a_frame_is_as_far_as_it_is(tmp_path):
    """The palm is 0.1 along the wrist's x and turned by a right angle: 0.7 across it."""
    more = frames("palm", flat=0.3) + frames("flat", tool_tip=0.4)
    text = TEXT.replace("tool0", "palm").replace("</robot>", f"{more}</robot>")
    with pytest.raises(ConfigError, match=r"--tcp: tool_tip \(707 mm from wrist\)"):
        load_urdf(written(tmp_path, text=text))
