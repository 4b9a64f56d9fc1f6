"""Weights of any URDF: links that move together are one body, and every body is a rigid one."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false
# MuJoCo's Python package has no type stubs.

import re

import mujoco
import numpy as np
import pytest
import torch

import envs
from envs.robots import make_robot, shipped_robots
from envs.simulation.failures import Failures, describe_failures
from envs.simulation.mujoco import MujocoEngine, read_contacts
from envs.simulation.mujoco.bodies import ARMATURE
from envs.simulation.mujoco.inertias import (
    PER_METRE,
    is_rigid,
    make_matrix,
    make_row,
    mend_inertia,
    merge_inertias,
    weigh,
)
from envs.simulation.mujoco.model import build
from td3_robot.errors import ConfigError

LINK = '<link name="{}">{}</link>'
INERTIAL = (
    '<inertial><origin xyz="{}"/><mass value="{}"/>'
    '<inertia ixx="{}" iyy="{}" izz="{}" ixy="0" ixz="0" iyz="0"/></inertial>'
)
JOINTS = """
<joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/>
  <origin xyz="0 0 0.3"/><axis xyz="0 0 1"/>
  <limit lower="-2" upper="2" velocity="2" effort="50"/></joint>
<joint name="elbow" type="revolute"><parent link="upper"/><child link="fore"/>
  <origin xyz="{elbow} 0 0"/><axis xyz="0 1 0"/>
  <limit lower="0.1" upper="2.6" velocity="2" effort="50"/></joint>
