"""The serial arm in an MJCF file: from its base to the TCP."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's Python package has no type stubs.

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from envs.config.notices import warn_once
from envs.kinematics import Chain
from envs.robots.gripper import Gripper
from envs.robots.mjcf.compile import CompiledFile, compile_mjcf
from envs.robots.mjcf.convert import convert_model
from envs.robots.mjcf.gripper import PREFIX, attach_gripper, find_grippers
from envs.robots.mjcf.limits import find_limits
from envs.robots.mjcf.names import Names
from envs.robots.mjcf.select import choose_tcp, find_base, list_arm_joints, list_below
from envs.robots.mjcf.servos import read_physics
from envs.robots.physics import Physics
from envs.robots.urdf.arm import (
    compile_path,
    describe_faults,
    read_position_limits,
    spread_velocity,
)
from envs.robots.urdf.tree import Joint, Tree

_HOME = "home"  # the keyframe that Menagerie's arms start from
_ROUNDING = 1e-3  # [rad or m] by which a keyframe may be outside the limits


@dataclass(frozen=True)
class MjcfArm:
    """A serial arm of n joints.

    Attributes:
        chain: its kinematics from base to TCP, in float32.
        tree: the part of the file below the base.
        moving: names of the joints that move: the arm's n, and the gripper's.
        joint_names: n names, from base to TCP.
        qlim: (2, n) [rad or m]; a hinge without limits has ±2 pi.
        qdlim: (n,) [rad/s or m/s].
        qddlim: (n,) [rad/s2 or m/s2], and qdddlim: (n,) [rad/s3 or m/s3]; None where none is known.
        home: (n,) of the keyframe `home`, or else the first; None without one inside the limits.
        physics: servos and friction of the joints. Inertias are in the tree.
        gripper: that the file has on the arm; None without one that moves as one, or not wanted.
        tcp_link: the site or body whose frame is the TCP.
        name: of the model, as the file calls it.
    """

    chain: Chain
    tree: Tree
    moving: tuple[str, ...]
    joint_names: tuple[str, ...]
    qlim: np.ndarray
    qdlim: np.ndarray
    qddlim: np.ndarray | None
    qdddlim: np.ndarray | None
    home: np.ndarray | None
    physics: Physics
    gripper: Gripper | None
    tcp_link: str
    name: str


def load_mjcf(
    path: str | Path,
    tcp: str | None = None,
    base: str | None = None,
    velocity: Sequence[float] = (),
    grip: bool = True,
) -> MjcfArm:
    """Load the arm between a base and a TCP.

    The base frame is that of the body at the base, wherever the file places it; z = 0 in it is the
    table that the arm stands on.

    Args:
        path: a .xml file in MJCF.
        tcp: the site or body at the end; None takes the only one it can be.
        base: the body at the base; None takes the only part of the file that moves.
        velocity: limit of every joint, or n of them [rad/s or m/s]; () takes those that are known
            of the model, see configs/limits/arms.yaml.
        grip: take the gripper of the file, if it has one; without it the fingers stand still.

    Raises:
        ConfigError: one line that says what is wrong with the file, or what has to be chosen.
    """
    file = compile_mjcf(path)
    names = Names(file.model)
    root = find_base(file, names, base)
    tree = convert_model(file, names, root, list_below(file, names, root))
    tree, found = find_grippers(file, names, tree)
    frames = [grip.frame for grip in found if grip.frame is not None]
    tcp = choose_tcp(file, names, tree, tcp, frames)
    joints = list_arm_joints(file, names, tree, tcp)
    for notice in (*tree.notices, *describe_faults(tree)):
        warn_once(f"{tree.source}: {notice}")
    qlim = read_position_limits(tree, joints)
    indices = [names.joints.index(joint.name) for joint in joints]
    gripper = None
    if grip:
        tree, gripper, notices = attach_gripper(file, names, tree, found, tcp, base)
        for notice in notices:
            warn_once(f"{tree.source}: {notice}")
    moving = [joint.name for joint in joints]
    fingers = [name.removeprefix(PREFIX) for name in gripper.joints] if gripper else []
    limits = _find_limits(file, names, joints, velocity)
    return MjcfArm(
        chain=compile_path(tree.find_path(tcp)),
        tree=tree,
        moving=(*moving, *fingers),
        joint_names=tuple(moving),
        qlim=qlim,
        qdlim=limits["qdlim"],
        qddlim=limits.get("qddlim"),
        qdddlim=limits.get("qdddlim"),
        home=_read_home(file, indices, qlim),
        physics=read_physics(file, names, indices),
        gripper=gripper,
        tcp_link=tcp,
        name=names.model,
    )


def _find_limits(
    file: CompiledFile, names: Names, joints: list[Joint], velocity: Sequence[float]
) -> dict[str, np.ndarray]:
    called = [joint.name for joint in joints]
    if velocity:
        slides = [joint.kind == "prismatic" for joint in joints]
        return {"qdlim": spread_velocity(velocity, called, slides)}
    return find_limits(file.source, names.model, called)


def _read_home(file: CompiledFile, joints: list[int], qlim: np.ndarray) -> np.ndarray | None:
    """Read the keyframe to start from (n,); None without one, or outside the limits."""
    model = file.model
    if model.nkey == 0:
        return None
    called = [model.key(index).name for index in range(model.nkey)]
    key = called.index(_HOME) if _HOME in called else 0
    q = np.array(model.key_qpos[key][model.jnt_qposadr[joints]])
    inside = np.clip(q, qlim[0], qlim[1])
    return inside if np.abs(inside - q).max() <= _ROUNDING else None
