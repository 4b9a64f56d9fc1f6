"""Contact points of an arm with obstacles, the ground and itself."""

import torch
from torch import Tensor

from envs.collision.capsules import CollisionModel
from envs.collision.geometry import dot, segment_gap
from envs.collision.obstacles import Obstacles
from envs.collision.queries import compute_body_frames, gather_pairs, place_segments
from envs.collision.surroundings import measure_surroundings


def find_contact_points(
    model: CollisionModel,
    q: Tensor,
    obstacles: Obstacles | None = None,
    ground: float | None = None,
    gripper: Tensor | None = None,
) -> Tensor:
    """Find the middle (k, 3) of every overlap of one arm with its surroundings or itself [m].

    In the base frame, halfway between the two surfaces; on the ground, the foot of that line.
    Arguments as for `proximity.link_clearance`, B = 1.
    """
    model = model.select_model(gripper)
    frames = compute_body_frames(model, q, gripper)
    p, d = place_segments(model, frames)
    # (K, M, 1), (3, K, M, 1) twice
    distance, u, x = measure_surroundings(model, frames, p, d, obstacles, ground)
    middle = x - u * (model.radius[:, None] + 0.5 * distance)
    if ground is not None:  # whose points may be corners of fingers, which have no radius
        middle[:, :, 1] = x[:, :, 1]
        middle[2, :, 1] = ground
    found = [middle[:, distance < 0]]
    if len(model.first):
        (p1, d1, p2, d2) = gather_pairs(model, p, d)
        (dd, ee, radii) = model.pair_sizes
        gap, s = segment_gap(p1, d1, p2, d2, dd, ee)
        length = dot(gap, gap).sqrt()
        from_first = model.radius[model.first] + 0.5 * (length - radii)
        middle = torch.addcmul(p1, d1, s) - gap / length.clamp(min=1e-9) * from_first
        found.append(middle[:, length < radii])
    return torch.cat(found, 1).T
