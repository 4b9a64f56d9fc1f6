"""The serial arm in a robot description: from its root to the TCP."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from envs.config.notices import warn_once
from envs.kinematics import Chain
from envs.robots.physics import Physics
from envs.robots.urdf.links import make_axis_frame
from envs.robots.urdf.read import read_urdf
from envs.robots.urdf.tcp import find_tcp, list_moving_joints
from envs.robots.urdf.tree import FAR, Joint, Tree, join_names
from td3_robot.errors import ConfigError, not_none, unknown

# [rad] either way: what makers of arms with endless joints commonly allow
CONTINUOUS_LIMIT = 2.0 * math.pi
# prismatic or not: [m/s], [rad/s] no arm has more; files put 1000 for "any"
FASTEST = {True: 20.0, False: 100.0}
SLOWEST = 1e-3  # [rad/s or m/s]
LEAST_RANGE = 1e-6  # [rad or m]
MANY_TURNS = 8.0 * math.pi  # [rad] between limits: arms turn a joint by two or three turns


@dataclass(frozen=True)
class UrdfArm:
    """A serial arm of n joints.

    Attributes:
        tree: the content of the file.
        chain: its kinematics from base (the root link) to TCP, in float32.
        joint_names: n names, from base to TCP.
        qlim: (2, n) [rad or m]; a continuous joint has ±2 pi.
        qdlim: (n,) [rad/s or m/s].
        qddlim: (n,) [rad/s2 or m/s2]; None where a joint has none.
        qdddlim: (n,) [rad/s3 or m/s3]; None where a joint has none.
        physics: the torques (n,) [Nm or N], if each joint has one. Inertias are in the tree.
        home, gripper: None: the format has no place for one, and fingers stand still.
        tcp_link: the link whose frame is the TCP.
    """

    tree: Tree
    chain: Chain
    joint_names: tuple[str, ...]
    qlim: np.ndarray
    qdlim: np.ndarray
    qddlim: np.ndarray | None
    qdddlim: np.ndarray | None
    physics: Physics
    tcp_link: str
    home: None = None
    gripper: None = None

    @property
    def moving(self) -> tuple[str, ...]:
        """Names of the joints that move: the arm's n."""
        return self.joint_names


def load_urdf(
    path: str | Path,
    tcp: str | None = None,
    qdlim: Sequence[float] | None = None,
    packages: Mapping[str, str | Path] | None = None,
    arguments: Mapping[str, object] | None = None,
) -> UrdfArm:
    """Load the arm between the root of a robot description and a link.

    Args:
        path: a .urdf or .xacro file.
        tcp: the link at the end; None takes the only one it can be (see `find_tcp`).
        qdlim: a velocity limit for all joints, or n of them, in place of the file's [rad/s or m/s].
        packages, arguments: as in `read_urdf`.

    Raises:
        ConfigError: one line that says what is wrong with the file, or which joints lack a limit.
    """
    tree = read_urdf(path, packages, arguments)
    tcp = find_tcp(tree) if tcp is None else tcp
    if tcp not in tree.links:
        raise unknown(f"TCP link of {tree.source}", tcp, tree.links)
    joints = list_moving_joints(tree, tcp)
    names = tuple(joint.name for joint in joints)
    acceleration = _read_if_all(joints, "acceleration")
    if acceleration is not None and acceleration.min() < SLOWEST:
        slow = join_names(j.name for j in joints if not_none(j.acceleration) < SLOWEST)
        raise ConfigError(
            f"{tree.source}: acceleration limits below {SLOWEST:g} rad/s2 or m/s2, which no arm "
            f"has: {slow}; write the arm's own, or none"
        )
    for notice in (*tree.notices, *describe_faults(tree), *_describe_limits(joints)):
        warn_once(f"{tree.source}: {notice}")
    return UrdfArm(
        tree=tree,
        chain=compile_path(tree.find_path(tcp)),
        joint_names=names,
        qlim=read_position_limits(tree, joints),
        qdlim=read_velocity_limits(tree, joints, qdlim),
        qddlim=acceleration,
        qdddlim=None if acceleration is None else _read_if_all(joints, "jerk"),
        physics=Physics(torque=_read_if_all(joints, "effort")),
        tcp_link=tcp,
    )


def _read_if_all(joints: list[Joint], limit: str) -> np.ndarray | None:
    """Read a limit (n,) of all joints; None unless each has one, above 0."""
    values = np.array([getattr(joint, limit) or 0.0 for joint in joints])
    return values if (values > 0).all() else None


def _describe_limits(joints: list[Joint]) -> list[str]:
    """Describe limits that look wrong, and those that are not held, as some joints lack them."""
    notices = []
    turning = [
        joint.name
        for joint in joints
        if joint.kind == "revolute" and (joint.upper or 0.0) - (joint.lower or 0.0) > MANY_TURNS
    ]
    if turning:
        notices.append(
            f"limits of many turns of {join_names(turning)}: they are in radians, not in degrees"
        )
    for limit in ("acceleration", "jerk"):
        lacking = [joint.name for joint in joints if getattr(joint, limit) is None]
        if 0 < len(lacking) < len(joints):
            notices.append(f"no {limit} limit is held, for want of those of {join_names(lacking)}")
    weak = [joint.name for joint in joints if not (joint.effort or 0.0) > 0.0]
    if 0 < len(weak) < len(joints):
        notices.append(
            f"no torque limit is held, for want of a positive effort of {join_names(weak)}"
        )
    return notices


