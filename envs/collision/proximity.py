"""Distance of each link of an arm to the nearest obstacle, and its gradient by the joints."""

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.collision.capsules import CollisionModel, Followers
from envs.collision.geometry import dot, segment_gap
from envs.collision.obstacles import Obstacles
from envs.collision.queries import compute_body_frames, gather_pairs, place_segments
from envs.collision.surroundings import MOST, arrange_velocities, measure_surroundings


@dataclass(frozen=True)
class Nearest:
    """Signed distances of B arms and their slopes: a row for each link of the model, and a last one
    for the arm itself.

    Attributes:
        distance: (B, L + 1) of the link to the nearest obstacle or the ground, at the end the least
            of all checked pairs; at most `MOST` [m].
        gradient: (B, L + 1, n) of that by the joint positions, 0 where it is `MOST` [m/rad or m/m].
        drift: (B, L + 1) its rate of change by the obstacles' motion alone [m/s]; None where no
            velocities are known.
    """

    distance: Tensor
    gradient: Tensor
    drift: Tensor | None = None


def link_clearance(
    model: CollisionModel,
    q: Tensor,
    obstacles: Obstacles | None = None,
    ground: float | None = None,
    gripper: Tensor | None = None,
) -> Tensor:
    """Compute the signed distance of every link to the nearest obstacle, or to the ground.

    Args:
        q: (B, n) joint positions [rad or m].
        obstacles: of the same B environments, or of one for all.
        ground: height of a horizontal plane in the base frame [m]; links that stand on it are left
            out, see `ground_distance`.
        gripper: (B,) driver coordinate, see `queries.clearance` [rad or m].

    Returns:
        (B, L) in the order of `model.links`, at most `MOST` [m].
    """
    model = model.select_model(gripper)
    frames = compute_body_frames(model, q, gripper)
    distances, _, _ = measure_surroundings(
        model, frames, *place_segments(model, frames), obstacles, ground
    )
    return distances[model.link_capsules].flatten(1, 2).amin(1).T


def compute_nearest(
    model: CollisionModel,
    q: Tensor,
    obstacles: Obstacles | None = None,
    ground: float | None = None,
    gripper: Tensor | None = None,
    frames: list[Tensor] | None = None,
) -> Nearest:
    """Compute `link_clearance` and the arm's distance to itself, with their gradients.

    A unit vector u leads a point x of the arm away from what it is near to. Per speed of a joint
    that turns about z_j through o_j, x moves along u at

        u . (z_j x (x - o_j)),

    and at u . z_j for one that slides (Siciliano et al., "Robotics", eq. 3.30). The first is the
    product of the joint's screw (o_j x z_j, z_j) with the line (u, x x u), so that both points of a
    pair, which lie on one line, need it once.

    An obstacle that moves at v changes the distance at -u . v.

    The gripper is taken to stand still. Arguments as for `link_clearance`; frames: see
    `queries.clearance`.
    """
    model = model.select_model(gripper)
    frames = compute_body_frames(model, q, gripper, frames)
    p, d = place_segments(model, frames)
    # (K, M, B), (3, K, M, B) twice
    distances, normals, points = measure_surroundings(model, frames, p, d, obstacles, ground)

    capsules = model.link_capsules
    count = distances.shape[1]
    of_link = distances[capsules].flatten(1, 2)  # (L, C M, B)
    distance, best = of_link.min(1)
    best = capsules.gather(1, best // count) * count + best % count  # row of (K M)
    u, x = (value.flatten(1, 2).gather(1, best.expand(3, -1, -1)) for value in (normals, points))
    joints = model.joints_below[capsules[:, 0], :, None].expand(-1, -1, len(q))  # (L, n, B)

    own, own_u, own_x, own_joints = _measure_itself(model, p, d)
    distance = torch.cat((distance, own))
    u = torch.cat((u, own_u), 1)
    x = torch.cat((x, own_x), 1)
    joints = torch.cat((joints, own_joints))
    line = torch.cat((u, _cross(x, u)))  # (6, L + 1, B)
    rates = (_compute_screws(model, frames)[:, None] * line[:, :, None]).sum(0)  # (L + 1, n, B)
    rates = rates * joints * (distance < MOST)[:, None]
    if model.followers is not None:
        rates = _pass_to_leaders(model.followers, rates, model.chain.n)
    drift = None
    if obstacles is not None and obstacles.are_moving:
        v = arrange_velocities(obstacles, ground, distances)
        towards = dot(u[:, :-1], v.gather(1, (best % count).expand(3, -1, -1)))
        drift = torch.cat((-towards, torch.zeros_like(own))) * (distance < MOST)
        drift = drift.T
    return Nearest(distance.T, rates.permute(2, 0, 1), drift)


def _pass_to_leaders(followers: Followers, rates: Tensor, n: int) -> Tensor:
    """Add the slopes by followers' own joints (L + 1, n + F, B) to those of the joints they follow.

    Returns:
        (L + 1, n, B).
    """
    found = rates[:, :n].clone()
    for index, (joint, multiplier) in enumerate(zip(followers.joints, followers.multipliers)):
        found[:, joint] += multiplier * rates[:, n + index]
    return found


def _measure_itself(
    model: CollisionModel, p: Tensor, d: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Measure the nearest checked pair: distance (1, B), direction and point (3, 1, B), and joints.

    The last (1, n + F, B) is 1 for joints that move the first capsule alone, -1 the second.
    """
    i = model.first
    j = model.second
    if not len(i):
        none = p.new_zeros(3, 1, p.shape[2])
        movers = model.joints_below.shape[1]
        return none[0] + MOST, none, none, p.new_zeros(1, movers, p.shape[2])
    (p1, d1, p2, d2) = gather_pairs(model, p, d)
    (dd, ee, radii) = model.pair_sizes
    gap, s = segment_gap(p1, d1, p2, d2, dd, ee)
    length = dot(gap, gap).sqrt()
    distance, pair = (length - radii).min(0, keepdim=True)  # (1, B)
    u, x = (
        value.gather(1, pair.expand(3, -1, -1))
        for value in (gap / length.clamp(min=1e-9), torch.addcmul(p1, d1, s))
    )
    joints = (model.joints_below[i] - model.joints_below[j])[pair[0]].T[None]
    return distance.clamp(max=MOST), u, x, joints


def _compute_screws(model: CollisionModel, frames: list[Tensor]) -> Tensor:
    """Compute the screws (6, n + F, B) of the joints and the followers, see `compute_nearest`."""
    n = model.chain.n
    B = frames[-1].shape[2]
    moved = [*frames[:n], *frames[n + 1 : n + 1 + model.follower_count]]
    z, o = torch.stack([frame[:, 2:].expand(3, 2, B) for frame in moved], 2).unbind(1)
    linear = _cross(o, z)
    angular = z
    slides = model.chain.slides[:, None]
    also = () if model.followers is None else model.followers.prismatic
    if also:
        slides = torch.cat((slides, torch.tensor(also, device=slides.device)[:, None]))
    if any(model.chain.prismatic) or any(also):
        linear = torch.where(slides, z, linear)
        angular = angular.masked_fill(slides, 0.0)
    return torch.cat((linear, angular))


def _cross(a: Tensor, b: Tensor) -> Tensor:
    """Compute the cross product over the first axis."""
    (ax, ay, az) = a
    (bx, by, bz) = b
    return torch.stack((ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx))
