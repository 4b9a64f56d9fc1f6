"""A robot's MuJoCo model: it stands where the chain says, weighs what its file says, and keeps
still.
"""

import dataclasses

import mujoco
import numpy as np
import pytest
import torch

from envs.kinematics import fkine
from envs.robots import make_robot, shipped_robots
from envs.simulation.mujoco import read_contacts
from envs.simulation.mujoco.bodies import add_robot, make_body_name
from envs.simulation.mujoco.model import build
from td3_robot.errors import ConfigError

# Of MuJoCo Menagerie's models, and of Universal Robots' and Robotiq's data sheets (20.6 and 0.9 kg)
# [kg].
MASSES = {"panda": 18.0, "ur5e": 20.6 + 0.9}
# [Nm] at home, of Menagerie's panda.xml
GRAVITY = {"panda": [0.0, -20.2, -0.27, 22.9, 0.6, 2.44, 0.0]}


@pytest.mark.parametrize("name", shipped_robots())
def test_the_tcp_is_where_the_chain_has_it(name):
    robot = make_robot(name)
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    names = add_robot(spec, robot).joints
    model = spec.compile()
    data = mujoco.MjData(model)
    q = np.random.default_rng(0).uniform(*robot.qlim, (1000, robot.n))
    T_be = fkine(robot.chain.to(dtype=torch.float64), torch.as_tensor(q)).numpy()
    last = robot.rtb.grippers[0].links[0] if robot.rtb.grippers else robot.rtb.links[-1]
    tool = robot.gripper.tcp if robot.gripper else np.eye(4)
    place = [model.joint(joint).qposadr[0] for joint in names]
    for row in range(len(q)):
        data.qpos[place] = q[row]
        mujoco.mj_kinematics(model, data)
        body = data.body(make_body_name(last.name))
        T = np.eye(4)
        T[:3, :3] = body.xmat.reshape(3, 3)
        T[:3, 3] = body.xpos
        np.testing.assert_allclose(T @ tool, T_be[row], atol=1e-5)


def test_it_weighs_what_its_maker_says(lab):
    model = lab.engine.physics.model
    weight = model.body_mass.sum() - model.body("object").mass[0]
    assert weight == pytest.approx(MASSES[lab.robot.name], rel=0.05)


def test_gravity_pulls_as_at_menagerie_s_panda(panda_lab):
    p = panda_lab.engine.physics
    data = mujoco.MjData(p.model)
    data.qpos[p.q] = panda_lab.robot.home
    mujoco.mj_forward(p.model, data)
    np.testing.assert_allclose(data.qfrc_bias[p.qd], GRAVITY["panda"], rtol=0.05, atol=0.05)


def test_an_arm_that_nothing_drives_stays(lab):
    p = lab.engine.physics
    model = p.model.__copy__()
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ACTUATION)
    data = mujoco.MjData(model)
    data.qpos[p.q] = lab.robot.home
    data.qpos[p.gripper] = p.multiple * lab.robot.gripper.opened
    start = data.qpos[p.q].copy()
    mujoco.mj_step(model, data, nstep=2500)  # 5 s
    assert np.abs(data.qpos[p.q] - start).max() < 1e-3


def test_the_order_of_joints_and_their_limits_are_the_robot_s(lab):
    p = lab.engine.physics
    joints = [p.model.joint(f"joint{i + 1}") for i in range(lab.robot.n)]
    assert [joint.qposadr[0] for joint in joints] == p.q.tolist()
    np.testing.assert_allclose([joint.range for joint in joints], lab.robot.qlim.T)


URDF = """<robot name='{name}'><link name='base'/><link name='arm'>{inertial}</link><link name='tip'/>
<joint name='turn' type='revolute'><parent link='base'/><child link='arm'/><origin xyz='0 0 0.3'/><axis xyz='0 1 0'/>
<limit lower='-1' upper='1' velocity='1' effort='{effort}'/></joint>
<joint name='on' type='fixed'><parent link='arm'/><child link='tip'/><origin xyz='0.3 0 0'/></joint></robot>"""
INERTIAL = "<inertial><mass value='{}'/><inertia ixx='{}' iyy='1' izz='1' ixy='0' ixz='0' iyz='0'/></inertial>"