def describe_faults(tree: Tree) -> list[str]:
    """Describe the meshes that cannot be used, if any, in one line."""
    faults = {
        link.name: shape.fault
        for link in tree.links.values()
        for shape in (*link.visuals, *link.collisions)
        if shape.fault is not None
    }
    if not faults:
        return []
    return [f"nothing is drawn of meshes of {join_names(faults)}: {next(iter(faults.values()))}"]


def read_position_limits(tree: Tree, joints: list[Joint]) -> np.ndarray:
    """Read the position limits (2, n) [rad or m].

    Raises:
        ConfigError: a revolute or prismatic joint has none, no room between them, or very much.
    """
    for joint in joints:
        if joint.kind == "continuous":
            continue
        if joint.lower is None or joint.upper is None:
            wanted = '<limit lower="..." upper="..." velocity="..."/>'
            raise ConfigError(
                f"{tree.source}: {joint.kind} joint {joint.name!r} has no position limits; add "
                f"{wanted}"
            )
        if joint.upper - joint.lower < LEAST_RANGE:
            raise ConfigError(
                f"{tree.source}: joint {joint.name!r} has both limits at {joint.lower:g} and "
                "cannot move"
            )
        if max(-joint.lower, joint.upper) > FAR:
            raise ConfigError(
                f"{tree.source}: joint {joint.name!r} has the limits {joint.lower:g} to "
                f"{joint.upper:g}, beyond the ±{FAR:g} that can be resolved, in radians or metres"
            )
    wide = (-CONTINUOUS_LIMIT, CONTINUOUS_LIMIT)
    return np.array(
        [wide if joint.kind == "continuous" else (joint.lower, joint.upper) for joint in joints]
    ).T


def read_velocity_limits(
    tree: Tree, joints: list[Joint], given: Sequence[float] | None
) -> np.ndarray:
    """Read the velocity limits (n,), unless they are given [rad/s or m/s].

    Raises:
        ConfigError: joints without one, or with one that no arm has, all named; or limits given
            that do not fit.
    """
    if given is not None:
        slides = [joint.kind == "prismatic" for joint in joints]
        limits = spread_velocity(given, [joint.name for joint in joints], slides)
        if faster := [j for j, limit in zip(joints, limits) if 0 < (j.velocity or 0) < limit]:
            stated = join_names(f"{joint.name} ({joint.velocity:g})" for joint in faster)
            warn_once(f"{tree.source}: the velocity given is above the limits of {stated}")
        return limits
    how = "or give them with --velocity"
    if missing := [joint for joint in joints if joint.velocity is None or joint.velocity <= 0]:
        names = join_names(joint.name for joint in missing)
        zero = " (0 is none)" if any(joint.velocity == 0 for joint in missing) else ""
        add = 'add velocity="..." [rad/s or m/s] to the <limit> of each'
        raise ConfigError(f"{tree.source}: no velocity limit for {names}{zero}; {add}, {how}")
    if odd := [
        joint
        for joint in joints
        if not SLOWEST <= not_none(joint.velocity) <= FASTEST[joint.kind == "prismatic"]
    ]:
        limits = join_names(f"{joint.name} ({joint.velocity:g})" for joint in odd)
        arms = f"{SLOWEST:g} to {FASTEST[False]:g} rad/s or {FASTEST[True]:g} m/s that arms have"
        raise ConfigError(
            f"{tree.source}: velocity limits outside the {arms}: {limits}; write the arm's own, "
            f"{how}"
        )
    return np.array([joint.velocity for joint in joints])


def spread_velocity(
    given: Sequence[float], joint_names: Sequence[str], prismatic: Sequence[bool]
) -> np.ndarray:
    """Spread one velocity limit over n joints, or check n of them (n,) [rad/s or m/s].

    Raises:
        ConfigError: neither one nor n are given, or a limit that no arm has.
    """
    names = join_names(joint_names)
    n = len(joint_names)
    limits = np.asarray(given, float)
    if limits.shape not in ((1,), (n,)):
        raise ConfigError(
            f"velocity takes one limit for all joints, or {n} for {names}; got {given}"
        )
    values = np.broadcast_to(limits, (n,)).copy()
    fastest = np.where(prismatic, FASTEST[True], FASTEST[False])
    if not ((values >= SLOWEST) & (values <= fastest)).all():
        raise ConfigError(
            f"velocity limits must be from {SLOWEST:g} to {FASTEST[False]:g} rad/s or "
            f"{FASTEST[True]:g} m/s, got {values.tolist()} for {names}"
        )
    return values


def compile_path(path: list[Joint], dtype: torch.dtype = torch.float32) -> Chain:
    """Compile the batched kinematics of a path, every joint's axis turned into +z."""
    constants = []
    prismatic = []
    pending = np.eye(4)
    for joint in path:
        pending = pending @ joint.pose.T
        if joint.moves:
            to_axis = np.eye(4)
            to_axis[:3, :3] = make_axis_frame(joint.axis)
            constants.append(pending @ to_axis)
            prismatic.append(joint.kind == "prismatic")
            pending = to_axis.T  # a pure rotation: its transpose is its inverse
    constants.append(pending)
    return Chain(torch.as_tensor(np.stack(constants), dtype=dtype), tuple(prismatic))
