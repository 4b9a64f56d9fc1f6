"""Bodies that hang on a hinge or slide: the laws of their motion, and what episodes vary of them."""

import dataclasses
import math

import mujoco
import numpy as np
import pytest
import torch

from envs.kinematics.rotations import from_vector, to_matrix, to_quaternion
from envs.robots import make_robot
from envs.simulation.bodies import Body, BodyJoint, Geom, PhysicsSpec, get_body_poses
from envs.simulation.disturbances import Disturbances, DisturbedEngine
from envs.simulation.engine import Command, compile_robot, make_rest_state
from envs.simulation.kinematic import KinematicEngine
from envs.simulation.mujoco import MujocoEngine
from tests.support import get_refusal

G = 9.81
DT = 0.05
FAR = (2.0, 0.0, 1.5)  # [m] out of the arm's reach, above the table
UPRIGHT = (1.0, 0.0, 0.0, 0.0)


class Hung:
    """B arms at rest, and bodies on joints far away from them."""

    def __init__(self, body, count=1, **scene):
        self.body = body
        robot = make_robot("panda")
        self.model = compile_robot(robot, DT, "cpu", None)
        self.engine = MujocoEngine(robot, DT, needs=PhysicsSpec((body,)), threads=1)
        home = torch.as_tensor(robot.home, dtype=torch.float32)
        self.state = make_rest_state(self.model, home.repeat(count, 1))
        place = torch.tensor((*FAR, *UPRIGHT)).repeat(count, 1)
        self.scene = self.engine.begin(self.model, self.state, {body.name: place, **scene})

    def wait(self, steps):
        """Let control periods pass; return the positions (steps, B) of the joint."""
        rest = Command(torch.zeros_like(self.state.q), None)
        positions = []
        for _ in range(steps):
            self.state, self.scene = self.engine.step(self.model, self.state, rest, self.scene)
            positions.append(self.scene[self.body.joint_key])
        return torch.stack(positions)


def make_slide(**joint):
    """A block of 2 kg that slides along the vertical."""
    given = {"axis": (0.0, 0.0, 2.0), "limits": (-1.2, 1.0), **joint}
    geom = Geom("box", (0.05, 0.05, 0.05))
    return Body("block", (geom,), "jointed", mass=2.0, joint=BodyJoint("slide", **given))


def test_a_free_slide_falls_as_bodies_fall():
    fallen = Hung(make_slide()).wait(6)[:, 0]
    seconds = DT * torch.arange(1, 7)
    torch.testing.assert_close(fallen, -0.5 * G * seconds**2, atol=0.01, rtol=0.0)


def test_dry_friction_holds_what_is_lighter_and_brakes_what_is_heavier():
    held = Hung(make_slide(friction=2.2 * G)).wait(10)
    assert held.abs().max() < 1e-3
    seconds = DT * 6
    fallen = Hung(make_slide(friction=0.5 * G)).wait(6)[-1]  # a quarter of its weight
    assert fallen.item() == pytest.approx(-0.5 * 0.75 * G * seconds**2, abs=0.01)


def test_damping_leads_to_the_speed_at_which_it_carries_the_weight():
    position = Hung(make_slide(damping=40.0)).wait(10)[:, 0]
    assert (position[8] - position[9]).item() / DT == pytest.approx(2.0 * G / 40.0, rel=0.01)


def test_limits_hold():
    position = Hung(make_slide(limits=(-0.2, 0.1))).wait(20)
    assert position[-1].item() == pytest.approx(-0.2, abs=2e-3)


def test_a_hinge_swings_with_the_period_of_its_inertia():
    """A bar of length a, hung at its end: T = 2 pi sqrt(2 a / 3 g) for small angles."""
    long = 0.6
    bar = Geom("box", (0.01, 0.01, long / 2.0), (0.0, 0.0, -long / 2.0))
    joint = BodyJoint("hinge", axis=(0.0, 1.0, 0.0), limits=(-1.0, 1.0))
    body = Body("bar", (bar,), "jointed", mass=3.0, joint=joint)
    position = Hung(body, bar_joint=torch.tensor([0.1])).wait(60)[:, 0].numpy()
    rising = np.flatnonzero((position[:-1] < 0.0) & (position[1:] >= 0.0))
    zeros = rising - position[rising] / (position[rising + 1] - position[rising])
    expected = 2.0 * math.pi * math.sqrt(2.0 * long / (3.0 * G))
    assert len(zeros) >= 2
    assert np.diff(zeros).mean() * DT == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("kind", ["hinge", "slide"])
