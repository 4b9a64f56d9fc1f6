"""The links of a robot as MuJoCo bodies: their places, joints and weights."""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# MuJoCo's Python package has no type stubs, and roboticstoolbox's links come as Any.

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from mujoco import MjsBody, MjSpec

from envs.robots import Robot
from envs.robots.followers import Follower, get_follower, list_followers
from envs.robots.physics import Physics
from envs.simulation.mujoco.inertias import Weights, weigh
from td3_robot.errors import not_none

# By kind of joint, of the motor behind its gear where the link's inertia is an estimate: that of
# MuJoCo Menagerie's xArm7, Panda and UR5e [kg m2], and the mass that is as much at 0.1 m [kg].
# Without it a servo that gives all its torque to a link that hardly resists, between two joints
# with one axis or at the end of the arm, throws it about.
ARMATURE = {"R": 0.1, "t": 10.0}


@dataclass(frozen=True)
class Bodies:
    """A robot in a MjSpec.

    Attributes:
        by_link: the body of every link, by the link's name.
        joints: names of the arm's joints, base to flange.
        drivers: names of the gripper's drivers, right and left; () without one.
        followers: by the name of its joint, each link that follows a joint of the arm.
        weights: what the links weigh.
    """

    by_link: dict[str, MjsBody]
    joints: tuple[str, ...]
    drivers: tuple[str, ...]
    followers: dict[str, Follower]
    weights: Weights


def convert_quaternion(R: np.ndarray) -> np.ndarray:
    """Return the unit quaternion (4,), wxyz, of a rotation (3, 3)."""
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, np.ascontiguousarray(R, float).ravel())
    return quat


def add_robot(spec: MjSpec, robot: Robot) -> Bodies:
    """Put a robot's links and joints into the world of a spec.

    Raises:
        ConfigError: a mass that cannot be right.
    """
    hand = robot.gripper
    tools = robot.rtb.grippers
    by_link: dict[str, MjsBody] = {}
    joints = tuple(_add_arm_link(spec, by_link, robot, link) for link in robot.rtb.links)
    drivers = _add_gripper(by_link, robot, tools[0].links) if hand is not None and tools else ()
    weights = weigh(robot)
    for name, row in weights.rows.items():
        body = by_link[name]
        body.mass = row[0]
        body.ipos = row[1:4]
        body.fullinertia = row[4:]
        body.explicitinertial = True
    if robot.physics.armature is None:
        for link, name in zip(robot.rtb.links, joints):
            if name and link.name in weights.estimated:  # a follower has its leader's motor
                spec.joint(name).armature = ARMATURE[link.v.kind[0]]
    followers = {
        make_follower_name(link.name): not_none(get_follower(link))
        for link in list_followers(robot.rtb.links)
    }
    arm = tuple(name for name in joints if name)
    return Bodies(by_link, arm, drivers, followers, weights)


def make_body_name(link: str) -> str:
    """Return the name of a link's body, which differs from MuJoCo's own `world` and from cubes'."""
    return f"robot/{link}"


def make_follower_name(link: str) -> str:
    """Return the name of the joint of a link that follows one of the arm."""
    return f"follower/{link}"


def _add_body(parent: MjsBody, link: Any) -> MjsBody:
    """Add a link's body, at its place with its joint at zero."""
    follower = get_follower(link)
    T = link.A(0.0).A if follower is None else follower.T
    return parent.add_body(
        name=make_body_name(link.name),
        pos=T[:3, 3],
        quat=convert_quaternion(T[:3, :3]),
        gravcomp=1.0,
    )


def _add_joint(
    body: MjsBody, link: Any, name: str, limits: np.ndarray | None, **values: float
) -> None:
    """Add the joint of a link, about or along an axis of its frame; see `assembly`, `rtb_model`."""
    kind = link.v.kind
    sign = -1.0 if link.v.isflip else 1.0
    axis = sign * np.eye(3)["xyz".index(kind[-1])]
    slides = mujoco.mjtJoint.mjJNT_SLIDE if kind.startswith("t") else mujoco.mjtJoint.mjJNT_HINGE
    joint = body.add_joint(name=name, type=slides, axis=axis, **values)
    if limits is not None:
        joint.range = np.sort(limits)
        joint.limited = mujoco.mjtLimited.mjLIMITED_TRUE


def _get_joint_values(servo: Physics, joint: int) -> dict[str, float]:
    given = {"armature": servo.armature, "damping": servo.friction}
    given |= {"frictionloss": servo.dry_friction}
    return {key: float(array[joint]) for key, array in given.items() if array is not None}


def _add_arm_link(spec: MjSpec, by_link: dict[str, MjsBody], robot: Robot, link: Any) -> str | None:
    """Add a link of the arm; return the name of its joint, if it has one."""
    body = by_link[link.name] = _add_body(
        by_link[link.parent.name] if link.parent else spec.worldbody, link
    )
    if (follower := get_follower(link)) is not None:  # `drives.add_drives` ties it to its leader
        kind = mujoco.mjtJoint.mjJNT_SLIDE if follower.prismatic else mujoco.mjtJoint.mjJNT_HINGE
        body.add_joint(name=make_follower_name(link.name), type=kind, axis=follower.axis)
    if not link.isjoint:
        return None
    i = link.jindex
    servo = robot.physics
    name = f"joint{i + 1}"
    _add_joint(body, link, name, robot.qlim[:, i], **_get_joint_values(servo, i))
    return name


def _add_gripper(by_link: dict[str, MjsBody], robot: Robot, links: list[Any]) -> tuple[str, ...]:
    """Add the links of the gripper and its joints; return the names of its drivers.

    `drives.add_drives` ties the joints that follow the drivers to them.
    """
    hand = not_none(robot.gripper)
    named = dict(zip(hand.links, hand.joints))
    for link in links:
        body = by_link[link.name] = _add_body(by_link[link.parent.name], link)
        name = named.get(hand.strip_name(link))
        if not link.isjoint or name is None:
            continue
        index = hand.joints.index(name)
        if index in hand.drivers:
            limits = hand.mimic[index] * np.array([hand.closed, hand.opened])
            _add_joint(body, link, name, limits, **_get_joint_values(hand.physics, 0))
        else:
            _add_joint(body, link, name, None)
    return tuple(hand.joints[index] for index in hand.drivers)
