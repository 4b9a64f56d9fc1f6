"""The arm in a description: which chain, which limits, and its kinematics against two
references.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from envs.kinematics import fkine, jacob0
from envs.robots.urdf import build_model, load_urdf, read_urdf
from envs.robots.urdf.arm import compile_path
from tests.support import get_refusal

GANTRY = Path(__file__).parents[1] / "data" / "gantry.urdf"
TEXT = GANTRY.read_text()


def edited(folder: Path, *edits: tuple[str, str]) -> Path:
    text = TEXT
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = folder / "robot.urdf"
    path.write_text(text)
    return path


# The chain


def test_the_gantry_stands_where_a_ruler_says():
    """Slide 0.3 up, shoulder a quarter turn about -z (to the right), wrist a quarter turn about y
    (down).
    """
    arm = load_urdf(GANTRY)
    assert arm.tcp_link == "tool0" and arm.joint_names == ("slide", "shoulder", "wrist")
    T = fkine(arm.chain, torch.tensor([[0.3, np.pi / 2, np.pi / 2]]))[0]
    torch.testing.assert_close(T[:3, 3], torch.tensor([0.1, -0.4, 0.2 + 0.3 - 0.1]))
    # the tool points down
    torch.testing.assert_close(T[:3, 2], torch.tensor([0.0, 0.0, -1.0]), atol=1e-6, rtol=0)


def test_limits_are_the_files_and_an_endless_joint_gets_two_turns():
    arm = load_urdf(GANTRY)
    np.testing.assert_array_equal(arm.qlim, [[0.0, -2.0, -2 * np.pi], [0.6, 2.5, 2 * np.pi]])
    np.testing.assert_array_equal(arm.qdlim, [0.5, 2.0, 3.0])
    np.testing.assert_array_equal(load_urdf(GANTRY, qdlim=[1, 2, 3]).qdlim, [1.0, 2.0, 3.0])


def test_a_velocity_above_the_files_is_said_by_joint(capsys):
    load_urdf(GANTRY, qdlim=[0.5, 1, 3])
    assert capsys.readouterr().err == ""
    load_urdf(GANTRY, qdlim=[0.6, 1, 3.5])
    told = r"warning: .*: the velocity given is above the limits of slide \(0.5\).* wrist \(3\)\n"
    assert re.fullmatch(told, capsys.readouterr().err)


def test_the_tcp_chooses_the_branch():
    assert load_urdf(GANTRY, "camera").joint_names == ("slide",)
    assert load_urdf(GANTRY, "left_finger").joint_names == ("slide", "shoulder", "wrist", "left")


TOOLLESS = ('link name="tool0"', 'link name="plate"'), ('link="tool0"', 'link="plate"')
ONE_ARM = '<robot name="r"><link name="a"/><link name="b"/><joint name="j" type="revolute"><parent link="a"/>'
ONE_ARM += '<child link="b"/><limit lower="-1" upper="1" velocity="1"/></joint>'


@pytest.mark.parametrize("name", ["tcp", "left_tcp", "left/tool0", "my-ee_link"])
def test_a_link_with_a_telling_name_is_the_tcp(tmp_path, name):
    path = edited(
        tmp_path, ('link name="tool0"', f'link name="{name}"'), ('link="tool0"', f'link="{name}"')
    )
    assert load_urdf(path).tcp_link == name


def test_a_telling_name_on_what_never_moves_tells_nothing(tmp_path):
    mount = '<link name="tcp"/><joint name="m" type="fixed"><parent link="base"/><child link="tcp"/></joint></robot>'
    assert load_urdf(edited(tmp_path, ("</robot>", mount))).tcp_link == "tool0"


def plate(name: str) -> str:
    return f'<link name="{name}"/><joint name="to_{name}" type="fixed"><parent link="b"/><child link="{name}"/></joint>'


def test_the_end_of_the_only_line_is_the_tcp(tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text(f"{ONE_ARM}</robot>")
    assert load_urdf(path).tcp_link == "b"
    path.write_text(f"{ONE_ARM}{plate('c')}</robot>")
    assert load_urdf(path).tcp_link == "c"
    path.write_text(f"{ONE_ARM}{plate('c')}{plate('d')}</robot>")
    assert load_urdf(path).tcp_link == "b"  # two things are mounted on it


def test_several_ends_are_listed_with_where_they_part(tmp_path):
    message = get_refusal(load_urdf, edited(tmp_path, *TOOLLESS))
    assert message.endswith(
        "choose one with --tcp: plate (100 mm from wrist), left_finger"
    )  # the right one is a mimic
    mimic = '<mimic joint="left" multiplier="-1"/>'
    assert mimic in TEXT
    twins = edited(
        tmp_path,
        *TOOLLESS,
        (mimic, ""),
        ('"left_finger"', '"left_tcp"'),
        ('"right_finger"', '"right_tcp"'),
    )
    assert get_refusal(load_urdf, twins).endswith("choose one with --tcp: left_tcp, right_tcp")


TORSO = """<robot name="r"><link name="torso"/>{arms}</robot>"""
ARM = """<link name="{0}_upper"/><link name="{0}_hand"/><link name="{0}_left"/><link name="{0}_right"/>
<joint name="{0}_a" type="revolute"><parent link="torso"/><child link="{0}_upper"/><axis xyz="0 0 1"/>{1}</joint>
<joint name="{0}_b" type="revolute"><parent link="{0}_upper"/><child link="{0}_hand"/>{1}</joint>
<joint name="{0}_c" type="prismatic"><parent link="{0}_hand"/><child link="{0}_left"/>{1}</joint>
<joint name="{0}_d" type="prismatic"><parent link="{0}_hand"/><child link="{0}_right"/>{1}
<mimic joint="{0}_c"/></joint>"""
LIMIT = '<origin xyz="0.3 0 0"/><limit lower="-1" upper="1" velocity="1"/>'


def test_every_link_that_is_offered_is_taken(tmp_path):
    """Two arms on a torso that does not move, with two fingers each of which one follows the
    other.
    """
    path = tmp_path / "robot.urdf"
    path.write_text(TORSO.format(arms="".join(ARM.format(side, LIMIT) for side in ("l", "r"))))
    offered = get_refusal(load_urdf, path).split("--tcp: ")[1].split(", ")
    assert offered == ["l_hand", "r_hand", "l_left", "r_left"]
    assert [len(load_urdf(path, tcp).joint_names) for tcp in offered] == [2, 2, 3, 3]


def small_arm(folder: Path, wrist: tuple[str, str], last: tuple[str, str], more: str = "") -> Path:
    """A shoulder, a wrist and one more joint, the last two with these names of joint and child
    link.
    """
    names = [("shoulder", "upper"), wrist, last]
    parents = ["base", "upper", wrist[1]]
    joints = "".join(
        f'<link name="{child}"/><joint name="{name}" type="revolute"><parent link="{parent}"/>'
        f'<child link="{child}"/>{LIMIT}</joint>'
        for parent, (name, child) in zip(parents, names)
    )
    path = folder / "robot.urdf"
    path.write_text(f'<robot name="r"><link name="base"/>{joints}{more}</robot>')
    return path


FRAME = '<link name="frame"/><joint name="f" type="fixed"><parent link="gripper"/><child link="frame"/></joint>'
FOLLOWER = f'<link name="f"/><joint name="f" type="revolute"><parent link="hand"/><child link="f"/>{LIMIT}<mimic joint='


@pytest.mark.parametrize(
    "wrist, last, more",
    [
        (("Wrist_Roll", "gripper"), ("Jaw", "jaw"), ""),  # as of the SO-ARM100
        (("wrist_roll", "gripper"), ("6", "moving_jaw"), FRAME),  # as of the SO-ARM101
        (("joint6", "link06"), ("jointGripper", "gripperMover"), ""),  # as of the Z1
        (
            ("arm_left_7_joint", "arm_left_7_link"),
            ("gripper_left_joint", "gripper_left_motor"),
            "",
        ),  # as of TALOS
        (("6", "hand"), ("7", "part"), f'{FOLLOWER}"7"/></joint>'),  # others follow it
    ],
)
def test_a_grippers_joint_is_no_joint_of_the_arm_unless_it_is_said_to_be(
    tmp_path, wrist, last, more
):
    path = small_arm(tmp_path, wrist, last, more)
    if "mimic" in more:  # two ends, so it asks anyway
        assert get_refusal(load_urdf, path).endswith(f"--tcp: {wrist[1]}, {last[1]}")
    else:
        message = get_refusal(load_urdf, path)
        frame = "frame (0 mm from gripper), " if more == FRAME else ""
        choices = f"choose the TCP with --tcp: {frame}{wrist[1]};"
        assert f"{choices} joint {last[0]!r} seems to be a gripper's" in message
        assert f"with {last[1]} it is a joint of the arm" in message
    assert load_urdf(path, wrist[1]).joint_names == ("shoulder", wrist[0])
    assert load_urdf(path, last[1]).joint_names == ("shoulder", wrist[0], last[0])


def test_a_wrist_that_carries_a_gripper_is_a_joint_of_the_arm(tmp_path):
    assert (
        load_urdf(small_arm(tmp_path, ("elbow", "fore"), ("wrist", "gripper_base"))).tcp_link
        == "gripper_base"
    )


def test_a_tcp_that_does_not_exist_or_does_not_move():
    assert "unknown TCP link" in get_refusal(
        load_urdf, GANTRY, "tool1"
    ) and "did you mean 'tool0'?" in get_refusal(load_urdf, GANTRY, "tool1")
    assert "no joint moves the link 'base'" in get_refusal(load_urdf, GANTRY, "base")


def test_mimic_joints_are_refused_on_the_way_to_the_tcp():
    assert "joint 'right' on the way to 'right_finger' is a mimic joint" in get_refusal(
        load_urdf, GANTRY, "right_finger"
    )


def test_nothing_that_moves(tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text('<robot name="table"><link name="top"/></robot>')
    assert "no joint moves; a robot needs one" in get_refusal(load_urdf, path)


# Limits


def test_joints_without_a_velocity_limit_are_all_named(tmp_path):
    path = edited(tmp_path, (' velocity="0.5"', ""), ('velocity="3"', 'velocity="0"'))
    message = get_refusal(load_urdf, path)
    assert "no velocity limit for slide, wrist (0 is none); add velocity=" in message
    assert load_urdf(path, qdlim=[1, 1, 1]).qdlim.tolist() == [1, 1, 1]
    # fingers need none
    assert load_urdf(edited(tmp_path, ('velocity="0.1"', "")), "tool0").joint_names[-1] == "wrist"


def test_velocity_limits_that_mean_any_are_refused_by_name(tmp_path):
    path = edited(
        tmp_path, ('velocity="0.5"', 'velocity="1000"'), ('velocity="3"', 'velocity="1e-30"')
    )
    message = get_refusal(load_urdf, path)
    assert (
        "outside the 0.001 to 100 rad/s or 20 m/s that arms have: slide (1000), wrist (1e-30); "
        "write" in message
    )
    assert load_urdf(path, qdlim=[1, 1, 1]).qdlim.tolist() == [1, 1, 1]
    assert load_urdf(edited(tmp_path, ('velocity="3"', 'velocity="100"'))).qdlim[2] == 100.0


@pytest.mark.parametrize("qdlim", [[1, 1], [[1, 1, 1]], []])
def test_velocity_limits_that_do_not_fit(qdlim):
    message = get_refusal(load_urdf, GANTRY, qdlim=qdlim)
    assert "velocity takes one limit for all joints, or 3 for slide, shoulder, wrist" in message


@pytest.mark.parametrize("qdlim", [[1, 1, 0], [1, 1, np.nan], [21, 1, 1], [1, 1, 101], [1e6]])
def test_given_velocity_limits_are_such_as_arms_have(qdlim):
    message = get_refusal(load_urdf, GANTRY, qdlim=qdlim)
    assert "velocity limits must be from 0.001 to 100 rad/s or 20 m/s" in message


def test_position_limits_that_leave_no_arm(tmp_path):
    missing = edited(tmp_path, ('lower="-2" upper="2.5" ', ""))
    assert "revolute joint 'shoulder' has no position limits" in get_refusal(load_urdf, missing)
    same = edited(tmp_path, ('lower="-2" upper="2.5"', 'lower="1" upper="1"'))
    assert "joint 'shoulder' has both limits at 1 and cannot move" in get_refusal(load_urdf, same)
    far = edited(tmp_path, ('lower="-2" upper="2.5"', 'lower="-1e6" upper="1e6"'))
    assert "joint 'shoulder' has the limits -1e+06 to 1e+06, beyond" in get_refusal(load_urdf, far)


# The model


def test_joints_off_the_arm_stand_still_where_they_may():
    """The left finger's limits leave out zero: it stands at 10 mm, and its mimic at -10 mm."""
    arm = load_urdf(GANTRY)
    q = [0.1, -0.4, 0.7]
    drawn = build_model(arm.tree, arm.moving)
    T = drawn.fkine(q, end="tool0").inv()
    assert drawn.n == 3
    np.testing.assert_allclose((T * drawn.fkine(q, end="left_finger")).t, [0, 0.01, 0], atol=1e-12)
    np.testing.assert_allclose(
        (T * drawn.fkine(q, end="right_finger")).t, [0, -0.01, 0], atol=1e-12
    )


