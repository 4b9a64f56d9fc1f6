"""Links that follow joints of the arm as bodies of a collision model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envs.collision.capsules import Followers
from envs.collision.links import find_body, find_body_frame
from envs.kinematics import Chain
from envs.robots.followers import get_follower
from td3_robot.errors import not_none


def compile_followers(links: Sequence[Any], chain: Chain) -> Followers | None:
    """Compile the links that follow joints; None without any.

    Args:
        links: of the arm's model, from `envs.robots.followers.list_followers`.
        chain: the arm's kinematics.
    """
    if not links:
        return None
    q = np.zeros(chain.n)  # there each follower's own joint is at its offset
    parents = []
    constants = []
    followers = [not_none(get_follower(link)) for link in links]
    for link, follower in zip(links, followers):
        parent = find_body(link.parent, links, chain.n)
        parents.append(parent)
        parent_frame = find_body_frame(parent, links, chain, q)
        frame = find_body_frame(find_body(link, links, chain.n), links, chain, q)
        undo_offset = make_motion(
            torch.tensor([-follower.offset], dtype=torch.float64), follower.prismatic
        )
        constants.append(np.linalg.inv(parent_frame) @ frame @ undo_offset[..., 0].numpy())
    return Followers(
        parents=tuple(parents),
        joints=tuple(follower.leader.jindex for follower in followers),
        multipliers=tuple(follower.multiplier for follower in followers),
        offsets=tuple(follower.offset for follower in followers),
        prismatic=tuple(follower.prismatic for follower in followers),
        constants=torch.tensor(np.array(constants), dtype=torch.float32),
    )


def make_motion(position: Tensor, prismatic: bool) -> Tensor:
    """Make the transforms (4, 4, B) of a joint about or along z at positions (B,) [rad or m]."""
    T = torch.eye(4, dtype=position.dtype, device=position.device)[:, :, None].repeat(
        1, 1, len(position)
    )
    if prismatic:
        T[2, 3] = position
    else:
        T[0, 0] = T[1, 1] = torch.cos(position)
        T[1, 0] = torch.sin(position)
        T[0, 1] = -T[1, 0]
    return T


def add_follower_frames(followers: Followers, frames: list[Tensor], q: Tensor) -> list[Tensor]:
    """Return the frames of the arm's bodies and, after them, those of the followers.

    Args:
        frames: `kinematics.link_frames(chain, q)`, (3, 4, B) each.
        q: (B, n) joint positions [rad or m].
    """
    frames = list(frames)
    for index, parent in enumerate(followers.parents):
        position = followers.multipliers[index] * q[:, followers.joints[index]]
        step = make_motion(position + followers.offsets[index], followers.prismatic[index])
        step = torch.einsum("ij,jkb->ikb", followers.constants[index].to(q.dtype), step)
        frames.append(torch.einsum("ijb,jkb->ikb", frames[parent].expand(3, 4, len(q)), step))
    return frames
