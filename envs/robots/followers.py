"""Links that follow a joint of the arm: those of mimic joints, as in arms with parallel rods.

roboticstoolbox has no such joints. In its models the link of one is rigid, and has in the attribute
`follower` how it moves.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Follower:
    """The motion of a link that follows a joint.

    Attributes:
        leader: the link of the same arm whose joint it follows.
        multiplier, offset: its own joint's position is multiplier * the leader's + offset.
        T: (4, 4) pose in the parent link at position 0 of its own joint.
        axis: (3,) unit vector in its own frame, that it turns about or slides along.
        prismatic: whether it slides.
    """

    leader: Any
    multiplier: float
    offset: float
    T: np.ndarray
    axis: np.ndarray
    prismatic: bool

    def compute_pose(self, q: np.ndarray) -> np.ndarray:
        """Compute the pose (4, 4) in the parent link at the joints' positions [rad or m]."""
        position = self.multiplier * float(q[self.leader.jindex]) + self.offset
        return self.T @ compute_motion(self.axis, position, self.prismatic)


def compute_motion(axis: Any, position: float, prismatic: bool) -> np.ndarray:
    """Compute the transform (4, 4) of a joint at a position [rad or m], by Rodrigues' formula."""
    T = np.eye(4)
    axis = np.asarray(axis)
    if prismatic:
        T[:3, 3] = position * axis
    else:
        K = np.cross(np.eye(3), axis)  # K v = axis x v
        T[:3, :3] += np.sin(position) * K + (1.0 - np.cos(position)) * K @ K
    return T


def get_follower(link: Any) -> Follower | None:
    """Return how a link of a model follows a joint; None if it does not."""
    return getattr(link, "follower", None)


def is_moved(link: Any) -> bool:
    """Tell if a link moves in its parent: by a joint of its own, or as a follower."""
    return link.isjoint or get_follower(link) is not None


def list_followers(links: Iterable[Any]) -> list[Any]:
    """List the links of an arm that follow joints, each after those that carry it."""

    def count_above(link):
        return 0 if link is None else 1 + count_above(link.parent)

    return sorted((link for link in links if get_follower(link)), key=count_above)


def move_followers(model: Any, q: np.ndarray) -> None:
    """Set the links that follow joints to where they are, for roboticstoolbox's own functions.

    Args:
        q: (n,) positions of the arm's joints [rad or m].
    """
    for link in list_followers(model.links):
        follower = get_follower(link)
        assert follower is not None
        link.ets = type(link.ets)(_make_constant(follower.compute_pose(q)))


def _make_constant(T: np.ndarray) -> Any:
    from roboticstoolbox import ET  # here: it takes over a second

    return ET.SE3(T)
