"""Grippers of MJCF files: fingers that move as one, and their servo."""

import shlex

import numpy as np
import pytest
import torch

import envs
from envs.collision.files import find_gripper_file, format_fitting
from envs.collision.fitting.__main__ import make_parser
from envs.robots.mjcf import load_mjcf

mujoco = pytest.importorskip("mujoco")

FINGER = """<body name="{name}" pos="0 {y} .05"><joint name="{name}" type="slide" axis="{axis}"
range="{limits}" damping="3" armature=".2"/><geom type="box" size=".01 .005 .03" mass=".1"/></body>"""
ARM = """<mujoco><worldbody><body name="base"><body name="link" pos="0 0 .1">
<joint name="a" axis="0 1 0" range="-90 90" actuatorfrcrange="-50 50"/>
<geom type="capsule" size=".03 .1" mass="2"/>
<body name="wrist" pos="0 0 .3"><joint name="b" axis="0 0 1" range="-90 90" armature=".1"/>
<geom size=".03" mass="1"/><body name="hand" pos="0 0 .05"><geom type="box" size=".05 .03 .02" mass=".5"/>
{fingers}<site name="tcp" pos="0 0 .1"/></body><body name="camera" pos=".1 0 0"><geom size=".01"/></body>
</body></body></body></worldbody>{more}</mujoco>"""
LEFT = FINGER.format(name="left", y=0.02, axis="0 1 0", limits="0 .04")
RIGHT = FINGER.format(name="right", y=-0.02, axis="0 -1 0", limits="0 .04")
TIED = '<equality><joint joint1="right" joint2="left"/></equality>'
TENDON = """<tendon><fixed name="both"><joint joint="left" coef=".5"/><joint joint="right" coef=".5"/>
</fixed></tendon><actuator><general tendon="both" gainprm=".02" biastype="affine" biasprm="0 -100 -10"
ctrlrange="0 255" forcerange="-80 80"/></actuator>"""
SERVO = '<actuator><position joint="left" kp="200" kv="6" forcerange="-30 30"/></actuator>'


@pytest.fixture
def write(tmp_path):
    def write(fingers=LEFT + RIGHT, more=TIED + TENDON) -> str:
        path = tmp_path / "toy.xml"
        path.write_text(ARM.format(fingers=fingers, more=more))
        return str(path)

    return write


def test_fingers_on_a_tendon_are_a_gripper(write):
    gripper = load_mjcf(write(), velocity=(1.0,)).gripper
    assert gripper is not None
    assert gripper.joints == ("gripper/left", "gripper/right") and gripper.drivers == (0, 1)
    assert gripper.mimic.tolist() == [1.0, 1.0]
    assert (gripper.closed, gripper.opened) == (0.0, 0.04)
    assert gripper.tcp[:3, 3].tolist() == pytest.approx([0.0, 0.0, 0.15])  # hand and site
    servo = gripper.physics
    # a force F on half the sum of both is F / 2 on each finger, and half the sum is the stroke
    assert [row.tolist() for row in (servo.stiffness, servo.damping, servo.torque)] == [
        [50.0],
        [5.0],
        [40.0],
    ]
    assert (servo.armature.tolist(), servo.friction.tolist()) == ([0.2], [3.0])


def test_one_servo_is_shared_by_both_and_signs_follow_the_constraint(write):
    right = FINGER.format(name="right", y=-0.02, axis="0 1 0", limits="-.04 0")
    tied = '<equality><joint joint1="right" joint2="left" polycoef="0 -1 0 0 0"/></equality>'
    gripper = load_mjcf(write(LEFT + right, tied + SERVO), velocity=(1.0,)).gripper
    assert gripper is not None and gripper.mimic.tolist() == [1.0, -1.0]
    assert gripper.physics.stiffness.tolist() == [100.0]
    assert gripper.physics.torque.tolist() == [15.0]


