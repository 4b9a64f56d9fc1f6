"""Grippers of MJCF files: fingers that move as one, and their servo."""

import shlex

import numpy as np
import pytest
import torch

import envs
from envs.collision.files import find_capsule_file, find_gripper_file, format_fitting
from envs.collision.fitting.__main__ import make_parser
from envs.controllers import make_baseline
from envs.robots.mjcf import load_mjcf
from envs.robots.urdf import build_model

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

TWO = """<mujoco><asset><model name="toy" file="toy.xml"/></asset><worldbody>
<attach model="toy" body="base" prefix="l/"/>
<body pos="1 0 0"><attach model="toy" body="base" prefix="r/"/></body></worldbody></mujoco>"""


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


@pytest.mark.parametrize(
    ("more", "servo"),
    [  # kp, kv and most force of both together, of which either finger has half
        ('<position joint="right" kp="200" kv="6" forcerange="-30 30"/>', (200.0, 6.0, 30.0)),
        ('<velocity joint="left" kv="4"/>', (100.0, 5.0, 15.0)),
        ('<motor joint="left" ctrlrange="-9 9"/>', (100.0, 3.0, 15.0)),  # no servo
    ],
)
def test_servos_of_fingers_that_are_tied_add_up(write, more, servo):
    both = SERVO.replace("</actuator>", f"{more}</actuator>")
    gripper = load_mjcf(write(more=TIED + both), velocity=(1.0,)).gripper
    assert gripper is not None
    found = gripper.physics
    assert [row.tolist() for row in (found.stiffness, found.damping, found.torque)] == [
        [value] for value in servo
    ]


def test_it_is_open_where_fingers_are_farthest_apart(write):
    fingers = [
        FINGER.format(name=name, y=y, axis=axis, limits="0 .04")
        for name, y, axis in (("left", 0.06, "0 -1 0"), ("right", -0.06, "0 1 0"))
    ]
    gripper = load_mjcf(write("".join(fingers)), velocity=(1.0,)).gripper
    assert gripper is not None and (gripper.closed, gripper.opened) == (0.04, 0.0)


def test_a_servo_without_force_limits_gives_what_its_stiffness_does_over_the_stroke(write):
    servo = SERVO.replace('forcerange="-30 30"', "")
    gripper = load_mjcf(write(more=TIED + servo), velocity=(1.0,)).gripper
    assert gripper is not None and gripper.physics.torque.tolist() == [200.0 * 0.04 / 2.0]


def test_what_the_arm_leads_beyond_the_tcp_is_no_finger(write, capsys):
    flap = LEFT.replace("left", "flap")
    led = '<equality><joint joint1="flap" joint2="a" polycoef="0 .1 0 0 0"/></equality>'
    gripper = load_mjcf(write(LEFT + RIGHT + flap, TIED + SERVO + led), velocity=(1.0,)).gripper
    assert gripper is not None and gripper.joints == ("gripper/left", "gripper/right")
    warning = capsys.readouterr().err
    assert "joints beyond the TCP stand still (flap): the gripper carries" in warning


LINKAGE = (
    '<equality><connect body1="left" body2="right" anchor="0 0 0"/>'
    '<joint joint1="right" joint2="left"/></equality>'
)


@pytest.mark.parametrize(
    ("fingers", "more", "reason"),
    [
        (LEFT, SERVO, "one jaw alone moves"),
        (LEFT + RIGHT, TENDON, "no equality joins left, right"),
        (LEFT + RIGHT, TIED, "no servo drives them"),
        (
            LEFT + RIGHT,
            TIED + SERVO.replace("-30 30", "0 30"),
            "their servo gives no force one way",
        ),
        (LEFT + RIGHT, TIED + TENDON.replace("-80 80", "-80 0"), "their servo gives no force one"),
        (
            LEFT + RIGHT,
            TIED + SERVO.replace("position", "motor").replace('kp="200" kv="6"', ""),
            "no servo drives them",
        ),
        (
            LEFT + RIGHT,
            TIED.replace("/>", ' polycoef=".01 1 0 0 0"/>') + SERVO,
            "'right' does not follow 'left' in proportion",
        ),
        (LEFT + RIGHT, LINKAGE + SERVO, "a linkage with loops moves them"),
    ],
)
def test_other_fingers_stand_still_and_one_line_says_why(write, capsys, fingers, more, reason):
    arm = load_mjcf(write(fingers, more), velocity=(1.0,))
    assert arm.gripper is None and arm.joint_names == ("a", "b")
    assert sum(link.isjoint for link in build_model(arm.tree, arm.moving).links) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and reason in told and "--gripper takes one of ours" in told


def test_pads_are_the_inner_sides_near_the_tips(write):
    """Boxes: faces 5 mm from the fingers' frames, which are 20 mm aside; tips at 80 mm."""
    gripper = load_mjcf(write(), velocity=(1.0,)).gripper
    assert gripper is not None and gripper.pads is not None
    pads = gripper.pads
    assert pads.links == ("left", "right")
    expected = {
        "closing": (0.0, 1.0, 0.0),
        "approach": (0.0, 0.0, 1.0),
        "gap": (0.03, 0.07, 0.11),
        "size": (0.02, 0.03),  # the half of a finger that ends in the tip
        "tip": -0.02,  # the TCP is at 100 mm
        "finger": 0.01,
        "palm": (0.08, 0.05, 0.03),
    }
    for key, value in expected.items():
        assert np.allclose(getattr(pads, key), value, atol=1e-6), key


