"""Signed distances of the capsules of an arm to each obstacle and to the ground."""

from collections.abc import Iterator

import torch
from torch import Tensor

from envs.collision.capsules import CollisionModel, Fingers
from envs.collision.geometry import box_gap, dot, plane_gap, point_gap
from envs.collision.obstacles import Obstacles, move_components_first
from envs.kinematics.rotations import build_rotations

ROUNDING = 1e-5  # [m] of bounds
MOST = 10.0  # [m] what is farther away, or not there, counts as this far


def obstacle_distances(
    model: CollisionModel,
    p: Tensor,
    d: Tensor,
    obstacles: Obstacles,
    within: Tensor | float | None = None,
) -> Tensor:
    """Compute the signed distance of every capsule to every sphere, then wall, then box.

    Args:
        p, d: (3, K, B) from `queries.place_segments`.
        within: what is at this distance (B,) or farther matters no more [m]: a CPU bounds distances
            to boxes, which take the time, and computes those that may be less; others are at least
            this. None: all are computed.

    Returns:
        (K, M, B) [m].
    """
    radius = model.radius[:, None]
    found = [p.new_zeros(p.shape[1], 0, p.shape[2])]
    if obstacles.spheres is not None:
        sphere = move_components_first(obstacles.spheres)
        gap = point_gap(p[:, :, None], d[:, :, None], model.length_squared[:, None], sphere[:3])
        found.append(dot(gap, gap).sqrt() - sphere[3] - radius)
    if obstacles.walls is not None:
        wall = move_components_first(obstacles.walls)
        found.append(plane_gap(p[:, :, None], d[:, :, None], wall[:3], wall[3])[0] - radius)
    if obstacles.boxes is not None and within is not None and p.device.type == "cpu":
        found.append(_measure_near_boxes(model, p, d, obstacles.boxes, within))
    elif obstacles.boxes is not None:
        boxes = Obstacles(boxes=obstacles.boxes)
        found += (distance for distance, _, _ in measure_obstacles(model, p, d, boxes))
    return torch.cat(found, 1)


def _measure_near_boxes(
    model: CollisionModel, p: Tensor, d: Tensor, boxes: Tensor, within: Tensor | float
) -> Tensor:
    """Compute the distances to boxes (K, N, B) that are less than `within`, and bounds of others.

    The bound is that of a ball around the capsule.
    """
    box = move_components_first(boxes)
    R = build_rotations(box[6:])  # (3, 3, 1, N, B), columns are the box's axes
    middle = (R * (torch.add(p, d, alpha=0.5)[:, :, None] - box[:3])[:, None]).sum(0)
    beyond = middle.abs_().sub_(box[3:6])
    inside = beyond.amax(0).clamp_(max=0)
    outside = beyond.clamp_(min=0)
    ball = 0.5 * model.length_squared.sqrt() + model.radius + ROUNDING
    found = dot(outside, outside).sqrt_().add_(inside).sub_(ball[:, None])
    k, i, row = (found < within).nonzero(as_tuple=True)
    own = row if len(boxes) > 1 else 0 * row
    R, box = R[:, :, 0, i, own], box[:, 0, i, own]
    start, extent = (
        (R * value[:, None]).sum(0) for value in (p[:, k, row] - box[:3], d[:, k, row])
    )
    distance, _, _ = box_gap(start, extent, box[3:6])
    found[k, i, row] = distance - model.radius[k, 0]
    return found


