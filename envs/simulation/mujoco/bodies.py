"""The links of a robot as MuJoCo bodies: their places, masses and joints."""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# MuJoCo's Python package has no type stubs, and roboticstoolbox's links come as Any.

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from mujoco import MjsBody, MjSpec

from envs.robots import Robot
from envs.robots.physics import Physics
from td3_robot.errors import ConfigError, not_none

# A link without a known inertia is estimated as a solid cylinder from its joint to the next.
_PER_METRE = 12.0  # [kg/m]: arms of 5 to 15 kg payload have 10 to 20
_RADIUS = 0.05  # [m]
_SHORTEST = 0.05  # [m]
_FINGER = (0.05, 0.02)  # a link of a gripper: [kg], radius of gyration [m]


@dataclass(frozen=True)
class Bodies:
    """A robot in a MjSpec.

    Attributes:
        by_link: the body of every link, by the link's name.
        joints: names of the arm's joints, base to flange.
        drivers: names of the gripper's drivers, right and left; () without one.
        estimated: links that have estimated inertias.
    """

    by_link: dict[str, MjsBody]
    joints: tuple[str, ...]
    drivers: tuple[str, ...]
    estimated: tuple[str, ...]


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
    estimated = _weigh(by_link, robot)
    return Bodies(by_link, tuple(name for name in joints if name), drivers, estimated)


def list_links(robot: Robot) -> list[Any]:
    """List the links of the arm, then those of its gripper."""
    return [*robot.rtb.links, *(link for tool in robot.rtb.grippers for link in tool.links)]


def make_body_name(link: str) -> str:
    """Return the name of a link's body, which differs from MuJoCo's own `world` and from cubes'."""
    return f"robot/{link}"


def _add_body(parent: MjsBody, link: Any) -> MjsBody:
    """Add a link's body, at its place with its joint at zero."""
    T = link.A(0.0).A
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


def _weigh(by_link: dict[str, MjsBody], robot: Robot) -> tuple[str, ...]:
    """Set the inertia of every body; return the links whose inertia is an estimate."""
    links = list_links(robot)
    known = {link.name: _find_inertia(robot, link) for link in links}
    carrier = {}  # the link that moves as this one does
    for link in links:
        carrier[link.name] = (
            link.name if link.isjoint or link.parent is None else carrier[link.parent.name]
        )
    heavy = {carrier[name] for name, row in known.items() if row is not None}
    guessed = [link for link in links if link.isjoint and link.name not in heavy]
    known |= {link.name: _estimate(robot, link, links) for link in guessed}
    for name, row in known.items():
        if row is not None:
            if row[0] <= 0 or not np.isfinite(row).all():
                raise ConfigError(
                    f"{robot.owner}: link {name!r} has a mass that is not positive, {row[0]:g} kg"
                )
            body = by_link[name]
            body.mass = row[0]
            body.ipos = row[1:4]
            body.fullinertia = row[4:]
            body.explicitinertial = True
    return tuple(link.name for link in guessed)


def _find_inertia(robot: Robot, link: Any) -> np.ndarray | None:
    """Return the inertia (10,) of a link from its file, else from its model; see `Physics`."""
    owner: Any = robot if link in robot.rtb.links else robot.gripper
    row = owner.physics.inertias.get(link.name.removeprefix(f"{owner.name}/"))
    if row is not None:
        return row
    if not link.m:
        return None
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = np.asarray(link.I)
    return np.array([link.m, *link.r, xx, yy, zz, xy, xz, yz])


def _estimate(robot: Robot, link: Any, links: list[Any]) -> np.ndarray:
    """Estimate the inertia (10,) of a link, see `Physics`."""
    if link not in robot.rtb.links:
        mass, radius = _FINGER
        return np.array([mass, 0, 0, 0, *[mass * radius**2] * 3, 0, 0, 0])
    ends = [below.A(0.0).t for below in links if below.parent is link]
    end = max(ends, key=lambda t: float(np.linalg.norm(t)), default=np.zeros(3))
    length = max(float(np.linalg.norm(end)), _SHORTEST)
    mass = _PER_METRE * length
    axis = end / np.linalg.norm(end) if end.any() else np.array([0.0, 0.0, 1.0])
    along = mass * _RADIUS**2 / 2.0
    across = mass * (3.0 * _RADIUS**2 + length**2) / 12.0
    I = across * np.eye(3) + (along - across) * np.outer(axis, axis)  # noqa: E741
    return np.array([mass, *(end / 2.0), *np.diag(I), I[0, 1], I[0, 2], I[1, 2]])
