"""Poses of the links of a robot, and the rigid part that carries each."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch

from envs.kinematics import Chain, link_frames
from envs.robots.followers import get_follower
from envs.robots.urdf.links import make_axis_frame
from td3_robot.errors import ConfigError, not_none

_AGREE = 1e-4  # [m, and parts of 1 for axes] to which model and chain must place a link alike


def find_path(link) -> list:
    """Find the links from the base of a model to one of its links."""
    path = []
    while link is not None:
        path.append(link)
        link = link.parent
    return path[::-1]


def count_joints(link) -> int:
    """Count the joints that move a link."""
    return sum(part.isjoint for part in find_path(link))


def compute_link_pose(link, q: np.ndarray, root=None) -> np.ndarray:
    """Compute the pose (4, 4) of a link in the base frame, or in that of a link before it.

    Args:
        link: of `Robot.body`, or of roboticstoolbox.
        q: positions of the joints of its model, or of its gripper, by their jindex [rad or m].
        root: the link to start from; None is the base.
    """
    path = find_path(link)
    T = np.eye(4)
    for part in path if root is None else path[path.index(root) + 1 :]:
        follower = get_follower(part)
        if follower is None:
            moved = part.A(q[part.jindex] if part.isjoint else 0.0)
            T = T @ getattr(moved, "A", moved)  # roboticstoolbox gives an SE3
        else:
            T = T @ follower.compute_pose(q)
    return T


def find_body(link, followers: Sequence[Any], n: int) -> int:
    """Find the body that carries a link: the number of joints before it, or n + 1 + that of the
    follower.
    """
    for part in reversed(find_path(link)):
        if part in followers:
            return n + 1 + followers.index(part)
    return count_joints(link)


def find_body_frame(body: int, followers: Sequence[Any], chain: Chain, q: np.ndarray) -> np.ndarray:
    """Compute the frame (4, 4) of a body in the base frame; the z axis of a follower's is its
    joint's.
    """
    return find_body_frames({body}, followers, chain, q)[body]


def find_body_frames(
    bodies: Collection[int], followers: Sequence[Any], chain: Chain, q: np.ndarray
) -> dict[int, np.ndarray]:
    """Compute `find_body_frame` of several bodies, by body."""
    exact = chain.to(dtype=torch.float64)
    arm = link_frames(exact, torch.tensor(q[None], dtype=torch.float64))
    frames = {}
    for body in bodies:
        if body <= chain.n:
            frames[body] = np.vstack((arm[body][..., 0].numpy(), [0.0, 0.0, 0.0, 1.0]))
        else:
            link = followers[body - chain.n - 1]
            turn = np.eye(4)
            turn[:3, :3] = make_axis_frame(not_none(get_follower(link)).axis)
            frames[body] = compute_link_pose(link, q) @ turn
    return frames


def find_carrier(link, root):
    """Find the link that carries this one: the gripper's base `root`, or one moved by a joint."""
    while link is not root and not link.isjoint:
        link = link.parent
    return link


def attach(
    links: list, chain: Chain, home: np.ndarray, followers: Sequence[Any] = ()
) -> tuple[list[int], np.ndarray]:
    """Attach links to bodies: body i is all that the first i joints carry; those of followers come
    after.

    Args:
        links: of the arm's model, not beyond a gripper's base.
        followers: those of its links that follow joints.
        home: (n,) any joint positions but zero; there the model is checked against the chain.

    Returns:
        The L bodies, and (L, 4, 4) the pose of each link in its body's frame.

    Raises:
        ConfigError: a link does not move as the body does.
    """
    bodies = [find_body(link, followers, chain.n) for link in links]
    offsets = [
        _compute_offsets(links, bodies, chain, q, followers) for q in (np.zeros_like(home), home)
    ]
    for link, at_zero, at_home in zip(links, *offsets):
        if not np.allclose(at_zero, at_home, atol=_AGREE):
            raise ConfigError(
                f"link {link.name!r} is not carried by the arm's joints in the order of its chain"
            )
    return bodies, offsets[0]


def _compute_offsets(
    links: list, bodies: list[int], chain: Chain, q: np.ndarray, followers: Sequence[Any]
) -> np.ndarray:
    """Compute the links' poses (L, 4, 4) in the bodies' frames, at one configuration."""
    frames = find_body_frames(set(bodies), followers, chain, q)
    return np.stack(
        [
            np.linalg.inv(frames[body]) @ compute_link_pose(link, q)
            for link, body in zip(links, bodies)
        ]
    )