def test_what_is_not_known_of_a_urdf_is_told_in_one_line(tmp_path, capsys):
    path = tmp_path / "thin.urdf"
    path.write_text(URDF.format(name="thin", inertial="", effort=0))
    model = build(make_robot(str(path)), read_contacts(), 0.05).model
    (line,) = capsys.readouterr().err.splitlines()
    assert "no inertia of arm" in line and "no torque limits" in line and "touches nothing" in line
    assert model.body("robot/arm").mass[0] == pytest.approx(12.0 * 0.3)


def test_a_weight_that_cannot_be_is_refused(tmp_path):
    path = tmp_path / "odd.urdf"
    path.write_text(URDF.format(name="odd", inertial=INERTIAL.format(-1, 1), effort=1))
    with pytest.raises(ConfigError, match="mass that is not positive"):
        build(make_robot(str(path)), read_contacts(), 0.05)


def test_the_weights_of_a_urdf_and_its_efforts_are_taken(tmp_path):
    path = tmp_path / "good.urdf"
    path.write_text(URDF.format(name="good", inertial=INERTIAL.format(2, 1), effort=7))
    p = build(make_robot(str(path)), read_contacts(), 0.05)
    assert p.model.body("robot/arm").mass[0] == 2.0 and p.drives.torque.tolist() == [7.0]
    assert p.model.body("robot/arm").inertia.tolist() == [1.0, 1.0, 1.0]


def test_a_root_link_may_be_called_as_mujoco_s_own(tmp_path):
    path = tmp_path / "ros.urdf"
    path.write_text(
        URDF.format(name="ros", inertial=INERTIAL.format(2, 1), effort=7).replace(
            "'base'", "'world'"
        )
    )
    assert (
        build(make_robot(str(path)), read_contacts(), 0.05).model.body("robot/arm").mass[0] == 2.0
    )


def touching(physics, q):
    """Names of the geoms of each contact between the arm and itself or the table."""
    data = mujoco.MjData(physics.model)
    data.qpos[physics.q] = q
    mujoco.mj_forward(physics.model, data)
    names = [
        frozenset(physics.model.geom(geom).name for geom in (each.geom1, each.geom2))
        for each in data.contact
        if each.dist < 0
    ]
    return {
        pair
        for pair in names
        if all(name == "table" or name.startswith("capsule") for name in pair)
    }


@pytest.mark.parametrize("name", ["panda", "ur5e"])
def test_where_drawn_meshes_touch_their_capsules_do(name):
    robot = make_robot(name)
    contacts = read_contacts()
    drawn = build(robot, dataclasses.replace(contacts, arm_shapes="meshes"), 0.05)
    capsules = build(robot, contacts, 0.05)
    assert drawn.model.nmesh >= 15 and capsules.model.nmesh == 0
    positions = np.random.default_rng(0).uniform(*robot.qlim, (300, robot.n))
    found = [(touching(drawn, q), touching(capsules, q)) for q in positions]
    assert all(of_meshes <= of_capsules for of_meshes, of_capsules in found)
    both, either = (sum(bool(each[i]) for each in found) for i in (0, 1))
    assert 0.7 * either < both < either  # and seldom where the meshes do not


def test_a_mesh_that_cannot_be_read_is_named(monkeypatch):
    robot = make_robot("panda")
    contacts = dataclasses.replace(read_contacts(), arm_shapes="meshes")
    shape = next(link for link in robot.rtb.links if link.name == "panda_link3").geometry[0]
    monkeypatch.setattr(shape, "_filename", "gone.dae")
    with pytest.raises(ConfigError, match="mesh gone.dae cannot be read: No such file"):
        build(robot, contacts, 0.05)
    with pytest.raises(ConfigError, match="arm_shapes.*'boxes'.*capsules, meshes"):
        dataclasses.replace(contacts, arm_shapes="boxes")
