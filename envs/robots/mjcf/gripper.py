"""The gripper in an MJCF file: two fingers or more that move as one, with their servo."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's Python package has no type stubs.

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from envs.robots.followers import compute_motion
from envs.robots.gripper import Gripper
from envs.robots.mjcf.compile import CompiledFile
from envs.robots.mjcf.names import Names
from envs.robots.mjcf.servos import read_gains, read_torque
from envs.robots.physics import Physics
from envs.robots.urdf.tree import Joint, Link, Pose, Tree, make_tree
from td3_robot.errors import not_none

BASE = "gripper"  # of a gripper, after the name of the link that carries it
PREFIX = "gripper/"  # of its joints, which differ from the arm's by it
_STROKE_TIME = 1.0  # [s] from shut to open: MJCF has no speed
_TENDON = 3  # mjtTrn
_EQUAL = 1e-9


def find_gripper(
    file: CompiledFile, names: Names, tree: Tree, tcp: str
) -> tuple[Tree, Gripper | None]:
    """Find the fingers on the link that carries the TCP, if they move as one and are driven.

    Of the joints below, each but the leader follows it (`equality`), in proportion; an actuator
    drives one of them, or a tendon of them.

    Returns:
        The tree, with a link `CARRIER:gripper` that the fingers hang on, and the gripper; the tree
        as it was and None where the file has no such gripper. Its fingers stand still then.
    """
    carrier = [joint.child for joint in tree.find_path(tcp) if joint.moves][-1]
    joints = _list_joints_below(tree, carrier)
    leaders = [joint for joint in joints if joint.mimic is None]
    if len(leaders) != 1 or len(joints) < 2 or leaders[0].lower is None:
        return tree, None
    multiples = {joint.name: _find_multiple(tree, joint, leaders[0]) for joint in joints}
    if any(multiple is None for multiple in multiples.values()):
        return tree, None
    indices = [names.joints.index(joint.name) for joint in joints]
    physics = _read_physics(file.model, indices, names.joints.index(leaders[0].name))
    if physics is None:
        return tree, None
    fingers = [joint for joint in joints if not _is_below_another(tree, joint, joints)][:2]
    if len(fingers) < 2:
        return tree, None
    root = f"{carrier}:{BASE}"
    tree = _hang_on(tree, carrier, root)
    lower = float(leaders[0].lower)
    upper = float(not_none(leaders[0].upper))
    mimic = np.array([multiples[joint.name] for joint in joints], float)
    turned = [mimic[joints.index(joint)] for joint in fingers]
    ends = [
        _measure_gap(tree, fingers, [multiple * end for multiple in turned])
        for end in (lower, upper)
    ]
    closed, opened = (lower, upper) if ends[0] <= ends[1] else (upper, lower)
    gripper = Gripper(
        name=f"{Path(file.source).name}.gripper",
        joints=tuple(f"{PREFIX}{joint.name}" for joint in joints),
        drivers=(joints.index(fingers[0]), joints.index(fingers[1])),
        mimic=mimic,
        closed=closed,
        opened=opened,
        speed=(upper - lower) / _STROKE_TIME,
        links=tuple(_name_moved_link(joint) for joint in joints),
        root=root,
        tcp=_find_pose(tree, carrier, tcp),
        physics=physics,
        file=Path(file.source),
    )
    return tree, gripper


def _list_joints_below(tree: Tree, link: str) -> list[Joint]:
    """List the moving joints below a link."""
    found = []
    links = [link]
    for parent in links:  # grows while it is walked
        for joint in tree.find_joints_below(parent):
            links.append(joint.child)
            if joint.moves:
                found.append(joint)
    return found


def _find_multiple(tree: Tree, joint: Joint, leader: Joint) -> float | None:
    """Find the position of a joint as a multiple of its leader's; None where it is none."""
    multiple = 1.0
    while joint.name != leader.name:
        mimic = joint.mimic
        if mimic is None or abs(mimic.offset) > _EQUAL or abs(mimic.multiplier) < _EQUAL:
            return None
        multiple *= mimic.multiplier
        joint = tree.joints[mimic.joint]
    return multiple


def _name_moved_link(joint: Joint) -> str:
    """Name the link that ends in a joint in the model of `rtb_model.build_model`."""
    return joint.child if 1.0 in np.abs(joint.axis) else f"{joint.name}:axis"


def _is_below_another(tree: Tree, joint: Joint, joints: list[Joint]) -> bool:
    above = {held.name for held in tree.find_path(joint.parent)}
    return any(other.name in above for other in joints)


def _hang_on(tree: Tree, carrier: str, root: str) -> Tree:
    """Hang all that a link carries on a link of its own, at the same place."""
    moved = [
        replace(joint, parent=root) if joint.parent == carrier else joint
        for joint in tree.joints.values()
    ]
    links = [*tree.links.values(), Link(root)]
    moved.append(Joint(f"{root}:fixed", "fixed", carrier, root, Pose()))
    return make_tree(tree.source, tree.name, links, moved, tree.notices)


def _find_pose(tree: Tree, link: str, end: str) -> np.ndarray:
    """Find the pose (4, 4) of a link in another that it is fixed to."""
    T = np.eye(4)
    for joint in reversed(tree.find_path(end)):
        if joint.child == link:
            break
        T = joint.pose.T @ T
    return T


def _measure_gap(tree: Tree, fingers: list[Joint], positions: list[float]) -> float:
    """Measure how far apart the centres of two fingers are [m]."""
    centers = []
    for joint, position in zip(fingers, positions):
        body = tree.links[joint.child].inertial
        center = np.zeros(3) if body is None else np.asarray(body.center)
        T = joint.pose.T @ compute_motion(joint.axis, position, joint.kind == "prismatic")
        root = tree.find_joint_above(joint.parent)
        while root is not None and not root.moves:
            T = root.pose.T @ T
            root = tree.find_joint_above(root.parent)
        centers.append(T[:3, :3] @ center + T[:3, 3])
    return float(np.linalg.norm(centers[0] - centers[1]))


def _read_physics(model: Any, joints: list[int], leader: int) -> Physics | None:
    """Read the servo of either of two fingers; None without an actuator whose force is limited."""
    for actuator in range(model.nu):
        target = int(model.actuator_trnid[actuator, 0])
        stiffness, damping = read_gains(model, actuator)
        torque = read_torque(model, leader, actuator)
        if int(model.actuator_trntype[actuator]) == _TENDON:
            first = int(model.tendon_adr[target])
            wraps = range(first, first + int(model.tendon_num[target]))
            if {int(model.wrap_objid[wrap]) for wrap in wraps} != set(joints):
                continue
            # a force F on the length sum(c q) is a force c F on each joint
            share = float(np.mean([abs(model.wrap_prm[wrap]) for wrap in wraps]))
            reach = float(sum(abs(model.wrap_prm[wrap]) for wrap in wraps))
            servo = (share * reach * stiffness, share * reach * damping, share * torque)
        elif target in joints:
            servo = tuple(value / 2.0 for value in (stiffness, damping, torque))
        else:
            continue
        if servo[0] > 0.0 and 0.0 < servo[2] < np.inf:
            dof = int(model.jnt_dofadr[leader])
            rows = [np.array([value]) for value in servo]
            armature = np.array([model.dof_armature[dof]])
            friction = np.array([model.dof_damping[dof]])
            return Physics(rows[0], rows[1], rows[2], armature=armature, friction=friction)
    return None
