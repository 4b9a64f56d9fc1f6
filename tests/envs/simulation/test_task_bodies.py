"""A task's own bodies in MuJoCo: what carries them, and what they weigh."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's Python package has no type stubs.

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from envs.kinematics import fkine
from envs.robots import make_robot
from envs.simulation.bodies import AllowedContact, Body, Geom, PhysicsSpec, get_body_poses
from envs.simulation.engine import Command, compile_robot, make_rest_state
from envs.simulation.mujoco import MujocoEngine
from td3_robot.errors import not_none
from tests.support import get_refusal

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


def test_the_dry_friction_of_joints_is_not_felt():
    """Neither on the way there, nor back, nor at rest after it; a torque beyond it is."""
    robot = make_robot("panda", gripper="none")
    robot = replace(robot, physics=replace(robot.physics, dry_friction=np.full(robot.n, 5.0)))
    model = compile_robot(robot, DT, "cpu", None)
    engine = MujocoEngine(robot, DT, needs=PhysicsSpec(senses=("joint_torque",)), threads=1)
    state = make_rest_state(model, torch.as_tensor(robot.home, dtype=torch.float32)[None])
    scene = engine.begin(model, state, {})
    for speed in (0.1, -0.1, 0.0):
        for _ in range(10):
            command = Command(torch.full((1, robot.n), speed))
            state, scene = engine.step(model, state, command, scene)
        assert scene["joint_torque"].abs().max() < 0.1
    still = np.zeros(robot.n)
    felt = not_none(engine._model_torque).remove_dry_friction(
        np.linspace(-9.0, 9.0, 7), still, still
    )
    np.testing.assert_allclose(felt, [-4.0, -1.0, 0.0, 0.0, 0.0, 1.0, 4.0])


TURNS = {  # quaternion, and which of the geom's axes each of the body's is
    "as it is": ((1.0, 0.0, 0.0, 0.0), [0, 1, 2]),
    "about y": ((0.5**0.5, 0.0, 0.5**0.5, 0.0), [2, 1, 0]),
    "about all": ((0.5, 0.5, 0.5, 0.5), [2, 0, 1]),
}
SIDES = {  # [m]
    ("box", (0.05, 0.1, 0.15)): [0.1, 0.2, 0.3],
    ("cylinder", (0.01, 0.2)): [0.02, 0.02, 0.4],
    ("capsule", (0.01, 0.2)): [0.02, 0.02, 0.42],
    ("sphere", (0.1,)): [0.2, 0.2, 0.2],
}


def compile_free(*geoms):
    """Compile a robot beside a free body of 2 kg with these geoms; return the body in it."""
    body = Body("rod", geoms, "free", mass=2.0)
    needs = PhysicsSpec((body,))
    model = MujocoEngine(make_robot("panda", gripper="none"), DT, needs=needs).physics.model
    return model.body("rod")


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("kind, size", SIDES)
def test_a_body_has_the_inertia_of_the_box_around_its_turned_geoms(kind, size, turn):
    quaternion, axes = TURNS[turn]
    rod = compile_free(Geom(kind, size, (0.1, 0.2, 0.3), quaternion))
    x, y, z = np.array(SIDES[kind, size])[axes]
    expected = 2.0 / 12.0 * np.array([y**2 + z**2, z**2 + x**2, x**2 + y**2])
    R = np.empty(9)
    mujoco.mju_quat2Mat(R, rod.iquat)
    found = R.reshape(3, 3) @ np.diag(rod.inertia) @ R.reshape(3, 3).T
    np.testing.assert_allclose(found, np.diag(expected), atol=1e-9)
    np.testing.assert_allclose(rod.ipos, (0.1, 0.2, 0.3), atol=1e-12)


def test_a_rod_that_leans_is_in_the_box_of_its_ends():
    half = np.deg2rad(30.0) / 2.0
    rod = compile_free(Geom("capsule", (0.01, 0.2), quaternion=(np.cos(half), np.sin(half), 0, 0)))
    x, y, z = 0.02, 0.02 + 0.4 * 0.5, 0.02 + 0.4 * 0.75**0.5
    expected = 2.0 / 12.0 * np.array([y**2 + z**2, z**2 + x**2, x**2 + y**2])
    np.testing.assert_allclose(sorted(rod.inertia), sorted(expected), rtol=1e-6)


BALL = (Geom("sphere", (0.1,)),)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Geom("box", (float("nan"), 1.0, 1.0)), "a box needs 3 positive sizes"),
        (lambda: Geom("sphere", (1.0,), (0.0, 0.0)), "a sphere needs a position of three finite"),
        (lambda: Body("b", BALL, position=(0.0, 0.0)), "body 'b' needs a position of three finite"),
        (
            lambda: Body("b", BALL, position=(0.0, 0.0, float("nan"))),
            "finite numbers, got [0.0, 0.0, nan]",
        ),
        (lambda: AllowedContact("hand", "table", -1.0), "'hand' and 'table' must not be negative"),
        (lambda: AllowedContact("hand", "table", float("nan")), "must not be negative, got nan"),
        (lambda: Geom("sphere", (float("inf"),)), "a sphere needs 1 positive sizes"),
        (lambda: Geom("sphere", (0.1,), friction=-1.0), "friction of a sphere must be from 0"),
        (
            lambda: Geom("sphere", (0.1,), quaternion=(1.0, 1.0, 0.0, 0.0)),
            "a sphere needs a quaternion wxyz of length 1, such as 1 0 0 0, got [1.0, 1.0, 0.0, 0",
        ),
        (
            lambda: Body("b", BALL, quaternion=(0.0, 0.0, 0.0, 0.0)),
            "body 'b' needs a quaternion wxyz of length 1",
        ),
        (lambda: Body("b", BALL, quaternion=(1.0, 0.0, 0.0)), "body 'b' needs a quaternion"),
        (lambda: Body("b", BALL, mass=float("inf")), "body 'b': mass must be positive and finite"),
    ],
)
def test_what_no_body_has_is_refused_in_one_line(make, words):
    assert words in get_refusal(make)


@pytest.mark.parametrize("name", ["world", "table", ""])
def test_a_body_is_not_called_like_what_is_there(name):
    words = "needs at least one geom and a name of its own, not table, robot, hand or world"
    assert get_refusal(Body, name, BALL, "free") == f"body {name!r} {words}"


def test_a_body_is_not_called_like_a_cube():
    needs = PhysicsSpec((Body("object", BALL, "free"),))
    message = get_refusal(MujocoEngine, make_robot("panda"), DT, 0.04, needs=needs)
    assert message == (
        "body 'object' is called like a cube; it needs a name of its own, not object"
    )


@pytest.mark.parametrize(
    ("pairs", "touches"),
    [
        ([("probe", "block")], (1, 0, 0)),
        ([("probe", "block"), ("hand", "block")], (1, 1, 0)),
        ([("block", "hand"), ("probe", "block"), ("block", "hand")], (1, 0, 0)),
        ([("robot", "block"), ("hand", "block")], (1, 1, 1)),
        ([("probe", "block"), ("cap", "block"), ("hand", "table")], (1, 0, 0)),
    ],
)
def test_of_contacts_that_are_allowed_twice_none_hides_a_forbidden_one(pairs, touches):
    """Touches of the block by the probe, the hand itself and the rest of the arm, by number; with
    one more, by the rest of the arm, there is one that must not be.
    """
    bodies = [Body(name, BALL, "held") for name in ("probe", "cap")] + [Body("block", BALL)]
    contacts = tuple(AllowedContact(*pair) for pair in pairs)
    needs = PhysicsSpec(tuple(bodies), contacts)
    physics = MujocoEngine(make_robot("panda"), DT, None, needs=needs).physics
    task = not_none(physics.task)
    probe, hand, arm = touches
    found = {"probe": probe, "cap": 0, "hand": probe + hand, "robot": sum(touches)}
    sensed = np.zeros((1, 1, physics.model.nsensordata))
    for number, pair in enumerate(pairs):
        part = pair[pair[0] == "block"]
        sensed[..., task.allowed[number, 0]] = found[part] * ("block" in pair)
    count, distance = task.others["block"]
    sensed[..., distance] = -0.003
    sensed[..., count] = sum(touches)
    assert task.compute_forbidden_depth(sensed) == 0.0
    sensed[..., count] += 1
    assert task.compute_forbidden_depth(sensed) == pytest.approx(0.003)