def test_pads_do_not_depend_on_the_frame_that_the_tcp_is(write):
    """A TCP turned about the approach and nearer to the palm sees the same fingers."""
    site = '<site name="turned" pos="0 0 .05" euler="0 0 90"/>'
    path = write(fingers=LEFT + RIGHT + site)
    pads = [load_mjcf(path, tcp, velocity=(1.0,)).gripper.pads for tcp in ("tcp", "turned")]
    assert np.allclose(pads[1].closing, (1.0, 0.0, 0.0)) and np.allclose(pads[0].gap, pads[1].gap)
    assert (pads[1].tip - pads[0].tip, pads[0].palm[0] - pads[1].palm[0]) == pytest.approx(
        (0.05, 0.05)
    )


def test_a_tcp_that_is_not_between_the_pads_grasps_nothing_and_one_line_names_the_one_that_is(
    write, capsys
):
    path = write(fingers=LEFT + RIGHT + '<site name="aside" pos=".02 0 .06"/>')
    gripper = load_mjcf(path, "aside", velocity=(1.0,)).gripper
    assert gripper is not None and gripper.pads is None
    assert "--tcp hand:grasp is" in capsys.readouterr().err
    between = load_mjcf(path, "hand:grasp", velocity=(1.0,)).gripper
    assert between is not None and between.pads is not None
    assert between.tcp[:3, 3].tolist() == pytest.approx([0.0, 0.0, 0.05 + 0.065])


# Frames of the Panda's links, https://frankaemika.github.io/docs/control_parameters.html
PANDA = (
    ("0 0 .333", "1 0 0 0", "-2.9 2.9"),
    ("0 0 0", "1 -1 0 0", "-1.76 1.76"),
    ("0 -.316 0", "1 1 0 0", "-2.9 2.9"),
    (".0825 0 0", "1 1 0 0", "-3.07 -.07"),
    ("-.0825 .384 0", "1 -1 0 0", "-2.9 2.9"),
    ("0 0 0", "1 1 0 0", "-.02 3.75"),
    (".088 0 0", "1 1 0 0", "-2.9 2.9"),
)


@pytest.fixture
def panda(tmp_path) -> str:
    """A file with the Panda's kinematics and two fingers, and no site that could be the TCP."""
    hand = f'<body name="hand" pos="0 0 .107"><geom size=".03" mass=".5"/>{LEFT}{RIGHT}</body>'
    for index, (pos, quat, limits) in reversed(list(enumerate(PANDA))):
        joint = f'<joint name="j{index}" axis="0 0 1" range="{limits}" armature=".1"/>'
        hand = f'<body pos="{pos}" quat="{quat}">{joint}<geom size=".03" mass="1"/>{hand}</body>'
    servos = "".join(
        f'<position joint="j{index}" kp="2000" kv="200" forcerange="-80 80"/>' for index in range(7)
    )
    home = '<key name="home" qpos="0 0 0 -1.57 0 1.57 0 0 0"/>'
    path = tmp_path / "seven.xml"
    path.write_text(
        '<mujoco><compiler angle="radian"/><worldbody><body name="base">'
        f"<geom size='.05'/>{hand}</body></worldbody><actuator>{servos}</actuator>{TIED}{TENDON}"
        f"<keyframe>{home}</keyframe></mujoco>"
    )
    return str(path)


def test_a_cube_is_picked_with_the_hand_of_a_file(panda):
    robot = envs.make_robot(panda, velocity=(2.0,))
    assert robot.tcp_link == "hand:grasp" and robot.n == 7
    env = envs.make(robot, "pick_place", 50, seed=0)
    act = make_baseline("pick", env)
    observation = env.reset(0)
    for _ in range(env.task.horizon):
        step = env.step(act(observation))
        observation = step.observation
    assert float(step.info["success"].float().mean()) > 0.9


@pytest.mark.parametrize("engine", ["kinematic", "mujoco"])
def test_an_action_opens_and_shuts_it(panda, engine):
    env = envs.make(panda, "pick_place", 2, seed=0, velocity=(2.0,), engine=engine)
    env.reset(0)
    action = torch.zeros(2, 8)
    ends = []
    for way in (-1.0, 1.0):
        action[:, 7] = way
        for _ in range(40):
            env.step(action)
        ends.append(float(env.moment.state.gripper.mean()))
    assert ends == pytest.approx([0.0, 0.04], abs=2e-3)


def test_the_observation_holds_the_drivers(panda):
    robot = envs.make_robot(panda, velocity=(2.0,))
    robot.gripper.q[:] = (0.01, 0.02)
    assert envs.o(None, robot)[7:].tolist() == pytest.approx([0.01, 0.02])


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


def test_the_command_that_fits_its_capsules_names_all_but_a_gripper_of_ours(write):
    """The file's own gripper comes with the file; whoever follows the message gets this robot."""
    path = write()
    chosen = {"base": "base", "velocity": (1.0, 0.1 + 0.2)}
    robot = envs.make_robot(path, tcp="tcp", **chosen)
    words = shlex.split(format_fitting(robot))
    assert words[:3] == ["python", "-m", "envs.collision.fitting"]
    asked = make_parser().parse_args(words[3:])
    assert (asked.robot, asked.tcp, asked.gripper) == (path, "tcp", None)
    assert {"base": asked.base, "velocity": tuple(asked.velocity)} == chosen


def test_two_arms_of_a_file_have_capsules_and_hands_of_their_own(write, tmp_path):
    write()
    path = tmp_path / "two.xml"
    path.write_text(TWO)
    found = []
    for base in ("l/base", "r/base"):
        robot = envs.make_robot(str(path), base=base, velocity=(1.0,))
        found += [find_capsule_file(robot), find_gripper_file(robot.gripper)]
    assert [file.name for file in found] == [
        "two.xml.l.base.collision.yaml",
        "two.xml.l.base.gripper.collision.yaml",
        "two.xml.r.base.collision.yaml",
        "two.xml.r.base.gripper.collision.yaml",
    ]
    assert {file.parent for file in found} == {tmp_path}
