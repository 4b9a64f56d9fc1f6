"""The serial arm in a robot description: from its root to the TCP."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from envs.kinematics import Chain
from envs.robots.urdf.read import read_urdf
from envs.robots.urdf.rtb_model import build_model, frame_on
from envs.robots.urdf.tree import FAR, Joint, Tree
from td3_robot.errors import ConfigError, unknown

# What makers call the link that tools are mounted to or that a tool ends in, the most telling name first.
TCP_NAMES = ("tcp", "tool0", "ee_gripper_link", "end_effector", "end_effector_link", "ee_link", "ee")
CONTINUOUS_LIMIT = 2.0 * math.pi  # [rad] either way: what makers of arms with endless joints commonly allow
FASTEST = {True: 20.0, False: 100.0}  # prismatic or not: [m/s], [rad/s] no arm has more; files put 1000 for "any"
SLOWEST = 1e-3  # [rad/s or m/s]
LEAST_RANGE = 1e-6  # [rad or m]

# What the joint of a gripper is called, or the link that it moves.
_GRIPPING = re.compile("grip|jaw|finger|claw|thumb|knuckle", re.IGNORECASE)
_GRIPPER_LINK = re.compile("jaw|finger|claw|thumb|knuckle", re.IGNORECASE)  # "gripper" is what a wrist carries


@dataclass(frozen=True)
class UrdfArm:
    """A serial arm of n joints.

    Attributes:
        model: the roboticstoolbox Robot, for drawing and reference; its joints are the arm's n, all others stand
            still. Its link frames are the file's.
        chain: its kinematics from base (the root link) to TCP, in float32.
        joint_names: n names, from base to TCP.
        qlim: (2, n) [rad or m]; a continuous joint has ±2 pi.
        qdlim: (n,) [rad/s or m/s].
        qddlim: None: the format has no acceleration limits.
        tcp_link: the link whose frame is the TCP.
        tree: the whole file.
    """

    model: object
    chain: Chain
    joint_names: tuple[str, ...]
    qlim: np.ndarray
    qdlim: np.ndarray
    qddlim: None
    tcp_link: str
    tree: Tree


def load_urdf(
    path: str | Path,
    tcp: str | None = None,
    qdlim: Sequence[float] | None = None,
    packages: Mapping[str, str | Path] | None = None,
    arguments: Mapping[str, object] | None = None,
) -> UrdfArm:
    """The arm between the root of a robot description and a link.

    Args:
        path: a .urdf or .xacro file.
        tcp: the link at the end; None takes the only one it can be (see `default_tcp`).
        qdlim: n velocity limits in place of the file's [rad/s or m/s].
        packages, arguments: as in `read_urdf`.

    Raises:
        ConfigError: one line that says what is wrong with the file, or which joints lack a limit.
    """
    tree = read_urdf(path, packages, arguments)
    tcp = default_tcp(tree) if tcp is None else tcp
    if tcp not in tree.links:
        raise unknown(f"TCP link of {tree.source}", tcp, tree.links)
    joints = moving_joints(tree, tcp)
    names = tuple(joint.name for joint in joints)
    qlim, qdlim = position_limits(tree, joints), velocity_limits(tree, joints, qdlim)
    return UrdfArm(
        model=build_model(tree, names),
        chain=compile_path(tree.path(tcp)),
        joint_names=names,
        qlim=qlim,
        qdlim=qdlim,
        qddlim=None,
        tcp_link=tcp,
        tree=tree,
    )


def default_tcp(tree: Tree) -> str:
    """The link that must be meant where none is named.

    In this order: the only link with a name from TCP_NAMES, by itself or after a prefix ("left_tool0", "arm/ee_link");
    the link at the end of the only line of moving joints, with what is rigidly mounted in line with it.

    Raises:
        ConfigError: there are several, the joints before it seem to end in those of a gripper, or nothing moves.
    """
    tcp = _named(tree) or _end(tree)
    arm = tree.path(tcp)
    while arm and (not arm[-1].moves or _grips(tree, arm[-1])):
        arm = arm[:-1]
    gripping = [joint for joint in tree.path(tcp)[len(arm) :] if joint.moves]
    if gripping and arm:
        which = f"joint {gripping[0].name!r} seems to be a gripper's"
        raise ConfigError(
            f"{tree.source}: {which}; choose the TCP with --tcp: {gripping[0].parent} (the gripper stands still) or "
            f"{tcp} (it is a joint of the arm)"
        )
    return tcp


def _grips(tree: Tree, joint: Joint) -> bool:
    """Whether a joint opens a gripper, by its name, or by others that follow it."""
    followed = any(other.mimic is not None and other.mimic.joint == joint.name for other in tree.joints.values())
    return followed or bool(_GRIPPING.search(joint.name) or _GRIPPER_LINK.search(joint.child))


def _commanded(tree: Tree, link: str) -> bool:
    """Whether a link can be the TCP: joints move it, all of them by themselves."""
    moving = [joint for joint in tree.path(link) if joint.moves]
    return bool(moving) and all(joint.mimic is None for joint in moving)


def _named(tree: Tree) -> str | None:
    """The link that a name from TCP_NAMES tells of."""
    for name in TCP_NAMES:
        named = [link for link in tree.links if link == name or link.endswith((f"_{name}", f"/{name}", f"-{name}"))]
        named = [link for link in named if _commanded(tree, link)]
        if len(named) == 1:
            return named[0]
        if named:
            raise _choose(tree, named)
    return None


def _end(tree: Tree) -> str:
    """The end of the only line of moving joints."""
    moving = [joint for joint in tree.joints.values() if joint.moves]
    if not moving:
        raise ConfigError(f"{tree.source}: no joint moves; a robot needs one that is revolute, continuous or prismatic")
    inner = {above.name for joint in moving for above in tree.path(joint.parent)}
    last = [joint for joint in moving if joint.name not in inner]
    if len(last) > 1:
        ways = {above.child for joint in last for above in tree.path(joint.child)}
        parting = [link for link in tree.links if sum(joint.child in ways for joint in tree.joints_below(link)) > 1]
        raise _choose(tree, parting + [joint.child for joint in last])
    link = last[0].child
    while len(below := tree.joints_below(link)) == 1:
        link = below[0].child
    return link


def _choose(tree: Tree, candidates: list[str]) -> ConfigError:
    able = ", ".join(link for link in candidates if _commanded(tree, link))
    if not able:
        return ConfigError(f"{tree.source}: is no arm: whatever moves follows another joint")
    return ConfigError(f"{tree.source}: several links could be the TCP; choose one with --tcp: {able}")


def moving_joints(tree: Tree, tcp: str) -> list[Joint]:
    """The arm's joints, from base to TCP.

    Raises:
        ConfigError: there are none, or one of them follows another joint.
    """
    joints = [joint for joint in tree.path(tcp) if joint.moves]
    if not joints:
        raise ConfigError(f"{tree.source}: no joint moves the link {tcp!r}; choose another with --tcp")
    for joint in joints:
        if joint.mimic is not None:
            how = "each joint of an arm must move by itself; choose a link before it with --tcp"
            raise ConfigError(f"{tree.source}: joint {joint.name!r} on the way to {tcp!r} is a mimic joint; {how}")
    return joints


def position_limits(tree: Tree, joints: list[Joint]) -> np.ndarray:
    """(2, n) [rad or m].

    Raises:
        ConfigError: a revolute or prismatic joint has none, no room between them, or very much.
    """
    for joint in joints:
        if joint.kind != "continuous" and joint.lower is None:
            wanted = '<limit lower="..." upper="..." velocity="..."/>'
            raise ConfigError(f"{tree.source}: {joint.kind} joint {joint.name!r} has no position limits; add {wanted}")
        if joint.kind != "continuous" and joint.upper - joint.lower < LEAST_RANGE:
            raise ConfigError(f"{tree.source}: joint {joint.name!r} has both limits at {joint.lower:g} and cannot move")
        if joint.kind != "continuous" and max(-joint.lower, joint.upper) > FAR:
            far = f"{joint.lower:g} to {joint.upper:g}, beyond the ±{FAR:g} [rad or m] that can be resolved"
            raise ConfigError(f"{tree.source}: joint {joint.name!r} has the limits {far}")
    wide = (-CONTINUOUS_LIMIT, CONTINUOUS_LIMIT)
    return np.array([wide if joint.kind == "continuous" else (joint.lower, joint.upper) for joint in joints]).T


def velocity_limits(tree: Tree, joints: list[Joint], given: Sequence[float] | None) -> np.ndarray:
    """(n,) [rad/s or m/s].

    Raises:
        ConfigError: joints without one, or with one that no arm has, all named; or limits given that do not fit.
    """
    names = [joint.name for joint in joints]
    if given is not None:
        qdlim = np.array(given, float)
        if qdlim.shape != (len(joints),) or not (np.isfinite(qdlim) & (qdlim > 0)).all():
            raise ConfigError(f"qdlim must be {len(joints)} positive numbers, for {', '.join(names)}; got {given}")
        return qdlim
    how = "or give qdlim in a robot file"
    if missing := [joint.name for joint in joints if joint.velocity is None or joint.velocity <= 0]:
        add = 'add velocity="..." [rad/s or m/s] to the <limit> of each'
        raise ConfigError(f"{tree.source}: no velocity limit for {', '.join(missing)}; {add}, {how}")
    if odd := [joint for joint in joints if not SLOWEST <= joint.velocity <= FASTEST[joint.kind == "prismatic"]]:
        limits = ", ".join(f"{joint.name} ({joint.velocity:g})" for joint in odd)
        arms = f"{SLOWEST:g} to {FASTEST[False]:g} rad/s or {FASTEST[True]:g} m/s that arms have"
        raise ConfigError(f"{tree.source}: velocity limits outside the {arms}: {limits}; write the arm's own, {how}")
    return np.array([joint.velocity for joint in joints])


def compile_path(path: list[Joint], dtype: torch.dtype = torch.float32) -> Chain:
    """The batched kinematics of a path: every joint's axis turned into +z, as `Chain` wants it."""
    constants, prismatic, pending = [], [], np.eye(4)
    for joint in path:
        pending = pending @ joint.pose.T
        if joint.moves:
            to_axis = np.eye(4)
            to_axis[:3, :3] = frame_on(joint.axis)
            constants.append(pending @ to_axis)
            prismatic.append(joint.kind == "prismatic")
            pending = to_axis.T  # a pure rotation: its transpose is its inverse
    constants.append(pending)
    return Chain(torch.as_tensor(np.stack(constants), dtype=dtype), tuple(prismatic))
