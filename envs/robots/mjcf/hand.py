"""The fingers in an MJCF file: two or more joints that move as one, with their servo."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's Python package has no type stubs.

from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.robots.followers import compute_motion
from envs.robots.mjcf.compile import CompiledFile
from envs.robots.mjcf.names import Names, iter_ties
from envs.robots.mjcf.servos import JOINT, read_gains, read_torque
from envs.robots.physics import Physics
from envs.robots.urdf.tree import Joint, Tree, join_names
from td3_robot.errors import not_none

_TENDON = 3  # mjtTrn
_EQUAL = 1e-9


class NoHand(Exception):
    """The reason why the joints beyond a link are not fingers that move as one."""


@dataclass(frozen=True)
class FingerJoints:
    """Joints of fingers that move as one, and their servo.

    Attributes:
        carrier: the link that they hang on, the last one that a joint of the arm moves.
        joints: m of them.
        mimic: (m,) position of each as a multiple of the leader's.
        fingers: indices into `joints` of the first joints of two fingers.
        closed, opened: position of the leader where the fingers are nearest to each other, and
            farthest apart [rad or m].
        physics: servo of either finger.
    """

    carrier: str
    joints: tuple[Joint, ...]
    mimic: np.ndarray
    fingers: tuple[int, int]
    closed: float
    opened: float
    physics: Physics


def list_joints_below(tree: Tree, link: str) -> list[Joint]:
    """List the moving joints below a link."""
    found = []
    links = [link]
    for parent in links:  # grows while it is walked
        for joint in tree.find_joints_below(parent):
            links.append(joint.child)
            if joint.moves:
                found.append(joint)
    return found


def list_finger_joints(tree: Tree, link: str) -> list[Joint]:
    """List the moving joints below a link, but those that follow one above it."""
    below = list_joints_below(tree, link)
    return [joint for joint in below if _find_leader(tree, joint) in below]


def find_hand(file: CompiledFile, names: Names, tree: Tree, carrier: str) -> FingerJoints:
    """Find the fingers that hang on a link.

    Of the joints below, each but the leader follows it (`equality`), in proportion, or else a joint
    of the arm; an actuator drives one of them, or a tendon of them.

    Raises:
        NoHand: the joints below are no such fingers.
    """
    joints = list_finger_joints(tree, carrier)
    if len(joints) < 2:
        raise NoHand("one jaw alone moves")
    indices = [names.joints.index(joint.name) for joint in joints]
    if _has_linkage(file.model, names, indices):
        raise NoHand("a linkage with loops moves them")
    leaders = [joint for joint in joints if joint.mimic is None]
    if len(leaders) != 1:
        raise NoHand(f"no equality joins {join_names(joint.name for joint in leaders)}")
    leader = leaders[0]
    if leader.lower is None:
        raise NoHand(f"joint {leader.name!r} has no range")
    multiples = [_find_multiple(tree, joint, leader) for joint in joints]
    if None in multiples:
        other = joints[multiples.index(None)].name
        raise NoHand(f"{other!r} does not follow {leader.name!r} in proportion")
    mimic = np.array(multiples, float)
    fingers = [joint for joint in joints if not _is_below_another(tree, joint, joints)]
    if len(fingers) < 2:
        raise NoHand("they hang on each other")
    physics = _read_physics(file.model, indices, names.joints.index(leader.name))
    if physics is None:
        raise NoHand("no servo drives them")
    first, second = (joints.index(joint) for joint in fingers[:2])
    ends = [float(leader.lower), float(not_none(leader.upper))]
    gaps = [
        _measure_gap(tree, fingers[:2], [end * mimic[first], end * mimic[second]]) for end in ends
    ]
    closed, opened = ends if gaps[0] <= gaps[1] else ends[::-1]
    return FingerJoints(carrier, tuple(joints), mimic, (first, second), closed, opened, physics)


def _has_linkage(model: Any, names: Names, joints: list[int]) -> bool:
    """Tell if a constraint of two places closes a loop over joints (indices)."""
    bodies = {int(model.jnt_bodyid[joint]) for joint in joints}
    return any(
        all(bodies & set(names.list_path(end)) for end in ends) for _, ends in iter_ties(model)
    )


def _find_leader(tree: Tree, joint: Joint) -> Joint:
    """Find the joint that a joint follows in the end; itself for none."""
    while joint.mimic is not None:
        joint = tree.joints[joint.mimic.joint]
    return joint


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


def _is_below_another(tree: Tree, joint: Joint, joints: list[Joint]) -> bool:
    above = {held.name for held in tree.find_path(joint.parent)}
    return any(other.name in above for other in joints)


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
    """Read the servo of either of two fingers; None without one.

    The actuators of both add up. One whose force is not limited gives at most what its stiffness
    gives over the whole stroke.

    Raises:
        NoHand: one pushes one way alone.
    """
    servo = np.zeros(3)
    for actuator in range(model.nu):
        share, reach = _find_leverage(model, actuator, joints)
        stiffness, damping = read_gains(model, actuator)
        torque = read_torque(model, leader, [actuator]) if stiffness > 0.0 else 0.0
        if share and stiffness > 0.0 and not torque:
            raise NoHand("their servo gives no force one way")
        if torque == np.inf:
            torque = stiffness * float(np.ptp(model.jnt_range[leader]))
        servo += share * np.array([reach * stiffness, reach * damping, torque])
    if not (servo[0] > 0.0 and servo[2] > 0.0):
        return None
    dof = int(model.jnt_dofadr[leader])
    armature = np.array([model.dof_armature[dof]])
    friction = np.array([model.dof_damping[dof]])
    return Physics(servo[:1], servo[1:2], servo[2:], armature=armature, friction=friction)


def _find_leverage(model: Any, actuator: int, joints: list[int]) -> tuple[float, float]:
    """Find the share of an actuator's force on either finger, and its length by their position.

    A force F on the length sum(c q) is a force c F on each joint. Both are 0 for an actuator of
    something else.
    """
    target = int(model.actuator_trnid[actuator, 0])
    if int(model.actuator_trntype[actuator]) in JOINT:
        return (0.5, 1.0) if target in joints else (0.0, 0.0)
    if int(model.actuator_trntype[actuator]) != _TENDON:
        return 0.0, 0.0
    first = int(model.tendon_adr[target])
    wraps = range(first, first + int(model.tendon_num[target]))
    if {int(model.wrap_objid[wrap]) for wrap in wraps} != set(joints):
        return 0.0, 0.0
    levers = [abs(float(model.wrap_prm[wrap])) for wrap in wraps]
    return float(np.mean(levers)), sum(levers)