def test_the_model_wears_the_shapes_and_limits(tmp_path):
    mesh = tmp_path / "finger.stl"
    mesh.write_text("solid")
    shape = '<link name="wrist"><visual><geometry><mesh filename="finger.stl" scale="1 2 3"/></geometry></visual></link>'
    arm = load_urdf(edited(tmp_path, ('<link name="wrist"/>', shape)))
    drawn = build_model(arm.tree, arm.moving)
    shapes = {link.name: [type(shape).__name__ for shape in link.geometry] for link in drawn.links}
    assert (
        shapes
        | {"base": ["Cuboid"], "carriage": ["Sphere"], "arm": ["Cylinder"], "wrist": ["Mesh"]}
        == shapes
    )
    links = {link.name: link for link in drawn.links}
    assert [type(shape).__name__ for shape in links["base"].collision] == ["Cuboid"]
    assert list(links["base"].geometry)[0].color[:3] == pytest.approx((1, 0.5, 0))
    wrist = list(links["wrist"].geometry)[0]
    assert wrist.filename == str(mesh) and wrist.scale.tolist() == [1, 2, 3]
    np.testing.assert_allclose(list(links["arm"].geometry)[0].T[:3, 3], [0.2, 0, 0])
    assert links["arm"].qlim.tolist() == [-2, 2.5] and links["arm"].qdlim == 2