def measure_obstacles(
    model: CollisionModel, p: Tensor, d: Tensor, obstacles: Obstacles
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Measure every capsule against the spheres, then the walls, then the boxes.

    Args:
        p, d: (3, K, B) from `queries.place_segments`.

    Yields:
        For each kind that there is the signed distance (K, M, B) [m], the unit vector along which
        it grows, and the nearest point of the capsule's segment, both (3, K, M, B), or with a 1
        where they are the same for all.
    """
    p = p[:, :, None]
    d = d[:, :, None]
    radius = model.radius[:, None]
    if obstacles.spheres is not None:
        sphere = move_components_first(obstacles.spheres)  # (4, 1, S, B)
        gap = point_gap(p, d, model.length_squared[:, None], sphere[:3])
        length = dot(gap, gap).sqrt()
        yield length - sphere[3] - radius, gap / length.clamp(min=1e-9), sphere[:3] + gap
    if obstacles.walls is not None:
        wall = move_components_first(obstacles.walls)
        distance, point = plane_gap(p, d, wall[:3], wall[3])
        yield distance - radius, wall[:3], point
    if obstacles.boxes is not None:
        box = move_components_first(obstacles.boxes)
        R = build_rotations(box[6:])  # (3, 3, 1, N, B), columns are the box's axes
        r = p - box[:3]
        start, extent = ((R * value[:, None]).sum(0) for value in (r, d))
        distance, normal, s = box_gap(start, extent, box[3:6])
        yield distance - radius, (R * normal).sum(1), torch.addcmul(p, d, s)


def measure_surroundings(
    model: CollisionModel,
    frames: list[Tensor],
    p: Tensor,
    d: Tensor,
    obstacles: Obstacles | None,
    ground: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Measure every capsule against nothing, each obstacle, and the ground if its height is given.

    The order is nothing, at `MOST`, the ground, and then that of `measure_obstacles`.

    Args:
        frames: from `queries.compute_body_frames`.
        p, d: (3, K, B) from `queries.place_segments`.

    Returns:
        Signed distance (K, M, B), at most `MOST` [m]; the unit vector along which it grows, and the
        nearest point of the capsule's segment, both (3, K, M, B).
    """
    K, B = p.shape[1:]
    none = p.new_zeros(3, K, 1, B)
    found = [(p.new_full((K, 1, B), MOST), none, none)]
    if ground is not None:
        found.append(_measure_ground(model, frames, p, d, ground))
    if obstacles is not None:
        found += measure_obstacles(model, p, d, obstacles)
    distances, normals, points = zip(*found)
    return (
        torch.cat([value.expand(K, -1, B) for value in distances], 1).clamp(max=MOST),
        torch.cat([value.expand(3, K, -1, B) for value in normals], 2),
        torch.cat([value.expand(3, K, -1, B) for value in points], 2),
    )


def arrange_velocities(obstacles: Obstacles, ground: float | None, like: Tensor) -> Tensor:
    """Return velocities (3, M, B) in the order of `measure_surroundings`, 0 of what stands [m/s].

    Args:
        like: its distances (K, M, B).
    """
    B = like.shape[2]

    def arrange(shapes: Tensor | None, velocities: Tensor | None) -> Tensor:
        count = 0 if shapes is None else shapes.shape[1]
        if velocities is None:
            return like.new_zeros(3, count, B)
        return velocities.permute(2, 1, 0).expand(-1, -1, B)

    return torch.cat(
        (
            like.new_zeros(3, 1 if ground is None else 2, B),
            arrange(obstacles.spheres, obstacles.sphere_velocities),
            arrange(obstacles.walls, None),
            arrange(obstacles.boxes, obstacles.box_velocities),
        ),
        1,
    )


def _measure_ground(
    model: CollisionModel, frames: list[Tensor], p: Tensor, d: Tensor, height: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Measure the capsules that are held against the ground, and corners of fingers."""
    up = p.new_zeros(3, 1, 1, 1)
    up[2] = 1.0
    distance, point = plane_gap(p[:, :, None], d[:, :, None], up, height)
    distance = distance - model.radius[:, None]
    lifted = torch.full_like(distance, MOST).index_copy(
        0, model.over_ground, distance[model.over_ground]
    )
    if model.fingers is not None:
        corner = _find_lowest_corner(model.fingers, frames)
        lifted[model.fingers.bearer] = corner[2:] - height
        point[:, model.fingers.bearer] = corner[:, None]
    return lifted, up, point


def _find_lowest_corner(fingers: Fingers, frames: list[Tensor]) -> Tensor:
    """Find the lowest corner (3, B) of a gripper [m]."""
    corners = torch.cat([local @ frames[body] for body, local in fingers.corners], 1)  # (3, V, B)
    return corners.gather(1, corners[2:].argmin(1, keepdim=True).expand(3, -1, -1))[:, 0]
