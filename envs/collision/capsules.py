"""The capsules of an arm and its gripper, ready for batches."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from envs.kinematics import Chain


@dataclass(frozen=True)
class CollisionModel:
    """K capsules on the bodies of an arm, and which of them are held against each other.

    Body i is what the first i joints carry; its frame is `kinematics.link_frames(...)[i]`.

    Attributes:
        chain: the arm's kinematics.
        links: names of the L links that have capsules; a gripper is one link.
        link_bodies: the body that carries each link.
        link_offsets: (L, 4, 4) pose of each link in its body's frame.
        capsule_links: the link that each capsule is on, in ascending order of body.
        link_capsules: (L, C) the capsules on each link; one that has fewer than others repeats its first.
        joints_below: (K, n) 1 for every joint that moves the capsule, 0 for the others.
        points: for every body that has capsules its number and the homogeneous ends of their segments in its frame,
            (2k, 4) [m]: start and end of one, then of the next.
        length_squared: (K, 1) of the segments [m2]; zero makes a sphere.
        radius: (K, 1) [m].
        first, second: (P,) the checked pairs of capsules.
        over_ground: (G,) capsules that are held against the ground.
        allowed: (link, link, reason) for every pair of links that is not checked.
    """

    chain: Chain
    links: tuple[str, ...]
    link_bodies: tuple[int, ...]
    link_offsets: Tensor
    capsule_links: tuple[int, ...]
    link_capsules: Tensor
    joints_below: Tensor
    points: tuple[tuple[int, Tensor], ...]
    length_squared: Tensor
    radius: Tensor
    first: Tensor
    second: Tensor
    over_ground: Tensor
    allowed: tuple[tuple[str, str, str], ...]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The links of every checked pair of capsules."""
        name = [self.links[link] for link in self.capsule_links]
        return [(name[i], name[j]) for i, j in zip(self.first.tolist(), self.second.tolist())]

    def to(self, device: torch.device | str) -> "CollisionModel":
        """The same model on another device."""
        tensors = {key: value.to(device) for key, value in vars(self).items() if isinstance(value, Tensor)}
        points = tuple((body, local.to(device)) for body, local in self.points)
        return replace(self, chain=self.chain.to(device), points=points, **tensors)