def test_its_pose_is_that_of_mujoco(kind):
    """Random axes, anchors, frames and positions; the anchor differs between episodes."""
    rng = torch.Generator().manual_seed(3)
    axis = tuple(torch.randn(3, generator=rng).tolist())
    varied = ("anchor",) if kind == "hinge" else ()
    body = Body(
        "lid",
        (Geom("sphere", (0.02,)),),
        "jointed",
        varied=varied,
        joint=BodyJoint(kind, axis=axis, limits=(-2.0, 2.0)),
    )
    count = 4
    turned = to_quaternion(to_matrix(from_vector(torch.randn(count, 3, generator=rng))))
    place = torch.cat((torch.tensor(FAR).repeat(count, 1), turned), 1)
    scene = {"lid": place, "lid_joint": torch.randn(count, generator=rng)}
    if varied:
        scene["lid_anchor"] = torch.randn(count, 3, generator=rng)
    hung = Hung(body, count, **scene)
    expected = get_body_poses(body, hung.scene, torch.empty(count, 4, 4)).double()
    hung.wait(1)
    for row in range(count):
        varied_models = hung.engine._varied
        model = varied_models._models[row] if varied_models else hung.engine.physics.model
        data = mujoco.MjData(model)
        data.mocap_pos[0] = place[row, :3]
        data.mocap_quat[0] = place[row, 3:]
        data.qpos[model.joint("lid/joint").qposadr[0]] = scene["lid_joint"][row]
        mujoco.mj_kinematics(model, data)
        found = torch.from_numpy(data.body("lid").xpos)
        torch.testing.assert_close(found, expected[row, :3, 3], atol=1e-5, rtol=0.0)
        R = torch.from_numpy(data.body("lid").xmat.reshape(3, 3))
        torch.testing.assert_close(R, expected[row, :3, :3], atol=1e-5, rtol=0.0)


def test_a_body_may_be_called_like_a_joint_of_the_robot():
    """It falls like any other, and so does a free one."""
    name = "joint1"
    block = make_slide()
    named = dataclasses.replace(block, name=name)
    free = dataclasses.replace(block, name=name, motion="free", joint=None)
    expected = Hung(block).wait(3)
    torch.testing.assert_close(Hung(named).wait(3), expected, rtol=0.0, atol=0.0)
    fallen = Hung(free)
    rest = Command(torch.zeros_like(fallen.state.q), None)
    for _ in range(3):
        fallen.state, fallen.scene = fallen.engine.step(
            fallen.model, fallen.state, rest, fallen.scene
        )
    height = fallen.scene[name][0, 2] - FAR[2]
    torch.testing.assert_close(height, expected[-1, 0], atol=1e-4, rtol=0.0)


def test_episodes_differ_in_how_hard_they_turn():
    """Where a joint is given less friction than the weight, its body falls, and only there."""
    geom = Geom("box", (0.05, 0.05, 0.05))
    joint = BodyJoint("slide", limits=(-1.2, 1.0), friction=100.0)
    varied = ("joint_friction", "joint_damping", "mass")
    body = Body("block", (geom,), "jointed", mass=2.0, varied=varied, joint=joint)
    hung = Hung(
        body,
        3,
        block_joint_friction=torch.tensor([30.0, 0.0, 0.0]),
        block_joint_damping=torch.tensor([0.0, 0.0, 80.0]),
        block_mass=torch.tensor([2.0, 2.0, 4.0]),
    )
    position = hung.wait(6)
    assert position[-1, 0].abs() < 1e-3
    assert position[-1, 1].item() == pytest.approx(-0.5 * G * 0.3**2, abs=0.01)
    assert (position[4, 2] - position[5, 2]).item() / DT == pytest.approx(4.0 * G / 80.0, rel=0.02)


def test_a_hand_that_is_not_open_holds_until_the_first_command_arrives():
    """Under latency nothing is pending but to shut a hand that began on something."""
    robot = make_robot("panda")
    model = compile_robot(robot, DT, "cpu", None)
    home = torch.as_tensor(robot.home, dtype=torch.float32).repeat(2, 1)
    state = make_rest_state(model, home)
    state.gripper[1] = 0.008
    late = DisturbedEngine(KinematicEngine(), Disturbances(latency=0.1), DT, "cpu")
    scene = late.begin(model, state, {})
    after, _ = late.step(model, state, Command(0.0 * home, torch.ones(2)), scene)
    assert after.gripper[0] == state.gripper[0] and after.gripper[1] < state.gripper[1]


def test_wrong_joints_are_refused_by_name():
    box = (Geom("box", (0.1, 0.1, 0.1)),)
    hinge = BodyJoint("hinge")
    assert "kind of joint 'ball'" in get_refusal(BodyJoint, "ball")
    assert "not all zero" in get_refusal(BodyJoint, "hinge", (0.0, 0.0, 0.0))
    assert "the lower first" in get_refusal(BodyJoint, "slide", limits=(1.0, 0.0))
    assert "two, the lower first" in get_refusal(BodyJoint, "hinge", limits=(0.0, 1.0, 2.0))
    for wrong in (-1.0, math.nan, math.inf):
        assert "friction of a slide must be from 0 to below infinity" in get_refusal(
            BodyJoint, "slide", friction=wrong
        )
    for wrong in ((math.nan, 0.0, 1.0), (math.inf, 0.0, 0.0)):
        needs = "a hinge needs three finite numbers of its axis"
        assert needs in get_refusal(BodyJoint, "hinge", wrong)
        assert needs in get_refusal(BodyJoint, "hinge", anchor=wrong)
    assert "need each other" in get_refusal(Body, "door", box, "jointed")
    assert "need each other" in get_refusal(Body, "door", box, "free", joint=hinge)
    assert "the anchor of a jointed body alone can vary" in get_refusal(
        Body, "door", box, "free", varied=("anchor",)
    )
    assert "the place of a held body alone can vary" in get_refusal(
        Body, "door", box, "jointed", varied=("place",), joint=hinge
    )
