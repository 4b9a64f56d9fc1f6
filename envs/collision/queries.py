"""Signed distances of a batch of configurations: negative where bodies overlap, and by how much.

Large batches on the CPU are worked through in pieces that stay in its cache. Nothing waits for the
device, so a simulator may ask at every step.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from envs.collision.capsules import CollisionModel
from envs.collision.followers import add_follower_frames
from envs.collision.geometry import segment_distance
from envs.collision.obstacles import Obstacles
from envs.collision.surroundings import obstacle_distances
from envs.kinematics import link_frames
from td3_robot.errors import ConfigError, not_none

# Pieces of a batch on the CPU: at most so many configurations at a time, and so many of them times
# the pairs that are checked.
CACHE_ROWS = 2048
CACHE_CELLS = 2**16  # with fewer, starting the operations takes longer than doing them


def link_poses(model: CollisionModel, q: Tensor) -> Tensor:
    """Compute the pose of every link.

    Args:
        q: (B, n) joint positions [rad or m].

    Returns:
        (B, L, 4, 4) T_bl in the base frame, in the order of `model.links`.
    """
    # (B, bodies, 3, 4)
    frames = torch.stack(_compute_arm_frames(model, q)).permute(3, 0, 1, 2)
    frames = torch.cat(
        (frames, frames.new_tensor([0.0, 0, 0, 1]).expand(*frames.shape[:2], 1, 4)), 2
    )
    return frames[:, list(model.link_bodies)] @ model.link_offsets


def compute_segments(model: CollisionModel, q: Tensor) -> tuple[Tensor, Tensor]:
    """Compute start and extent of every capsule's segment in the base frame, (3, K, B) each [m]."""
    return place_segments(model, _compute_arm_frames(model, q))


def _compute_arm_frames(
    model: CollisionModel, q: Tensor, frames: list[Tensor] | None = None
) -> list[Tensor]:
    """Compute the frames of the arm's bodies and of its followers, (3, 4, B) each."""
    frames = link_frames(model.chain, q) if frames is None else frames
    return frames if model.followers is None else add_follower_frames(model.followers, frames, q)


def compute_body_frames(
    model: CollisionModel,
    q: Tensor,
    gripper: Tensor | None = None,
    frames: list[Tensor] | None = None,
) -> list[Tensor]:
    """Compute `kinematics.link_frames`, and after them those of followers and fingers, if any.

    Args:
        q: (B, n) joint positions [rad or m].
        gripper: (B,) driver coordinate [rad or m].
        frames: `kinematics.link_frames(model.chain, q)`, where the caller has them.
    """
    frames = _compute_arm_frames(model, q, frames)
    fingers = model.fingers
    if fingers is None:
        return frames
    steps = fingers.poses.shape[3] - 1
    opening = (not_none(gripper) - fingers.shut) / (fingers.opened - fingers.shut)
    step = opening.clamp(0, 1).to(q.dtype) * steps
    lower = step.long().clamp(max=steps - 1)
    # (3, 4, G, B), in the TCP frame
    poses = torch.lerp(fingers.poses[..., lower], fingers.poses[..., lower + 1], step - lower)
    tcp = frames[model.chain.n]
    R = tcp[:, :3, None, None]
    finger_frames = R[:, 0] * poses[0] + R[:, 1] * poses[1] + R[:, 2] * poses[2]
    finger_frames[:, 3] += tcp[:, 3, None]
    return [*frames, *finger_frames.unbind(2)]