def test_a_model_may_have_every_joint_free():
    model = build_model(read_urdf(GANTRY))
    assert model.n == 5
    assert sorted(link.name for link in model.links if link.isjoint) == sorted(
        ["carriage", "arm", "wrist", "left_finger", "right_finger"]
    )


# Any description

numbers = st.floats(-3, 3).map(lambda x: round(x, 4))
poses = st.tuples(st.tuples(numbers, numbers, numbers), st.tuples(numbers, numbers, numbers))
principal = st.sampled_from([(1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0), (0, -1, 0), (0, 0, -1)])
skew = (
    st.tuples(numbers, numbers, numbers)
    .filter(lambda v: np.linalg.norm(v) > 0.1)
    .map(lambda v: v / np.linalg.norm(v))
)
joints = st.tuples(
    st.sampled_from(["revolute", "continuous", "prismatic"]),
    st.one_of(principal, skew),
    # the joint's own offset, then links fixed to its child
    st.lists(poses, min_size=1, max_size=3),
)


def as_urdf(base: list, chain: list) -> str:
    """A file of that chain, with a driven finger on every moving link to lead astray."""
    parts = ['<robot name="any"><link name="l0"/>']
    count = 0

    def add(kind: str, pose, axis=(1, 0, 0)) -> None:
        nonlocal count
        (x, y, z), rpy = pose
        parts.append(
            f'<link name="l{count + 1}"/><joint name="j{count}" type="{kind}"><parent link="l{count}"/>'
            f'<child link="l{count + 1}"/><origin xyz="{x} {y} {z}" rpy="{rpy[0]} {rpy[1]} {rpy[2]}"/>'
            f'<axis xyz="{axis[0]!s} {axis[1]!s} {axis[2]!s}"/><limit lower="-3" upper="3" velocity="1"/></joint>'
        )
        count += 1

    for pose in base:
        add("fixed", pose)
    for kind, axis, (offset, *fixed) in chain:
        add(kind, offset, axis)
        parts.append(
            f'<link name="f{count}"/><joint name="fj{count}" type="prismatic"><parent link="l{count}"/>'
            f'<child link="f{count}"/><limit lower="0" upper="1" velocity="1"/></joint>'
        )
        for pose in fixed:
            add("fixed", pose)
    return "".join(parts) + "</robot>", f"l{count}"


