"""Choice of the pairs of links that need a check, by sampling as in MoveIt's Setup Assistant.

A pair is left out, in this order, because its links are

- neighbours: no more than one joint between them, where they always touch or nearly so;
- found never to come close by their meshes, when the file of capsules was written
    (`apart.find_separated_pairs`);
- touching at home: home is a good pose, so the overlap is one of the capsules, which are larger
    than the arm;
- never close: the capsules come no closer than a margin over all joint positions.

Of the capsules on two links that are checked, those pairs are held against each other that are the
closest of all in any sample in which the arm is near to itself. Two that are near in every position
and touch in none are not: they would hide what does come near, and a guard would brake for them
wherever the arm is.

The samples come from a fixed seed, so a robot has the same pairs everywhere. See
docs/explanation/collision-capsules.md.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from envs.collision.capsules import CollisionModel
from envs.collision.geometry import segment_distance
from envs.collision.queries import compute_body_frames, pair_distances, place_segments
from envs.kinematics import link_frames
from td3_robot.vec_env import draw_normal, draw_uniform

SAMPLES = 20_000
# spread of the searches around the closest sample, in parts of each joint's range
ROUNDS = (0.3, 0.1, 0.03)
ROUND_SAMPLES = 500
PAIRS_AT_A_TIME = 8  # whose samples stay in the cache
MARGIN = 0.01  # [m] what never comes closer is never checked
# [m] a pair of capsules that is nowhere the closest while any is this close is left to the others
NEAR = 0.05
TOUCH = "touch at home"
LEVEL = 1e-3  # [m] a capsule whose height varies by less is lifted by no joint


def choose_pairs(model: CollisionModel, qlim: np.ndarray, home: np.ndarray) -> CollisionModel:
    """Fill in `first`, `second`, `over_ground` and `allowed`.

    Args:
        model: on the CPU, with all its capsules.
        qlim: (2, n) position limits [rad or m].
        home: (n,) a pose known to be free of collisions [rad or m]; fingers are open in it.
    """
    if model.fingers is not None:  # their driver is one more joint here
        stroke = model.fingers.shut, model.fingers.opened
        qlim = np.c_[qlim, np.sort(stroke)]
        home = np.append(home, stroke[1])
    lower, upper = torch.tensor(qlim, dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    q = lower + (upper - lower) * draw_uniform(generator, SAMPLES, len(lower))
    bodies = torch.tensor([model.link_bodies[link] for link in model.capsule_links])
    i, j = torch.triu_indices(len(bodies), len(bodies), 1)
    model = replace(model, first=i, second=j)

    neighbours = _are_neighbours(model)[bodies[i], bodies[j]]
    allowed = {pair: "neighbours" for pair in _list_links(model, neighbours) if pair[0] != pair[1]}
    allowed |= {
        pair: why for a, b, why in model.allowed for pair in ((a, b), (b, a)) if pair in model.pairs
    }
    model = _keep_pairs(model, ~neighbours & ~_match_links(model, allowed))

    at_home = _measure_samples(model, torch.tensor(home[None], dtype=torch.float32))[0]
    allowed |= dict.fromkeys(_list_links(model, at_home <= 0), TOUCH)
    model = _keep_pairs(model, ~_match_links(model, allowed))

    sampled = _measure_samples(model, q)
    least, closest = _search_least(model, q, sampled, lower, upper, generator)
    close = set(_list_links(model, least <= MARGIN))
    allowed |= {pair: "never close" for pair in model.pairs if pair not in close}
    side_by_side = (least > 0) & (sampled.amax(0) < NEAR)
    kept = _match_links(model, close) & ~side_by_side
    model = _keep_pairs(model, kept)
    if len(model.first):
        measured = torch.cat((sampled[:, kept], _measure_samples(model, closest)))
        model = _keep_pairs(model, _find_decisive(measured))
    return replace(
        model,
        over_ground=_find_lifted(model, q),
        allowed=tuple((*pair, why) for pair, why in allowed.items()),
    )


def _are_neighbours(model: CollisionModel) -> Tensor:
    """Find the pairs of bodies (N, N) with no more than one joint between them."""
    n = model.chain.n
    number = torch.arange(n + 1 + model.follower_count)
    near = (number[:, None] - number).abs() <= 1
    if model.followers is not None:
        near[n + 1 :] = near[:, n + 1 :] = False
        for body, parent in enumerate(model.followers.parents, n + 1):
            for first, second in ((body, body), (body, parent), (parent, body)):
                near[first, second] = True
    return near


def _measure_samples(model: CollisionModel, q: Tensor) -> Tensor:
    """Measure `pair_distances` (B, P) at q (B, n), or (B, n + 1) if the model has fingers."""
    n = model.chain.n
    arm = q[:, :n]
    frames = link_frames(model.chain, arm)  # at all q together: faster than at a few at a time
    return pair_distances(model, arm, q[:, n] if q.shape[1] > n else None, frames)


def _compute_sample_frames(model: CollisionModel, q: Tensor) -> list[Tensor]:
    """Compute the frames of the bodies, (3, 4, B) each, at q as of `_measure_samples`."""
    n = model.chain.n
    return compute_body_frames(model, q[:, :n], q[:, n] if q.shape[1] > n else None)


def _list_links(model: CollisionModel, chosen: Tensor) -> list[tuple[str, str]]:
    """List the links of some of the pairs."""
    return [pair for pair, wanted in zip(model.pairs, chosen.tolist()) if wanted]


def _match_links(model: CollisionModel, links: Collection[tuple[str, str]]) -> Tensor:
    """Find the pairs of capsules (P,) that are on one of these pairs of links."""
    return torch.tensor([pair in links for pair in model.pairs], dtype=torch.bool)


def _keep_pairs(model: CollisionModel, chosen: Tensor) -> CollisionModel:
    return replace(model, first=model.first[chosen], second=model.second[chosen])


def _find_decisive(distances: Tensor) -> Tensor:
    """Find the pairs (P,) closest in any sample with the arm within `NEAR` of itself.

    Args:
        distances: (B, P) of all pairs in the samples [m].
    """
    least, pair = distances.min(1)
    decisive = torch.zeros(distances.shape[1], dtype=torch.bool)
    return decisive.index_fill(0, pair[least < NEAR], True)


def _search_least(
    model: CollisionModel,
    q: Tensor,
    sampled: Tensor,
    lower: Tensor,
    upper: Tensor,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Search the least distance (P,) of every pair [m], and its place (P, n).

    The search begins with the samples q, whose distances are `sampled` (B, P), and goes on around
    the closest of them, for some pairs at a time.
    """
    least, where = sampled.min(0)
    closest = q[where]  # (P, n)
    for spread in ROUNDS:
        apart = (least > MARGIN).nonzero()[:, 0]
        if not len(apart):  # which splits into one empty part
            break
        for pairs in apart.split(PAIRS_AT_A_TIME):
            noise = torch.stack([draw_normal(generator, ROUND_SAMPLES, len(lower)) for _ in pairs])
            around = torch.clamp(
                closest[pairs, None] + noise * spread * (upper - lower), lower, upper
            )
            found, row = _measure_each(model, pairs, around).min(1)
            better = found < least[pairs]
            least[pairs[better]] = found[better]
            closest[pairs[better]] = around[better, row[better]]
    return least, closest


