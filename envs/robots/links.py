"""The links of an arm and its gripper as plain data: what moves what, and where.

All that kinematics and collision checks need. roboticstoolbox's model of the same links, for
drawing, inertias and as a reference, takes seconds to import, so it is made where it is used.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from envs.kinematics import ElementaryTransform
from envs.robots.followers import Follower, get_follower
from td3_robot.errors import ConfigError


@dataclass(eq=False)
class Link:
    """A rigid part.

    Attributes:
        name: as in the robot's model.
        parent: the link that carries it; None for the base.
        T: (4, 4) pose in the parent, before its joint moves it [m].
        motion: what its joint does: "Rx" to "Rz" turn, "tx" to "tz" slide; None without a joint.
        isflip: the joint moves the other way.
        joint: the name of the joint above it in the file, if any.
        is_drawn: it has a shape.
        follower: how it follows another joint, if it does.
        jindex: number of its joint in the arm, or in the gripper.
    """

    name: str
    parent: "Link | None"
    T: np.ndarray = field(default_factory=lambda: np.eye(4))
    motion: str | None = None
    isflip: bool = False
    joint: str | None = None
    is_drawn: bool = False
    follower: Follower | None = None
    jindex: int | None = None

    @property
    def isjoint(self) -> bool:
        """Tell if a joint moves it."""
        return self.motion is not None

    @property
    def ets(self) -> list[ElementaryTransform]:
        """The transforms from its parent to it."""
        fixed = ElementaryTransform(T=self.T)
        if self.motion is None:
            return [fixed]
        return [fixed, ElementaryTransform(kind=self.motion, isflip=self.isflip)]

    def A(self, position: float) -> np.ndarray:
        """Compute the pose (4, 4) in the parent at a position of its joint [rad or m]."""
        if self.motion is None:
            return self.T
        return self.T @ _move(self.motion, -position if self.isflip else position)


def _move(motion: str, position: float) -> np.ndarray:
    """Compute the transform (4, 4) of a turn about, or a slide along, an axis of the frame."""
    T = np.eye(4)
    k = "xyz".index(motion[1])
    if motion[0] == "t":
        T[k, 3] = position
        return T
    i = (k + 1) % 3
    j = (k + 2) % 3
    T[i, i] = T[j, j] = math.cos(position)
    T[j, i] = math.sin(position)
    T[i, j] = -T[j, i]
    return T


def is_drawn(link: Any) -> bool:
    """Tell if a link, ours or roboticstoolbox's, has a shape."""
    return link.is_drawn if isinstance(link, Link) else bool(link.geometry or link.collision)


def get_joint_name(link: Any) -> str:
    """Return the name of the joint that moves a link, or else that of the link."""
    # roboticstoolbox keeps it in a private attribute
    name = link.joint if isinstance(link, Link) else getattr(link, "_joint_name", None)
    return name or link.name


def sort_links(links: Iterable[Any]) -> list[Any]:
    """Sort links so that each is followed by all that it carries, as roboticstoolbox does."""
    links = list(links)
    below: dict[Any, list[Any]] = {link: [] for link in links}
    for link in links:
        if link.parent is not None:
            below[link.parent].append(link)
    found = []
    waiting = [link for link in links if link.parent is None][::-1]
    while waiting:
        link = waiting.pop()
        found.append(link)
        waiting += below[link][::-1]
    return found


def number_joints(links: Iterable[Any]) -> None:
    """Number the joints of an arm, or of a gripper, in the order of its links."""
    for index, link in enumerate(link for link in links if link.isjoint):
        link.jindex = index


def walk_to_base(link: Any) -> list[Any]:
    """Return a link, its parent, and so on to the base."""
    path = []
    while link is not None:
        path.append(link)
        link = link.parent
    return path


def find_link(owner: str, what: str, name: str, links: dict[str, Any]) -> Any:
    """Find a link by its name.

    Raises:
        ConfigError: there is none.
    """
    if name not in links:
        raise ConfigError(
            f"{owner}: {what} needs link {name!r}, which its model lacks; it has {', '.join(links)}"
        )
    return links[name]


def select_arm_links(links: Iterable[Any], flange: Any, whole: bool = False) -> list[Any]:
    """Select the links of the arm alone, in their order.

    Left out is everything beyond the flange, unless `whole`, everything moved by a joint that does
    not move the flange, and dead ends without a shape.

    Args:
        links: of the whole model.
        flange: the one that carries the gripper, or is the TCP.
        whole: no gripper takes the place of what is beyond the flange, such as a camera.
    """
    chain = walk_to_base(flange)
    kept = []
    for link in links:
        path = walk_to_base(link)
        beyond = flange in path[1:] and not whole
        movers = [part for part in path if part.isjoint]
        movers += [follower.leader for part in path if (follower := get_follower(part))]
        if not beyond and all(part in chain for part in movers):
            kept.append(link)
    shown = filter(is_drawn, kept)
    needed = {part for link in [*shown, flange] for part in walk_to_base(link)}
    return [link for link in kept if link in needed]