def place_segments(model: CollisionModel, frames: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Compute start and extent, (3, K, B) each, of all segments from the bodies' frames [m]."""
    points = torch.cat([local @ frames[body] for body, local in model.points], 1)  # (3, 2K, B)
    p = points[:, 0::2]
    return p, points[:, 1::2] - p


def pair_distances(
    model: CollisionModel,
    q: Tensor,
    gripper: Tensor | None = None,
    frames: list[Tensor] | None = None,
) -> Tensor:
    """Compute the signed distance of every checked pair of capsules.

    The pairs are `model.pairs`, or `model.at_opening.pairs` where that is there and a gripper's
    opening is given.

    Args:
        q: (B, n) joint positions [rad or m].
        gripper: (B,) driver coordinate, see `clearance` [rad or m].
        frames: `kinematics.link_frames(model.chain, q)`, where the caller has them.

    Returns:
        (B, P) [m]: less than zero by the depth to which the two capsules' segments come closer than
        their radii.
    """
    return _run_query(
        lambda model, frames, rows: _measure_pairs(model, *place_segments(model, frames)).T,
        model,
        q,
        gripper,
        frames,
    )


def self_distance(model: CollisionModel, q: Tensor, gripper: Tensor | None = None) -> Tensor:
    """Compute the least of `pair_distances` (B,) [m]; infinite if no pair needs a check.

    Arguments as for `clearance`.
    """
    return clearance(model, q, gripper=gripper)


def ground_distance(
    model: CollisionModel, q: Tensor, height: float = 0.0, gripper: Tensor | None = None
) -> Tensor:
    """Compute the signed distance (B,) of the arm above a horizontal plane [m].

    Links that no joint lifts or lowers, such as the base, are left out: `model.over_ground` is the
    rest. One that touches the plane at home counts.

    Args:
        q: (B, n) joint positions [rad or m].
        height: of the plane in the base frame [m].
        gripper: (B,) driver coordinate, see `clearance` [rad or m].
    """
    return _run_query(
        lambda model, frames, rows: _measure_ground(
            model, frames, *place_segments(model, frames), height
        ),
        model,
        q,
        gripper,
    )


def obstacle_distance(
    model: CollisionModel, q: Tensor, obstacles: Obstacles, gripper: Tensor | None = None
) -> Tensor:
    """Compute the least signed distance (B,) of any link, the base too, to any obstacle [m].

    It is infinite without obstacles.

    Arguments as for `clearance`.
    """
    return _run_query(
        lambda model, frames, rows: _measure_obstacles(
            model,
            *place_segments(model, frames),
            obstacles.select_rows(rows),
            q.new_full((frames[-1].shape[2],), torch.inf),
        ),
        model,
        q,
        gripper,
    )


def clearance(
    model: CollisionModel,
    q: Tensor,
    obstacles: Obstacles | None = None,
    ground: float | None = None,
    gripper: Tensor | None = None,
    frames: list[Tensor] | None = None,
    within: float = torch.inf,
) -> Tensor:
    """Compute the least distance (B,) of the arm to itself, the ground and obstacles [m].

    The least of `self_distance`, of `ground_distance` where `ground`, its height, is given, and of
    `obstacle_distance` where obstacles are, for the price of one forward kinematics.

    Args:
        q: (B, n) joint positions [rad or m].
        gripper: (B,) driver coordinate: the fingers are where it puts them, and what touches the
            ground are the corners of the gripper. None, or a gripper whose file does not tell its
            fingers apart: capsules around all that the fingers sweep [rad or m].
        frames: `kinematics.link_frames(model.chain, q)` of a caller that has them, which saves half
            of the time of a small batch; see `kinematics.pose_jacobian`.
        within: a greater distance matters no more: this is returned instead [m].
    """

    def query(model: CollisionModel, frames: list[Tensor], rows: slice) -> Tensor:
        p, d = place_segments(model, frames)
        least = _find_least(_measure_pairs(model, p, d)).clamp(max=within)
        if ground is not None:
            least = torch.minimum(least, _measure_ground(model, frames, p, d, ground))
        if obstacles is not None:
            least = _measure_obstacles(model, p, d, obstacles.select_rows(rows), least)
        return least

    return _run_query(query, model, q, gripper, frames)


def _run_query(
    query: Callable[[CollisionModel, list[Tensor], slice], Tensor],
    model: CollisionModel,
    q: Tensor,
    gripper: Tensor | None = None,
    frames: list[Tensor] | None = None,
) -> Tensor:
    """Run a query on a few arms at a time, on an accelerator on all, and join the results."""
    if q.ndim != 2 or q.shape[1] != model.chain.n:
        raise ConfigError(f"q must have shape (B, {model.chain.n}), got {tuple(q.shape)}")
    if gripper is not None and gripper.shape != q.shape[:1]:
        raise ConfigError(f"gripper must have shape ({len(q)},), got {tuple(gripper.shape)}")
    model = model.select_model(gripper)
    found = []
    for rows in _split_rows(model, q):
        at = None if gripper is None else gripper[rows]
        known = frames and [frame[..., rows] for frame in frames]
        found.append(query(model, compute_body_frames(model, q[rows], at, known), rows))
    return found[0] if len(found) == 1 else torch.cat(found)


def _split_rows(model: CollisionModel, q: Tensor) -> list[slice]:
    """Split the rows of q into pieces that stay in the cache."""
    rows = max(len(q), 1)
    if q.device.type == "cpu":
        rows = min(rows, CACHE_ROWS, max(CACHE_CELLS // max(len(model.first), 1), 256))
    return [slice(row, row + rows) for row in range(0, len(q), rows)] or [slice(0, 0)]


def _measure_pairs(model: CollisionModel, p: Tensor, d: Tensor) -> Tensor:
    """Measure the distances (P, B) of all checked pairs [m]."""
    dd, ee, radii = model.pair_sizes
    return segment_distance(*gather_pairs(model, p, d), dd, ee) - radii


def gather_pairs(
    model: CollisionModel, p: Tensor, d: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gather start and extent of the first segments of all pairs, then the second, (3, P, B) [m].

    Args:
        p, d: (3, K, B) from `place_segments`.
    """
    both = torch.cat((p, d))  # gathering once is faster than twice
    first = both.index_select(1, model.first)
    second = both.index_select(1, model.second)
    return first[:3], first[3:], second[:3], second[3:]


def _measure_ground(
    model: CollisionModel, frames: list[Tensor], p: Tensor, d: Tensor, height: float
) -> Tensor:
    """Measure the least height (B,) over the ground [m]."""
    lower = p[2] + d[2].clamp(max=0)  # (K, B)
    heights = [(lower - model.radius)[model.over_ground]]
    if model.fingers is not None:
        heights += [local @ frames[body][2] for body, local in model.fingers.corners]  # (V, B)
    return _find_least(torch.cat(heights)) - height


def _measure_obstacles(
    model: CollisionModel, p: Tensor, d: Tensor, obstacles: Obstacles, least: Tensor
) -> Tensor:
    """Return the lesser (B,) of `least` (B,) and the distances to obstacles."""
    without_boxes = replace(obstacles, boxes=None)
    for kinds in (without_boxes, Obstacles(boxes=obstacles.boxes)):
        distances = obstacle_distances(model, p, d, kinds, least)
        least = torch.minimum(least, _find_least(distances.flatten(0, 1)))
    return least


def _find_least(distances: Tensor) -> Tensor:
    """Return the least of (N, B) over N, infinite if N is 0."""
    return (
        distances.amin(0)
        if len(distances)
        else distances.new_full((distances.shape[1],), torch.inf)
    )
