"""The links of a robot as MuJoCo bodies: where they are, what they weigh, which joint moves
them.
"""

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

# Of a link whose weight nobody has written down: a solid cylinder from its joint to the next.
_PER_METRE, _RADIUS, _SHORTEST = (
    12.0,
    0.05,
    0.05,
)  # [kg/m]: arms of 5 to 15 kg payload have 10 to 20; [m]; [m]
_FINGER = (0.05, 0.02)  # a link of a gripper: [kg], radius of gyration [m]


@dataclass(frozen=True)
class Bodies:
    """A robot in a MjSpec.

    Attributes:
        of: the body of every link, by the link's name.
        joints: names of the arm's joints, base to flange.
        drivers: names of the gripper's drivers, right and left; () without one.
        estimated: links that have estimated inertias.
    """

    of: dict[str, MjsBody]
    joints: tuple[str, ...]
    drivers: tuple[str, ...]
    estimated: tuple[str, ...]


def convert_quaternion(R: np.ndarray) -> np.ndarray:
    """(4,) wxyz of a rotation (3, 3)."""
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, np.ascontiguousarray(R, float).ravel())
    return quat


def add_robot(spec: MjSpec, robot: Robot) -> Bodies:
    """Put a robot's links and joints into the world of a spec.

    Raises:
        ConfigError: a weight that cannot be right.
    """
    hand, tools = robot.gripper, robot.rtb.grippers
    of: dict[str, MjsBody] = {}
    joints = tuple(_add_arm_link(spec, of, robot, link) for link in robot.rtb.links)
    drivers = _add_gripper(of, robot, tools[0].links) if hand is not None and tools else ()
    estimated = _weigh(of, robot)
    return Bodies(of, tuple(name for name in joints if name), drivers, estimated)


def list_links(robot: Robot) -> list[Any]:
    """Those of the arm, and those of its gripper."""
    return [*robot.rtb.links, *(link for tool in robot.rtb.grippers for link in tool.links)]


def make_body_name(link: str) -> str:
    """Of a link's body: never that of MuJoCo's own `world`, which ROS's root links share, nor that
    of a cube.
    """
    return f"robot/{link}"


def _add_body(parent: MjsBody, link: Any) -> MjsBody:
    """At the place of a link whose joint is at zero."""
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
    """What moves a link: the last thing of it, about or along an axis of its frame, see `assembly`
    and `rtb_model`.
    """
    kind, sign = link.v.kind, -1.0 if link.v.isflip else 1.0
    axis = sign * np.eye(3)["xyz".index(kind[-1])]
    slides = mujoco.mjtJoint.mjJNT_SLIDE if kind.startswith("t") else mujoco.mjtJoint.mjJNT_HINGE
    joint = body.add_joint(name=name, type=slides, axis=axis, **values)
    if limits is not None:
        joint.range, joint.limited = np.sort(limits), mujoco.mjtLimited.mjLIMITED_TRUE


def _get_joint_values(servo: Physics, joint: int) -> dict[str, float]:
    given = {"armature": servo.armature, "damping": servo.friction}
    return {key: float(array[joint]) for key, array in given.items() if array is not None}


def _add_arm_link(spec: MjSpec, of: dict[str, MjsBody], robot: Robot, link: Any) -> str | None:
    """Returns the name of its joint, if it has one."""
    body = of[link.name] = _add_body(of[link.parent.name] if link.parent else spec.worldbody, link)
    if not link.isjoint:
        return None
    i, servo, name = link.jindex, robot.physics, f"joint{link.jindex + 1}"
    _add_joint(body, link, name, robot.qlim[:, i], **_get_joint_values(servo, i))
    return name


def _add_gripper(of: dict[str, MjsBody], robot: Robot, links: list[Any]) -> tuple[str, ...]:
    """All joints that the gripper knows move; `drives.add_drives` ties those that follow its
    drivers to them.
    """
    hand = not_none(robot.gripper)
    named = dict(zip(hand.links, hand.joints))
    for link in links:
        body = of[link.name] = _add_body(of[link.parent.name], link)
        name = named.get(hand.short_name(link))
        if not link.isjoint or name is None:
            continue
        index = hand.joints.index(name)
        if index in hand.drivers:
            limits = hand.mimic[index] * np.array([hand.closed, hand.opened])
            _add_joint(body, link, name, limits, **_get_joint_values(hand.physics, 0))
        else:
            _add_joint(body, link, name, None)
    return tuple(hand.joints[index] for index in hand.drivers)


def _weigh(of: dict[str, MjsBody], robot: Robot) -> tuple[str, ...]:
    """Give every body its inertia; returns the links whose inertia is an estimate."""
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
            body = of[name]
            body.mass, body.ipos, body.fullinertia, body.explicitinertial = (
                row[0],
                row[1:4],
                row[4:],
                True,
            )
    return tuple(link.name for link in guessed)


def _find_inertia(robot: Robot, link: Any) -> np.ndarray | None:
    """(10,) of a link, see `Physics`: that of the robot's or gripper's file, else that of the
    model; None for none.
    """
    owner: Any = robot if link in robot.rtb.links else robot.gripper
    row = owner.physics.inertias.get(link.name.removeprefix(f"{owner.name}/"))
    if row is not None:
        return row
    if not link.m:
        return None
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = np.asarray(link.I)
    return np.array([link.m, *link.r, xx, yy, zz, xy, xz, yz])


def _estimate(robot: Robot, link: Any, links: list[Any]) -> np.ndarray:
    """(10,) of a link that nobody has weighed."""
    if link not in robot.rtb.links:
        mass, radius = _FINGER
        return np.array([mass, 0, 0, 0, *[mass * radius**2] * 3, 0, 0, 0])
    ends = [below.A(0.0).t for below in links if below.parent is link]
    end = max(ends, key=lambda t: float(np.linalg.norm(t)), default=np.zeros(3))
    length = max(float(np.linalg.norm(end)), _SHORTEST)
    mass = _PER_METRE * length
    axis = end / np.linalg.norm(end) if end.any() else np.array([0.0, 0.0, 1.0])
    along, across = mass * _RADIUS**2 / 2.0, mass * (3.0 * _RADIUS**2 + length**2) / 12.0
    I = across * np.eye(3) + (along - across) * np.outer(axis, axis)  # noqa: E741
    return np.array([mass, *(end / 2.0), *np.diag(I), I[0, 1], I[0, 2], I[1, 2]])
