"""The links of a robot description as `envs.robots.links.Link`."""

from collections.abc import Collection, Sequence

import numpy as np

from envs.robots.followers import Follower, compute_motion
from envs.robots.links import Link, number_joints, sort_links
from envs.robots.urdf.tree import Joint, Tree
from td3_robot.errors import not_none

AXIS = ":axis"  # end of the names of links that are not in the file
_AXES = "xyz"


def list_links(tree: Tree, moving: Collection[str] | None = None) -> list[Link]:
    """List the links of a description, each followed by all that it carries.

    A joint about or along an axis that is skew in its frame moves a link of its own, whose name
    ends in ":axis" and whose z axis it is; the file's link is fixed to that.

    Args:
        tree: the description.
        moving: names of the joints that move; None lets all move, mimic joints as if they were
            free. Mimic joints that follow one of them have a `Follower`. The others stand still: at
            zero, at the limit nearest to it, or where their leader there has a mimic joint.
    """
    links = {tree.root: Link(tree.root, None)}
    order = [tree.root]
    for parent in order:  # grows while it is walked: parents come before their children
        for joint in tree.find_joints_below(parent):
            free = joint.moves and (moving is None or joint.name in moving)
            links |= {link.name: link for link in _make_links(tree, joint, links[parent], free)}
            order.append(joint.child)
    for name, body in tree.links.items():
        shapes = (*body.visuals, *body.collisions)
        links[name].is_drawn = any(shape.fault is None for shape in shapes)
    for joint in tree.joints.values():
        if moving is not None and joint.name not in moving and joint.mimic is not None:
            leader, multiplier, offset = _find_leader(tree, joint, moving)
            if leader is not None:
                links[joint.child].follower = Follower(
                    leader=next(
                        link for link in links.values() if link.isjoint and link.joint == leader
                    ),
                    multiplier=multiplier,
                    offset=offset,
                    T=joint.pose.T,
                    axis=np.array(joint.axis),
                    prismatic=joint.kind == "prismatic",
                )
    found = sort_links(links.values())
    number_joints(found)
    return found


def _find_leader(
    tree: Tree, joint: Joint, moving: Collection[str]
) -> tuple[str | None, float, float]:
    """Find the moving joint that a joint follows, with multiplier and offset; None for none."""
    multiplier = 1.0
    offset = 0.0
    while joint.mimic is not None and joint.name not in moving:
        offset += multiplier * joint.mimic.offset
        multiplier *= joint.mimic.multiplier
        joint = tree.joints[joint.mimic.joint]
    return (joint.name if joint.name in moving else None), multiplier, offset


def _make_links(tree: Tree, joint: Joint, parent: Link, free: bool) -> list[Link]:
    """Make the child link of a joint, after one that turns for it if its axis is skew."""
    if not free:
        T = joint.pose.T
        if joint.moves:
            position = find_resting_position(tree, joint)
            T = T @ compute_motion(joint.axis, position, joint.kind == "prismatic")
        return [Link(joint.child, parent, T, joint=joint.name)]
    letter = "t" if joint.kind == "prismatic" else "R"
    if 1.0 in np.abs(joint.axis):
        k = int(np.argmax(np.abs(joint.axis)))
        motion = letter + _AXES[k]
        isflip = bool(joint.axis[k] < 0)
        return [Link(joint.child, parent, joint.pose.T, motion, isflip, joint.name)]
    turn = np.eye(4)
    turn[:3, :3] = make_axis_frame(joint.axis)
    axis = Link(f"{joint.name}{AXIS}", parent, joint.pose.T @ turn, f"{letter}z", joint=joint.name)
    return [axis, Link(joint.child, axis, turn.T)]


def make_axis_frame(axis: Sequence[float] | np.ndarray) -> np.ndarray:
    """Make a rotation (3, 3) whose third column is the axis; the identity for +z."""
    z = np.asarray(axis)
    x = np.cross([0.0, 1.0, 0.0] if abs(z[1]) < 0.9 else [0.0, 0.0, 1.0], z)
    x /= np.linalg.norm(x)
    return np.stack((x, np.cross(z, x), z), axis=1)


def find_resting_position(tree: Tree, joint: Joint) -> float:
    """Find the position of a joint that nothing moves [rad or m]."""
    if joint.mimic is not None:
        return (
            joint.mimic.multiplier * find_resting_position(tree, tree.joints[joint.mimic.joint])
            + joint.mimic.offset
        )
    if joint.lower is None or joint.kind == "continuous":
        return 0.0
    return min(max(0.0, joint.lower), not_none(joint.upper))