def rigid(R: np.ndarray, p) -> np.ndarray:
    return np.block([[R, np.reshape(p, (3, 1))], [np.zeros((1, 3)), np.ones((1, 1))]])


def placed(pose) -> np.ndarray:
    return rigid(Rotation.from_euler("xyz", pose[1]).as_matrix(), pose[0])


def reference(base: list, chain: list, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """T_be and J by walking the description with scipy's rotations."""
    T = np.eye(4)
    axes = []
    origins = []
    for pose in base:
        T = T @ placed(pose)
    for (kind, axis, (offset, *fixed)), position in zip(chain, q):
        T = T @ placed(offset)
        axis = np.array(axis, float)
        axes.append(T[:3, :3] @ axis)
        origins.append(T[:3, 3])
        turn = Rotation.from_rotvec(
            0 * axis if kind == "prismatic" else position * axis
        ).as_matrix()
        T = T @ rigid(turn, position * axis if kind == "prismatic" else np.zeros(3))
        for pose in fixed:
            T = T @ placed(pose)
    columns = [
        np.append(axis, np.zeros(3))
        if kind == "prismatic"
        else np.append(np.cross(axis, T[:3, 3] - origin), axis)
        for (kind, _, _), axis, origin in zip(chain, axes, origins)
    ]
    return T, np.stack(columns, 1)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(poses, max_size=2), st.lists(joints, min_size=1, max_size=10), st.integers(0, 2**31)
)
def test_any_chain_moves_as_its_description_and_as_roboticstoolbox_say(
    tmp_path_factory, base, chain, seed
):
    text, tcp = as_urdf(base, chain)
    path = tmp_path_factory.mktemp("any") / "any.urdf"
    path.write_text(text)
    arm = load_urdf(path, tcp)
    drawn = build_model(arm.tree, arm.moving)
    q = np.random.default_rng(seed).uniform(-3, 3, (3, len(chain)))
    expected = [reference(base, chain, row) for row in q]
    exact = compile_path(read_urdf(path).find_path(tcp), torch.float64)
    np.testing.assert_allclose(fkine(exact, torch.tensor(q)), [T for T, _ in expected], atol=1e-9)
    np.testing.assert_allclose(jacob0(exact, torch.tensor(q)), [J for _, J in expected], atol=1e-9)
    np.testing.assert_allclose(
        [drawn.fkine(row, end=tcp).A for row in q], [T for T, _ in expected], atol=1e-9
    )
    single = fkine(arm.chain, torch.tensor(q, dtype=torch.float32))
    np.testing.assert_allclose(single, [T for T, _ in expected], atol=1e-5 * (1 + 10 * len(chain)))
