"""The links of an arm and those of the gripper that it wears, put together."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from envs.kinematics import ElementaryTransform
from envs.robots.gripper import Gripper
from envs.robots.links import Link, find_link, number_joints, select_arm_links, walk_to_base
from envs.robots.sources import read_source
from envs.robots.urdf.links import list_links
from envs.robots.urdf.tree import Tree
from td3_robot.errors import ConfigError, not_none


@dataclass(frozen=True)
class Body:
    """The links of an arm, and those of the gripper on it.

    Attributes:
        arm: links of the arm alone, parents before their children.
        hand: links of the gripper, its base first; none without a gripper.
        tcp: (4, 4) pose of the TCP in the gripper's base; the identity without a gripper [m].
    """

    arm: Sequence[Any]
    hand: Sequence[Any] = ()
    tcp: np.ndarray = field(default_factory=lambda: np.eye(4))


def find_flange(name: str, tree: Tree, tcp: str, hand: Gripper | None) -> str:
    """Find the link that carries the gripper: `tcp`, or the one below a gripper of the same model.

    Args:
        name: of the robot, for messages.
        tree: the arm's model.
        tcp: the TCP of the arm without a gripper.
        hand: the gripper, or None.

    Raises:
        ConfigError: the gripper is a part of the model that other joints move than the TCP.
    """
    if hand is None or hand.source is not None or not {hand.root, tcp} <= set(tree.links):
        return tcp
    wanted, found = (
        [joint.name for joint in tree.find_path(link) if joint.moves] for link in (hand.root, tcp)
    )
    flange = not_none(tree.find_joint_above(hand.root)).parent if wanted else hand.root
    if found != wanted:
        raise ConfigError(
            f"robot {name!r}: TCP {tcp!r} is not moved by the same joints as its gripper "
            f"{hand.name!r}: choose {flange!r}, which carries it"
        )
    return flange


def list_moving(tree: Tree, flange: str, hand: Gripper | None) -> set[str]:
    """List the joints that move the flange, and those of a gripper that is part of the model.

    The others stand still or follow one of them.
    """
    moving = {joint.name for joint in tree.find_path(flange)}
    if hand is not None and hand.source is None:
        moving |= {
            joint.name
            for joint in tree.joints.values()
            if any(above.parent == hand.root for above in tree.find_path(joint.child))
        }
    return moving


def join_links(
    name: str,
    links: Sequence[Link],
    flange: str,
    hand: Gripper | None,
    mount: np.ndarray,
    whole: bool = False,
) -> Body | None:
    """Join the links of an arm up to its flange, and those of a gripper on it.

    Args:
        name: of the robot, for messages.
        links: of the arm's model; used up.
        flange: the link that carries the gripper, and the TCP of an arm without one.
        hand: the gripper, or None.
        mount: (4, 4) pose of the gripper's base in the flange, for a gripper with a model of its
            own.
        whole: as of `select_arm_links`.

    Returns:
        The links; None where roboticstoolbox has to be asked for those of the gripper.

    Raises:
        ConfigError: there is no such flange, or not the gripper's base.
    """
    owner = f"robot {name!r}"
    named = {link.name: link for link in links}
    end = find_link(owner, "flange", flange, named)
    arm = select_arm_links(links, end, whole)
    if hand is None:
        number_joints(arm)
        return Body(arm)
    if hand.source is None:
        root = find_link(owner, hand.part, hand.root, named)
        held = [link for link in links if root in walk_to_base(link)]
    else:
        tree = read_source(hand.owner, hand.source)
        if tree is None:
            return None
        held = list_links(tree)
        root = find_link(hand.owner, "root", hand.root, {link.name: link for link in held})
        root.parent = end
        root.T = mount
        held = [link for link in held if root in walk_to_base(link)]
        for link in held:
            link.name = hand.format_link(link.name)
    for part in (arm, held):
        number_joints(part)
    return Body(arm, held, hand.tcp)


def take_links(model: Any) -> Body:
    """Take the links of a roboticstoolbox model of an arm, and of the gripper on it."""
    if not model.grippers:
        return Body(model.links)
    return Body(model.links, model.grippers[0].links, model.grippers[0].tool.A)


def list_transforms(body: Body, flange: str) -> list[ElementaryTransform]:
    """List the transforms from base to TCP, for `envs.kinematics.compile_ets`.

    Args:
        body: the links.
        flange: name of the link that is the TCP of an arm without a gripper.
    """
    end = body.hand[0] if body.hand else {link.name: link for link in body.arm}[flange]
    path = walk_to_base(end)[::-1]
    tool = [ElementaryTransform(T=body.tcp)] if body.hand else []
    return [each for link in path for each in link.ets] + tool
