"""Poses of the links of a roboticstoolbox model, and the rigid part that carries each."""

import numpy as np
import torch

from envs.kinematics import Chain, link_frames
from td3_robot.errors import ConfigError

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
        link: a roboticstoolbox link.
        q: positions of the joints of its model, or of its gripper, by their jindex [rad or m].
        root: the link to start from; None is the base.
    """
    path = find_path(link)
    T = np.eye(4)
    for part in path if root is None else path[path.index(root) + 1 :]:
        T = T @ part.A(q[part.jindex] if part.isjoint else 0.0).A
    return T


def find_carrier(link, root):
    """Find the link that carries this one: the gripper's base `root`, or one moved by a joint."""
    while link is not root and not link.isjoint:
        link = link.parent
    return link


def attach(links: list, chain: Chain, home: np.ndarray) -> tuple[list[int], np.ndarray]:
    """Attach links to bodies: body i is all that the first i joints carry.

    Args:
        links: of the arm's model, not beyond a gripper's base.
        home: (n,) any joint positions but zero; there the model is checked against the chain.

    Returns:
        The L bodies, and (L, 4, 4) the pose of each link in its body's frame.

    Raises:
        ConfigError: a link does not move as the body does.
    """
    bodies = [count_joints(link) for link in links]
    offsets = [_compute_offsets(links, bodies, chain, q) for q in (np.zeros_like(home), home)]
    for link, stands, moved in zip(links, *offsets):
        if not np.allclose(stands, moved, atol=_AGREE):
            raise ConfigError(
                f"link {link.name!r} is not carried by the arm's joints in the order of its chain"
            )
    return bodies, offsets[0]


def _compute_offsets(links: list, bodies: list[int], chain: Chain, q: np.ndarray) -> np.ndarray:
    """Compute the links' poses (L, 4, 4) in the bodies' frames, at one configuration."""
    chain = chain.to(dtype=torch.float64)
    frames = torch.stack(link_frames(chain, torch.tensor(q[None])))[..., 0].numpy()  # (n+1, 3, 4)
    frames = np.concatenate((frames, np.broadcast_to([0.0, 0, 0, 1], (len(frames), 1, 4))), 1)
    return np.stack(
        [
            np.linalg.inv(frames[body]) @ compute_link_pose(link, q)
            for link, body in zip(links, bodies)
        ]
    )
