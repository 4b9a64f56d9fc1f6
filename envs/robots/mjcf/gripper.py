"""The gripper in an MJCF file: its fingers, hung on a link of their own."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from envs.robots.gripper import Gripper, gripper_names
from envs.robots.mjcf.compile import CompiledFile
from envs.robots.mjcf.frames import make_pose
from envs.robots.mjcf.hand import (
    FingerJoints,
    NoHand,
    find_hand,
    list_finger_joints,
    list_joints_below,
)
from envs.robots.mjcf.names import Names
from envs.robots.mjcf.pads import FingerPads, make_pads, measure_fingers
from envs.robots.robot import name_arm
from envs.robots.urdf.tree import Joint, Link, Pose, Tree, join_names, make_tree

BASE = "gripper"  # of a gripper, after the name of the link that carries it
PREFIX = "gripper/"  # of its joints, which differ from the arm's by it
GRASP = "grasp"  # the middle between the pads, after the name of the body that the fingers hang on
_STROKE_TIME = 1.0  # [s] from shut to open: MJCF has no speed


@dataclass(frozen=True)
class FoundGripper:
    """A gripper in a file: its joints, and the pads and the frame that were measured on it.

    Attributes:
        hand: their joints and servo.
        fingers: their inner sides; None where they have none that face each other.
        frame: the link in the middle between the pads; None without such sides.
    """

    hand: FingerJoints
    fingers: FingerPads | None
    frame: str | None


def find_grippers(file: CompiledFile, names: Names, tree: Tree) -> tuple[Tree, list[FoundGripper]]:
    """Find the fingers of a file, and add a link in the middle between the pads of each two.

    The link is called `BODY:grasp` and has the axes of the body that the fingers hang on.
    """
    found = []
    for joint in list(tree.joints.values()):
        if not joint.moves:
            continue
        try:
            hand = find_hand(file, names, tree, joint.child)
        except NoHand:
            continue
        fingers = measure_fingers(file, names, hand)
        frame = None
        if fingers is not None:
            frame = f"{fingers.body}:{GRASP}"
            tree = _add_frame(tree, fingers.body, frame, fingers.center)
        found.append(FoundGripper(hand, fingers, frame))
    return tree, found


def attach_gripper(
    file: CompiledFile,
    names: Names,
    tree: Tree,
    found: list[FoundGripper],
    tcp: str,
    base: str | None = None,
) -> tuple[Tree, Gripper | None, list[str]]:
    """Attach the fingers on the link that carries the TCP, if they move as one and are driven.

    Returns:
        The tree, with a link `CARRIER:gripper` that the fingers hang on, and the gripper; the tree
        as it was and None where the file has no such gripper, whose fingers stand still then; and
        lines that say what of it cannot be used.
    """
    carrier = [joint.child for joint in tree.find_path(tcp) if joint.moves][-1]
    grip = next((gripper for gripper in found if gripper.hand.carrier == carrier), None)
    if grip is None:
        return tree, None, _explain(file, names, tree, carrier)
    hand = grip.hand
    notices = []
    if led := [joint for joint in list_joints_below(tree, carrier) if joint not in hand.joints]:
        still = join_names(joint.name for joint in led)
        notices.append(f"joints beyond the TCP stand still ({still}): the gripper carries them")
    root = f"{carrier}:{BASE}"
    tree = _hang_on(tree, carrier, root)
    links = tuple(_name_moved_link(joint) for joint in hand.joints)
    first, second = hand.fingers
    T_ct = _find_pose(tree, carrier, tcp)
    pads = None
    if grip.fingers is not None:
        T_ch = _find_pose(tree, carrier, grip.fingers.body)
        pads = make_pads(grip.fingers, np.linalg.inv(T_ch) @ T_ct, (links[first], links[second]))
        if pads is None:
            notices.append(
                f"the TCP {tcp!r} is not between the fingers, so nothing can be grasped; "
                f"--tcp {grip.frame} is"
            )
    gripper = Gripper(
        name=f"{name_arm(Path(file.source), base)}.gripper",
        joints=tuple(f"{PREFIX}{joint.name}" for joint in hand.joints),
        drivers=hand.fingers,
        mimic=hand.mimic,
        closed=hand.closed,
        opened=hand.opened,
        speed=abs(hand.opened - hand.closed) / _STROKE_TIME,
        links=links,
        root=root,
        tcp=T_ct,
        pads=pads,
        physics=hand.physics,
        file=Path(file.source),
    )
    return tree, gripper, notices


def _explain(file: CompiledFile, names: Names, tree: Tree, carrier: str) -> list[str]:
    """Explain why what moves beyond a link stands still; [] if nothing does."""
    joints = list_finger_joints(tree, carrier)
    if not joints:
        return []
    try:
        find_hand(file, names, tree, carrier)
    except NoHand as reason:
        return [
            f"joints beyond the TCP stand still ({join_names(joint.name for joint in joints)}): "
            f"{reason}; --gripper takes one of ours: {', '.join(gripper_names())}"
        ]
    return []


def _name_moved_link(joint: Joint) -> str:
    """Name the link that ends in a joint in the model of `rtb_model.build_model`."""
    return joint.child if 1.0 in np.abs(joint.axis) else f"{joint.name}:axis"


def _add_frame(tree: Tree, parent: str, name: str, position: np.ndarray) -> Tree:
    """Add a link without shape at a position (3,) in another [m]."""
    T = np.eye(4)
    T[:3, 3] = position
    links = [*tree.links.values(), Link(name)]
    joints = [*tree.joints.values(), Joint(f"{name}:fixed", "fixed", parent, name, make_pose(T))]
    return make_tree(tree.source, tree.name, links, joints, tree.notices)


def _hang_on(tree: Tree, carrier: str, root: str) -> Tree:
    """Hang all that a link carries on a link of its own, at the same place."""
    joints = [
        replace(joint, parent=root) if joint.parent == carrier else joint
        for joint in tree.joints.values()
    ]
    links = [*tree.links.values(), Link(root)]
    joints.append(Joint(f"{root}:fixed", "fixed", carrier, root, Pose()))
    return make_tree(tree.source, tree.name, links, joints, tree.notices)


def _find_pose(tree: Tree, link: str, end: str) -> np.ndarray:
    """Find the pose (4, 4) of a link in another that it is fixed to."""
    T = np.eye(4)
    for joint in reversed(tree.find_path(end)):
        if joint.child == link:
            break
        T = joint.pose.T @ T
    return T
