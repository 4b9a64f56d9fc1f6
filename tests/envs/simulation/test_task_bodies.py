"""A task's own bodies in MuJoCo: what carries them, and what they weigh."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's Python package has no type stubs.

import mujoco
import numpy as np
import pytest
import torch

from envs.kinematics import fkine
from envs.robots import make_robot
from envs.simulation.bodies import Body, Geom, PhysicsSpec, get_body_poses
from envs.simulation.engine import Command, compile_robot, make_rest_state
from envs.simulation.mujoco import MujocoEngine

DT = 0.05
UPRIGHT = (1.0, 0.0, 0.0, 0.0)

BRANCHED = """<robot name='branched'><link name='base'/><link name='upper'/><link name='fore'/>
<link name='tool0'/><link name='camera'><visual><geometry><sphere radius='0.02'/></geometry>
</visual></link>
<joint name='shoulder' type='revolute'><parent link='base'/><child link='upper'/>
<origin xyz='0 0 0.3'/><axis xyz='0 0 1'/><limit lower='-2' upper='2' velocity='2' effort='50'/>
</joint>
<joint name='elbow' type='revolute'><parent link='upper'/><child link='fore'/>
<origin xyz='0.3 0 0'/><axis xyz='0 1 0'/><limit lower='-2' upper='2' velocity='2' effort='50'/>
</joint>
<joint name='tool' type='fixed'><parent link='fore'/><child link='tool0'/>
<origin xyz='0.2 0 0.1' rpy='0.3 0.4 0.5'/></joint>
<joint name='eye' type='fixed'><parent link='base'/><child link='camera'/>
<origin xyz='-0.3 0 0.5'/></joint></robot>"""


@pytest.mark.parametrize("varied", [(), ("place",)])
def test_what_an_arm_without_a_gripper_holds_moves_with_its_tcp(varied, tmp_path):
    (tmp_path / "branched.urdf").write_text(BRANCHED)
    robot = make_robot(str(tmp_path / "branched.urdf"))
    assert robot.rtb.links[-1].name == "camera"  # which stands still
    place = (0.01, 0.02, 0.03, *UPRIGHT)
    peg = Body("peg", (Geom("sphere", (0.01,)),), "held", place[:3], varied=varied)
    model = compile_robot(robot, DT, "cpu", None)
    engine = MujocoEngine(robot, DT, needs=PhysicsSpec((peg,), senses=("wrench",)), threads=1)
    state = make_rest_state(model, torch.tensor([[0.4, -0.7]]))
    scene = {key: torch.tensor([place]) for key in peg.varied_keys.values()}
    worlds = engine._prepare_worlds(engine.begin(model, state, scene))
    physics = worlds.models[0] if varied else worlds.models
    data = mujoco.MjData(physics)
    data.qpos[engine.physics.q] = state.q[0]
    mujoco.mj_kinematics(physics, data)
    expected = get_body_poses(peg, scene, fkine(robot.chain, state.q))[0]
    np.testing.assert_allclose(data.body("peg").xpos, expected[:3, 3], atol=1e-6)
    np.testing.assert_allclose(data.body("peg").xmat.reshape(3, 3), expected[:3, :3], atol=1e-6)
    # and what touches the hand is felt there
    assert physics.sensor("wrench").objid == physics.body("robot/tool0").id


def test_an_arm_whose_physics_fails_feels_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo leaves a note of it there
    robot = make_robot("panda", gripper="none")
    model = compile_robot(robot, DT, "cpu", None)
    needs = PhysicsSpec(senses=("joint_torque", "wrench"))
    engine = MujocoEngine(robot, DT, needs=needs, threads=1)
    home = torch.as_tensor(robot.home, dtype=torch.float32)
    state = make_rest_state(model, home.repeat(2, 1))
    scene = engine.begin(model, state, {})
    command = Command(torch.full((2, robot.n), 0.5))
    for _ in range(3):
        state, scene = engine.step(model, state, command, scene)
    broken = scene["physics"].clone()
    broken[0, 1 + engine.physics.model.nq] = 1e7  # [rad/s]
    _, scene = engine.step(model, state, command, {**scene, "physics": broken})
    assert scene["unstable"].tolist() == [1, 0]
    assert not scene["joint_torque"][0].any() and not scene["wrench"][0].any()
    assert scene["joint_torque"][1].any()