def test_it_is_open_where_fingers_are_farthest_apart(write):
    fingers = [
        FINGER.format(name=name, y=y, axis=axis, limits="0 .04")
        for name, y, axis in (("left", 0.06, "0 -1 0"), ("right", -0.06, "0 1 0"))
    ]
    gripper = load_mjcf(write("".join(fingers)), velocity=(1.0,)).gripper
    assert gripper is not None and (gripper.closed, gripper.opened) == (0.04, 0.0)


@pytest.mark.parametrize(
    ("fingers", "more"),
    [
        (LEFT, SERVO),  # one jaw
        (LEFT + RIGHT, TENDON),  # each moves by itself
        (LEFT + RIGHT, TIED),  # nothing drives them
        (LEFT + RIGHT, TIED + SERVO.replace('forcerange="-30 30"', "")),
        (LEFT + RIGHT, TIED.replace("/>", ' polycoef=".01 1 0 0 0"/>') + SERVO),
    ],
)
def test_other_fingers_stand_still(write, fingers, more):
    arm = load_mjcf(write(fingers, more), velocity=(1.0,))
    assert arm.gripper is None and arm.joint_names == ("a", "b")
    assert sum(link.isjoint for link in arm.model.links) == 2


@pytest.mark.parametrize("engine", ["kinematic", "mujoco"])
def test_a_robot_wears_it(write, engine):
    robot = envs.make_robot(write(), velocity=(1.0,))
    assert robot.n == 2 and robot.gripper is not None
    env = envs.make(robot, "reach", 3, engine=engine)
    assert torch.allclose(env.reset(0)[:, 2:4], torch.tensor(0.04))
    bare = envs.make(write(), "reach", 3, engine=engine, gripper="none", velocity=(1.0,))
    assert bare.o_dim == env.o_dim - 2


@pytest.mark.parametrize("gripper", [None, "none"])
def test_masses_are_those_of_the_file(write, gripper):
    from envs.simulation.mujoco import read_contacts
    from envs.simulation.mujoco.model import build

    path = write()
    robot = envs.make_robot(path, gripper, velocity=(1.0,))
    physics = build(robot, read_contacts(), 0.05)
    theirs = mujoco.MjModel.from_xml_path(path)
    blocks = []
    for model, arm, fingers in (
        (theirs, [0, 1], [2, 3]),
        (physics.model, physics.q, physics.gripper),
    ):
        data = mujoco.MjData(model)
        data.qpos[arm] = (0.3, -0.8)
        data.qpos[fingers] = 0.04 if gripper is None else 0.0  # open, or where they stand
        mujoco.mj_forward(model, data)
        rows = np.zeros((2, model.nv))
        for row, joint in zip(rows, arm):
            mujoco.mj_mulM(model, data, row, np.eye(model.nv)[joint])
        blocks.append(rows[:, arm])
    assert np.abs(blocks[0] - blocks[1]).max() < 1e-9 < blocks[0].max()


def test_its_capsules_lie_beside_the_file(write):
    robot = envs.make_robot(write(), velocity=(1.0,))
    path = find_gripper_file(robot.gripper)
    assert path.name == "toy.xml.gripper.collision.yaml" and path.parent == robot.file.parent


def test_goals_are_where_the_arm_faces_at_home(write):
    ahead = envs.make_robot(write(), velocity=(1.0,)).workspace
    key = '<keyframe><key name="home" qpos="-1 0 0 0"/></keyframe>'
    behind = envs.make_robot(write(more=TIED + TENDON + key), velocity=(1.0,)).workspace
    assert ahead[0, 0] > 0.0 > behind[1, 0]


def test_the_command_that_fits_its_capsules_names_the_tcp_and_no_gripper_of_ours(write):
    """The file's own gripper comes with the file; whoever follows the message gets this robot."""
    path = write()
    robot = envs.make_robot(path, tcp="tcp", velocity=(1.0,))
    words = shlex.split(format_fitting(robot))
    assert words[:3] == ["python", "-m", "envs.collision.fitting"]
    asked = make_parser().parse_args(words[3:])
    assert (asked.robot, asked.tcp, asked.gripper) == (path, "tcp", None)
