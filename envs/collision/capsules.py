"""The capsules of an arm and its gripper, ready for batches."""

from dataclasses import dataclass, fields, replace
from functools import cached_property

import torch
from torch import Tensor

from envs.kinematics import Chain
from td3_robot.utils.legacy import keep_old_names


@dataclass(frozen=True)
class Fingers:
    """The links of a gripper that its driver moves: further bodies of a `CollisionModel`, after
    those of the arm.

    Attributes:
        poses: (3, 4, G, O) of the G links in the frame of the arm's last body, at O openings in
            equal steps; between two of them they are interpolated.
        shut, opened: the driver coordinate at the first and at the last of them [rad or m].
        corners: by body, the homogeneous points (V, 4) in its frame that are held against the
            ground, in place of the capsules, which are larger [m].
        bearer: the capsule in whose place they are.
    """

    poses: Tensor
    shut: float
    opened: float
    corners: tuple[tuple[int, Tensor], ...]
    bearer: int

    def to(self, device: torch.device | str) -> "Fingers":
        """Return the fingers on another device."""
        corners = tuple((body, local.to(device)) for body, local in self.corners)
        return replace(self, poses=self.poses.to(device), corners=corners)


@dataclass(frozen=True)
class Followers:
    """The F links that follow joints of the arm: bodies n + 1 to n + F of a `CollisionModel`.

    Attributes:
        parents: the body that carries each, an earlier one.
        joints: the joint of the arm that each follows.
        multipliers, offsets: the position of its own joint is multiplier * that joint's + offset.
        prismatic: whether it slides along the z axis of its frame, or turns about it.
        constants: (F, 4, 4) its frame in that of its parent at position 0 of its own joint.
    """

    parents: tuple[int, ...]
    joints: tuple[int, ...]
    multipliers: tuple[float, ...]
    offsets: tuple[float, ...]
    prismatic: tuple[bool, ...]
    constants: Tensor

    def to(self, device: torch.device | str) -> "Followers":
        """Return the followers on another device."""
        return replace(self, constants=self.constants.to(device))

    def list_above(self, body: int, n: int) -> list[int]:
        """List the bodies from the arm's to this one, both included."""
        found = [body]
        while found[0] > n:
            found.insert(0, self.parents[found[0] - n - 1])
        return found


@keep_old_names(with_fingers="select_model")
@dataclass(frozen=True)
class CollisionModel:
    """K capsules on the bodies of an arm, and which of them are held against each other.

    Body i is what the first i joints carry; its frame is `kinematics.link_frames(...)[i]`. Links
    that follow joints come next, see `Followers`, and those of a gripper's links that move, if they
    are bodies too, last; see `Fingers`.

    Attributes:
        chain: the arm's kinematics.
        links: names of the L links that have capsules; a gripper is one link.
        link_bodies: the body that carries each link.
        link_offsets: (L, 4, 4) pose of each link in its body's frame.
        capsule_links: the link that each capsule is on, in ascending order of body.
        link_capsules: (L, C) the capsules on each link; one that has fewer than others repeats its
            first.
        joints_below: (K, n + F) 1 for every joint and follower that moves the capsule, 0 for the
            others.
        points: for every body that has capsules its number and the homogeneous ends of their
            segments in its frame, (2k, 4) [m]: start and end of one, then of the next.
        length_squared: (K, 1) of the segments [m2]; zero makes a sphere.
        radius: (K, 1) [m].
        first, second: (P,) the checked pairs of capsules.
        over_ground: (G,) capsules that are held against the ground.
        allowed: (link, link, reason) for every pair of links that is not checked.
        fingers: what of the gripper its driver moves; None where the capsules hold it at every
            opening.
        followers: the links that follow joints; None where none does.
        at_opening: the same arm with `fingers`; None where the gripper's file does not tell them
            apart.
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
    fingers: Fingers | None = None
    followers: Followers | None = None
    at_opening: "CollisionModel | None" = None

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The links of every checked pair of capsules."""
        name = [self.links[link] for link in self.capsule_links]
        return [(name[i], name[j]) for i, j in zip(self.first.tolist(), self.second.tolist())]

    @property
    def follower_count(self) -> int:
        """F, see `Followers`."""
        return 0 if self.followers is None else len(self.followers.parents)

    def list_moving_joints(self, body: int) -> list[int]:
        """List the joints of the arm that move a body, itself one of the arm's or a follower."""
        n = self.chain.n
        followers = self.followers
        if followers is None or body <= n:
            return list(range(body))
        first, *above = followers.list_above(body, n)
        return sorted({*range(first), *(followers.joints[one - n - 1] for one in above)})

    @cached_property
    def pair_sizes(self) -> tuple[Tensor, Tensor, Tensor]:
        """(P, 1) of every checked pair: both segments' squared lengths [m2], and the sum of their
        radii [m].
        """
        length = self.length_squared
        radii = self.radius[self.first] + self.radius[self.second]
        return length[self.first], length[self.second], radii

    def select_model(self, gripper: Tensor | None) -> "CollisionModel":
        """Return `at_opening` if the gripper's opening is known and the model has it, else this."""
        return self if gripper is None or self.at_opening is None else self.at_opening

    def to(self, device: torch.device | str) -> "CollisionModel":
        """Return the model on another device."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {key: value.to(device) for key, value in own.items() if isinstance(value, Tensor)}
        points = tuple((body, local.to(device)) for body, local in self.points)
        parts = {
            name: part and part.to(device)
            for name in ("fingers", "followers", "at_opening")
            for part in (getattr(self, name),)
        }
        return replace(self, chain=self.chain.to(device), points=points, **parts, **tensors)