<joint name="tool" type="fixed"><parent link="fore"/><child link="tcp"/>
  <origin xyz="0.3 0 0" rpy="0 0 {yaw}"/></joint>"""
SOUND = INERTIAL.format("0.1 0 0", 2, 0.01, 0.02, 0.02)
NONE = INERTIAL.format("0 0 0", 1, 0, 0, 0)
# origins, limits and efforts of UFACTORY's xarm_description/urdf/xarm7, without its inertias
XARM7 = (
    ("0 0 0.267", "0 0 0", -6.283, 6.283, 50),
    ("0 0 0", "-1.5708 0 0", -2.059, 2.0944, 50),
    ("0 -0.293 0", "1.5708 0 0", -6.283, 6.283, 30),
    ("0.0525 0 0", "1.5708 0 0", -0.19198, 3.927, 30),
    ("0.0775 -0.3425 0", "1.5708 0 0", -6.283, 6.283, 30),
    ("0 0 0", "1.5708 0 0", -1.69297, 3.1416, 20),
    ("0.076 0.097 0", "-1.5708 0 0", -6.283, 6.283, 20),
)


def write_arm(folder, elbow=0.35, yaw=0.0, **inertials: str):
    """An arm of two joints with a fixed tool, whose links have these <inertial>s."""
    names = ("base", "upper", "fore", "tcp")
    links = "".join(LINK.format(name, inertials.get(name, "")) for name in names)
    path = folder / "arm.urdf"
    path.write_text(f"<robot name='arm'>{links}{JOINTS.format(elbow=elbow, yaw=yaw)}</robot>")
    return make_robot(str(path))


def write_xarm7(folder, speed: float = 3.14, capsules: bool = False) -> str:
    links = "".join(f'<link name="link{i}"/>' for i in range(8))
    joints = "".join(
        f'<joint name="joint{i + 1}" type="revolute"><parent link="link{i}"/>'
        f'<child link="link{i + 1}"/><origin xyz="{xyz}" rpy="{rpy}"/><axis xyz="0 0 1"/>'
        f'<limit lower="{low}" upper="{high}" velocity="{speed}" effort="{effort}"/></joint>'
        for i, (xyz, rpy, low, high, effort) in enumerate(XARM7)
    )
    path = folder / "xarm7.urdf"
    path.write_text(f"<robot name='xarm7'>{links}{joints}</robot>")
    if capsules:  # from each joint to the next
        ends = [xyz.split() for xyz, *_ in XARM7] + [["0", "0", "0"]]
        rows = [
            f"  link{i}:\n  - [0, 0, 0, {', '.join(xyz)}, 0.05]\n" for i, xyz in enumerate(ends)
        ]
        path.with_name("xarm7.urdf.collision.yaml").write_text("links:\n" + "".join(rows))
    return str(path)


def compile_model(robot) -> mujoco.MjModel:
    return build(robot, read_contacts(), 0.05).model


def compute_mass_matrix(model: mujoco.MjModel, q) -> np.ndarray:
    data = mujoco.MjData(model)
    data.qpos[:] = q
    mujoco.mj_forward(model, data)
    matrix = np.zeros((model.nv, model.nv))
    for row, one in zip(matrix, np.eye(model.nv)):
        mujoco.mj_mulM(model, data, row, one)
    return matrix


@pytest.mark.parametrize(
    "inertials",
    [
        {"tcp": INERTIAL.format("0 0 0", 1e-9, 0, 0, 0)},  # a fixed frame that weighs nothing
        {"tcp": NONE},  # or is a point
        {"base": NONE},  # the base never moves
        {"base": INERTIAL.format("0 0 0", 1, 9, 1, 1)},
        {"base": INERTIAL.format("0 0 0", -5, 1, 1, 1)},
        {"base": NONE, "tcp": NONE},
    ],
)
def test_a_frame_or_base_without_inertia_loads_without_a_word_on_it(inertials, tmp_path, capsys):
    model = compile_model(write_arm(tmp_path, upper=SOUND, fore=SOUND, **inertials))
    assert "inertia" not in capsys.readouterr().err
    point = 1.0 if inertials.get("tcp") == NONE else 0.0
    assert model.body("robot/fore").mass[0] == pytest.approx(2.0 + point)


def test_a_point_on_a_frame_moves_the_links_centre_and_adds_to_its_inertia(tmp_path):
    """By hand: 2 kg at 0.1 m and 1 kg at 0.3 m from the elbow."""
    model = compile_model(write_arm(tmp_path, yaw=0.7, upper=SOUND, fore=SOUND, tcp=NONE))
    body = model.body("robot/fore")
    np.testing.assert_allclose(body.ipos, [(2 * 0.1 + 1 * 0.3) / 3, 0, 0])
    both = 0.02 + 2 * 1 / 3 * 0.2**2  # the reduced mass times the distance squared
    np.testing.assert_allclose(sorted(body.inertia), [0.01, both, both])


def test_merging_changes_nothing_that_moves(tmp_path):
    """The merged rows of sound parts against the same parts on bodies of their own."""
    tool = INERTIAL.format("0.02 0.03 -0.04", 0.8, 0.001, 0.002, 0.0025)
    robot = write_arm(tmp_path, yaw=0.4, upper=SOUND, fore=SOUND, tcp=tool)
    apart = compile_model(robot)
    rows = weigh(robot).rows
    T = robot.rtb.links[-1].A(0.0).A
    merged = merge_inertias([(np.eye(4), rows["fore"]), (T, rows["tcp"])])
    spec_mass = merged[0]
    ipos = merged[1:4]
    matrix = make_matrix(merged)
    together = apart.__copy__()
    fore = together.body("robot/fore").id
    together.body_mass[together.body("robot/tcp").id] = 0.0
    together.body_inertia[together.body("robot/tcp").id] = 0.0
    together.body_mass[fore] = spec_mass
    together.body_ipos[fore] = ipos
    moments, axes = np.linalg.eigh(matrix)
    axes[:, 0] *= np.linalg.det(axes)
    together.body_inertia[fore] = moments
    mujoco.mju_mat2Quat(together.body_iquat[fore], axes.ravel())
    for q in np.random.default_rng(0).uniform(*robot.qlim, (20, 2)):
        np.testing.assert_allclose(
            compute_mass_matrix(together, q), compute_mass_matrix(apart, q), atol=1e-12
        )


@pytest.mark.parametrize("grams", [0.001, 0.5])
def test_a_frame_of_a_milligram_is_not_its_links_weight(grams, tmp_path, capsys):
    light = INERTIAL.format("0 0 0", grams / 1e3, 1e-9, 1e-9, 1e-9)
    model = compile_model(write_arm(tmp_path, upper=SOUND, tcp=light))
    assert "no inertia of fore is known" in capsys.readouterr().err
    assert model.body("robot/fore").mass[0] == pytest.approx(12.0 * 0.3)  # to the tool's frame


@pytest.mark.parametrize("axis", ["0 0 1", "0 0.6 0.8"])
@pytest.mark.parametrize("bracket", [False, True])
def test_an_estimate_reaches_from_a_joint_to_the_next(axis, bracket, tmp_path):
    """Whatever the axes are, and whatever stands between: 0.3 m forward and 0.4 m up."""
    write_arm(tmp_path, elbow=0.3)
    path = tmp_path / "arm.urdf"
    text = path.read_text().replace('<axis xyz="0 0 1"/>', f'<axis xyz="{axis}"/>')
    text = text.replace('xyz="0.3 0 0"/><axis', 'xyz="0.3 0 0.4"/><axis')
    if bracket:  # the elbow is on a part of its own, 0.4 m above a fixed frame
        text = text.replace('<parent link="upper"/>', '<parent link="bracket"/>')
        text = text.replace('xyz="0.3 0 0.4"/><axis', 'xyz="0 0 0.4"/><axis')
        fixed = '<joint name="mount" type="fixed"><parent link="upper"/><child link="bracket"/>'
        bracket_text = (
            LINK.format("bracket", "") + fixed + '<origin xyz="0.3 0 0"/></joint></robot>'
        )
        text = text.replace("</robot>", bracket_text)
    path.write_text(text)
    robot = make_robot(str(path))
    model = compile_model(robot)
    body = model.body("robot/upper" if axis == "0 0 1" else "robot/shoulder:axis")
    assert body.mass[0] == pytest.approx(PER_METRE * 0.5)
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    # the middle of the cylinder, from the base, at rest
    np.testing.assert_allclose(data.xipos[body.id], [0.15, 0.0, 0.3 + 0.2], atol=1e-9)


def test_a_tool_of_more_than_a_gram_is_its_links_weight(tmp_path, capsys):
    tool = INERTIAL.format("0 0 0", 0.4, 1e-3, 1e-3, 1e-3)
    model = compile_model(write_arm(tmp_path, upper=SOUND, tcp=tool))
    assert "no inertia" not in capsys.readouterr().err
    assert model.body_mass.sum() == pytest.approx(2.4)


@pytest.mark.parametrize("axis", ["0 0 1", "0 0.6 0.8"])
def test_a_link_between_two_axes_of_one_joint_may_weigh_next_to_nothing(axis, tmp_path, capsys):
    light = INERTIAL.format("0 0 0", 1e-6, 0, 0, 0)

    def weigh_upper(elbow):
        write_arm(tmp_path, elbow=elbow, upper=light, fore=SOUND)
        path = tmp_path / "arm.urdf"
        path.write_text(path.read_text().replace('<axis xyz="0 0 1"/>', f'<axis xyz="{axis}"/>'))
        body = "robot/upper" if axis == "0 0 1" else "robot/shoulder:axis"
        return compile_model(make_robot(str(path))).body(body).mass[0]

    assert weigh_upper(0.0) == 1e-6
    assert "no inertia" not in (said := capsys.readouterr().err)
    assert "no rigid body has the inertia of upper" in said
    assert weigh_upper(0.35) == pytest.approx(12.0 * 0.35)


@pytest.mark.parametrize(
    ("moments", "mended"),
    [
        ((9, 1, 1), (9, 4.5, 4.5)),  # a disc has half its greatest moment across
        ((0.02, 0.02, 0.05), (0.025, 0.025, 0.05)),
        ((0.0, 0.02, 0.02), (0.0, 0.02, 0.02)),  # a thin rod, with next to nothing about itself
        ((-0.01, 0.02, 0.02), (0.0, 0.025, 0.025)),
    ],
)
def test_what_no_body_has_is_mended_with_a_word(moments, mended, tmp_path, capsys):
    odd = INERTIAL.format("0.1 0 0", 2, *moments)
    model = compile_model(write_arm(tmp_path, upper=odd, fore=SOUND))
    assert "no rigid body has the inertia of upper" in capsys.readouterr().err
    np.testing.assert_allclose(
        sorted(model.body("robot/upper").inertia), sorted(mended), rtol=2e-4, atol=2e-5
    )
    assert model.body("robot/upper").mass[0] == 2.0


def test_a_mass_without_inertia_is_a_ball_of_aluminium(tmp_path, capsys):
    model = compile_model(write_arm(tmp_path, upper=NONE, fore=SOUND))
    assert "no rigid body has the inertia of upper" in capsys.readouterr().err
    radius = (3 / (4 * np.pi * 2700)) ** (1 / 3)
    np.testing.assert_allclose(model.body("robot/upper").inertia, 0.4 * radius**2)


def test_an_inertia_of_masses_metres_apart_is_told(tmp_path, capsys):
    """0.01 kg m2 written in kg mm2: a radius of gyration of 71 m for 2 kg."""
    odd = INERTIAL.format("0.1 0 0", 2, 10000, 10000, 10000)
    compile_model(write_arm(tmp_path, upper=SOUND, fore=odd))
    assert "the inertia of fore is that of masses metres apart" in capsys.readouterr().err
    wide = INERTIAL.format("0.1 0 0", 2, 0.01, 16, 16)  # 2.8 m
    compile_model(write_arm(tmp_path, upper=SOUND, fore=wide))
    assert "metres apart" not in capsys.readouterr().err


def test_a_moment_below_that_of_the_densest_ball_stands_for_none(tmp_path, capsys):
    """1 kg of osmium, 22,590 kg/m3, is a ball of radius 0.02195 m: 2/5 m r2 is 1.927e-4 kg m2."""
    assert is_rigid(make_row(1.0, np.zeros(3), 1.93e-4 * np.eye(3)))
    assert not is_rigid(make_row(1.0, np.zeros(3), 1.92e-4 * np.eye(3)))
    tiny = INERTIAL.format("0 0 0", 1, 1e-9, 1e-9, 1e-9)
    model = compile_model(write_arm(tmp_path, upper=tiny, fore=SOUND))
    assert "no rigid body has the inertia of upper" in capsys.readouterr().err
    radius = (3 / (4 * np.pi * 2700)) ** (1 / 3)
    np.testing.assert_allclose(model.body("robot/upper").inertia, 0.4 * radius**2)


def test_mended_inertias_are_rigid_and_rigid_ones_stay():
    rng = np.random.default_rng(0)
    for _ in range(500):
        turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        moments = rng.normal(size=3) * 10.0 ** rng.uniform(-8, 1)
        row = make_row(rng.uniform(1e-3, 10), rng.normal(size=3), turn @ np.diag(moments) @ turn.T)
        mended = mend_inertia(row)
        assert is_rigid(mended)
        np.testing.assert_array_equal(mended[:4], row[:4])
        if is_rigid(row):
            np.testing.assert_allclose(mended, row, rtol=1e-4, atol=1e-4 * abs(moments).max())
        np.testing.assert_allclose(mend_inertia(mended), mended, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", shipped_robots())
def test_the_weights_of_shipped_robots_are_taken_as_they_are(name):
    weights = weigh(make_robot(name))
    assert not weights.estimated and not weights.mended
    assert all(map(is_rigid, weights.rows.values()))


def test_a_negative_mass_is_refused_on_a_frame_too(tmp_path):
    with pytest.raises(ConfigError, match="'tcp' has a mass that is not positive"):
        compile_model(
            write_arm(tmp_path, upper=SOUND, fore=SOUND, tcp=INERTIAL.format("0 0 0", -1, 1, 1, 1))
        )


@pytest.mark.parametrize(("speed", "capsules", "hold"), [(1.0, False, 1), (3.14, True, 60)])
def test_an_xarm7_without_inertias_is_stable(speed, capsules, hold, tmp_path, capsys):
    """Without an inertia of the motors, 2 and 7 of these 960 periods failed."""
    env = envs.make(write_xarm7(tmp_path, speed, capsules), "reach", 16, engine="mujoco")
    assert "no inertia of link1, link2" in capsys.readouterr().err
    env.reset(0)
    generator = torch.Generator().manual_seed(0)
    for step in range(60):
        if step % hold == 0:
            way = torch.sign(torch.rand(16, env.a_dim, generator=generator) * 2 - 1)
        env.step(way if hold == 1 else torch.ones_like(way))
    engine: MujocoEngine = env.engine  # pyright: ignore[reportAssignmentType]
    assert engine.unstable == 0 and describe_failures([engine, None]) == ""
    assert engine.physics.model.dof_armature[engine.physics.qd].tolist() == [ARMATURE["R"]] * 7


def test_failures_name_the_joint_and_what_helps(tmp_path):
    robot = make_robot(write_xarm7(tmp_path))
    engine = type("Engine", (), {"failures": Failures(robot, ("link7",), np.zeros(7, int))})()
    assert describe_failures([engine, None]) == ""
    engine.failures.add(
        np.array([[0, 0, 0, 0, 0, 1, 20.0], [0, 0, 11, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, np.nan]])
    )
    said = describe_failures([engine, None])
    assert said.startswith("the physics failed 3 times") and "joint 7, which moves 'link7'" in said
    assert re.search("thrown about in 2; give the link an <inertial> in the file of robot", said)
    engine.failures = Failures(robot, (), np.eye(7, dtype=int)[0])
    assert "failed once" in (said := describe_failures([engine])) and "--acceleration 10" in said