def _measure_each(model: CollisionModel, pairs: Tensor, q: Tensor) -> Tensor:
    """Measure the distance (N, B) of each of N pairs at B joint positions of its own (N, B, n)."""
    segments = place_segments(model, _compute_sample_frames(model, q.flatten(0, 1)))
    p, d = (x.unflatten(2, q.shape[:2]) for x in segments)  # (3, K, N, B)
    own = torch.arange(len(pairs))
    first = model.first[pairs]
    second = model.second[pairs]
    dd, ee, radii = (size[pairs] for size in model.pair_sizes)
    distance = segment_distance(
        p[:, first, own], d[:, first, own], p[:, second, own], d[:, second, own], dd, ee
    )
    return distance - radii


def _find_lifted(model: CollisionModel, q: Tensor) -> Tensor:
    """Find the capsules that some joint lifts or lowers, but not those that corners replace."""
    fingers = model.fingers
    p, d = place_segments(model, _compute_sample_frames(model, q))
    low = p[2] + d[2].clamp(max=0)  # (K, B)
    lifted = low.amax(1) - low.amin(1) > LEVEL
    if fingers is not None and fingers.corners:
        lifted &= torch.tensor(
            [link != model.capsule_links[fingers.bearer] for link in model.capsule_links]
        )
    return lifted.nonzero()[:, 0]
