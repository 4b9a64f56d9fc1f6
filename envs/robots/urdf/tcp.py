"""The TCP link of a robot description, and the joints that move it."""

import re
from collections.abc import Iterable

import numpy as np

from envs.robots.urdf.tree import Joint, Tree, join_names
from td3_robot.errors import ConfigError

# What makers call the link that tools are mounted to or that a tool ends in, the most telling name
# first.
TCP_NAMES = (
    *("tcp", "tool_center_point", "tool0", "ee_gripper_link"),
    *("end_effector", "end_effector_link", "ee_link", "ee"),
)
# What else in the name of a fixed frame makes it a proposal, the most telling first.
_TOOL_FRAME = (
    *("tcp", "tool_cent", "grasp", "gripper_frame", "tool0", "tool_frame", "tool_tip", "pinch"),
    *("end_effector", "eef", "ee_", "_ee", "ee", "tool", "tip", "hand", "flange"),
)

# What the joint of a gripper is called, or the link that it moves.
_GRIPPING = re.compile("grip|jaw|finger|claw|thumb|knuckle", re.IGNORECASE)
# "gripper" is what a wrist carries
_GRIPPER_LINK = re.compile("jaw|finger|claw|thumb|knuckle", re.IGNORECASE)


def find_tcp(tree: Tree) -> str:
    """Find the TCP link if none is named.

    In this order: the only link with a name from TCP_NAMES, by itself or after a prefix
    ("left_tool0", "arm/ee_link"); the link at the end of the only line of moving joints, with what
    is rigidly mounted in line with it.

    Raises:
        ConfigError: there are several, the joints before it seem to end in those of a gripper, or
            nothing moves.
    """
    tcp = _find_named_tcp(tree) or _find_end(tree)
    arm = tree.find_path(tcp)
    while arm and (not arm[-1].moves or _is_gripper_joint(tree, arm[-1])):
        arm = arm[:-1]
    gripping = [joint for joint in tree.find_path(tcp)[len(arm) :] if joint.moves]
    if gripping and arm:
        still = join_names(propose_frames(tree, arm[-1].child))
        raise ConfigError(
            f"{tree.source}: choose the TCP with --tcp: {still}; joint {gripping[0].name!r} seems "
            f"to be a gripper's and then stands still; with {tcp} it is a joint of the arm"
        )
    return tcp


def propose_frames(tree: Tree, link: str) -> list[str]:
    """Propose links as TCP that move with a link, itself among them.

    Frames that are fixed to the moving link come first, each with its distance: those that are
    called like a tool, then the link itself, then those without a shape, then the others.
    """
    moving = [joint.child for joint in tree.find_path(link) if joint.moves]
    carrier = moving[-1]
    ranked = []
    for frame, T in _find_fixed_frames(tree, carrier, np.eye(4)):
        name = frame.lower()
        rank = next((i for i, word in enumerate(_TOOL_FRAME) if word in name), len(_TOOL_FRAME))
        drawn = bool(tree.links[frame].visuals or tree.links[frame].collisions)
        millimetres = 1e3 * float(np.linalg.norm(T[:3, 3]))
        ranked.append(
            (rank, frame != link, drawn, f"{frame} ({millimetres:.0f} mm from {carrier})")
        )
    proposed = [row[-1] for row in sorted(ranked, key=lambda row: row[:-1])]
    return [*proposed, carrier] if carrier == link else proposed


def _find_fixed_frames(tree: Tree, link: str, T: np.ndarray) -> Iterable[tuple[str, np.ndarray]]:
    """Yield the links that are fixed to a link, with their poses (4, 4) in its frame, `T` there."""
    for joint in tree.find_joints_below(link):
        if not joint.moves:
            below = T @ joint.pose.T
            yield joint.child, below
            yield from _find_fixed_frames(tree, joint.child, below)


def _is_gripper_joint(tree: Tree, joint: Joint) -> bool:
    """Tell if a joint opens a gripper, by its name, or by others that follow it."""
    followed = any(
        other.mimic is not None and other.mimic.joint == joint.name
        for other in tree.joints.values()
    )
    return followed or bool(_GRIPPING.search(joint.name) or _GRIPPER_LINK.search(joint.child))


def _is_commanded(tree: Tree, link: str) -> bool:
    """Tell if a link can be the TCP: joints move it, none of them a mimic."""
    moving = [joint for joint in tree.find_path(link) if joint.moves]
    return bool(moving) and all(joint.mimic is None for joint in moving)


def _find_named_tcp(tree: Tree) -> str | None:
    """Find the link with a name from TCP_NAMES."""
    for name in TCP_NAMES:
        named = [
            link
            for link in tree.links
            if link == name or link.endswith((f"_{name}", f"/{name}", f"-{name}"))
        ]
        named = [link for link in named if _is_commanded(tree, link)]
        if len(named) == 1:
            return named[0]
        if named:
            raise _make_choice_error(tree, named)
    return None


def _find_end(tree: Tree) -> str:
    """Find the link at the end of the only line of moving joints."""
    moving = [joint for joint in tree.joints.values() if joint.moves]
    if not moving:
        raise ConfigError(
            f"{tree.source}: no joint moves; a robot needs one that is revolute, continuous or "
            "prismatic"
        )
    inner = {above.name for joint in moving for above in tree.find_path(joint.parent)}
    last = [joint for joint in moving if joint.name not in inner]
    if len(last) > 1:
        ways = {above.child for joint in last for above in tree.find_path(joint.child)}
        parting = [
            link
            for link in tree.links
            if sum(joint.child in ways for joint in tree.find_joints_below(link)) > 1
        ]
        raise _make_choice_error(tree, parting + [joint.child for joint in last])
    link = last[0].child
    while len(below := tree.find_joints_below(link)) == 1:
        link = below[0].child
    return link


def _make_choice_error(tree: Tree, candidates: list[str]) -> ConfigError:
    able = [link for link in candidates if _is_commanded(tree, link)]
    if not able:
        return ConfigError(f"{tree.source}: is no arm: whatever moves follows another joint")
    offered = [proposal for link in able for proposal in propose_frames(tree, link)]
    return ConfigError(
        f"{tree.source}: several links could be the TCP; choose one with --tcp: "
        f"{join_names(dict.fromkeys(offered))}"
    )


def list_moving_joints(tree: Tree, tcp: str) -> list[Joint]:
    """List the arm's joints, from base to TCP.

    Raises:
        ConfigError: there are none, or one of them follows another joint.
    """
    joints = [joint for joint in tree.find_path(tcp) if joint.moves]
    if not joints:
        raise ConfigError(
            f"{tree.source}: no joint moves the link {tcp!r}; choose another with --tcp"
        )
    for joint in joints:
        if joint.mimic is not None:
            how = "each joint of an arm must move by itself; choose a link before it with --tcp"
            raise ConfigError(
                f"{tree.source}: joint {joint.name!r} on the way to {tcp!r} is a mimic joint; {how}"
            )
    return joints
