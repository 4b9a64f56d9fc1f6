"""Random obstacle scenes that are feasible: obstacles are put in the way of the arm, but never in a
known detour.

A detour in joint space is drawn first, start - via - solution in two straight legs, and held to be
free of the ground and the arm itself. Obstacles then stand where they are in the way of going
straight: around the line from the TCP's start to its goal, and around the arm halfway. One that
comes too near to the arm anywhere on the detour is left out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from envs import kinematics
from envs.collision import Obstacles
from envs.collision.geometry import dot
from envs.collision.obstacles import FAR, move_components_first
from envs.collision.queries import CACHE_ROWS, compute_segments, obstacle_distances
from envs.kinematics.rotations import build_rotations
from envs.world import World

SPHERES, BOXES, WALLS = 3, 2, 1  # slots
NUMBERS = (
    1.0,
    1.0,
    2.0,
    4.0,
    8.0,
)  # relative chance of 1, 2, ... obstacles; where there is room for fewer, fewer
PROPOSALS = 8  # places that are tried for every slot
SPHERE_RADIUS = (0.05, 0.12)  # [m]
BOX_HALF = (0.04, 0.12)  # half of each side [m]
SLABS = 0.85  # share of boxes that are slabs across the way; the others are lumps at any angle
SLAB_HALF = (0.12, 0.28)  # half of a slab's long sides [m]
SLAB_THICKNESS = (0.03, 0.05)  # half of its short one [m]
SLANT = 0.3  # a slab is across the way within this [rad]
WALL_GAP = (0.03, 0.15)  # from the line between start and goal to a wall [m]
OVERHEAD = 0.25  # share of walls that are ceilings; the others are upright
AT_THE_HAND = (
    0.65  # share of spheres and boxes that are in the way of the hand; the others are in the arm's
)
IN_THE_WAY = -0.02  # the straight line from start to goal comes nearer than this to an obstacle [m]
COARSE, POINTS = (
    4,
    14,
)  # configurations on a leg of a detour: for choosing obstacles, and for checking them


@dataclass(frozen=True)
class Detour:
    """Ways of B arms in joint space, in two straight legs.

    Attributes:
        start, via, solution: (B, n) [rad or m].
    """

    start: Tensor
    via: Tensor
    solution: Tensor

    def __getitem__(self, rows: Tensor) -> "Detour":
        """Those in some rows."""
        return Detour(*(value[rows] for value in vars(self).values()))

    def sample_points(self, count: int = POINTS) -> Tensor:
        """(2 count + 1, B, n) configurations, evenly spread over each leg."""
        share = torch.linspace(0, 1, count + 1, device=self.via.device)[:, None, None]
        return torch.cat(
            (
                torch.lerp(self.start, self.via, share),
                torch.lerp(self.via, self.solution, share[1:]),
            )
        )

    def compute_duration(self, world: World) -> Tensor:
        """(B,) duration with every joint at full speed [s]."""
        legs = (
            torch.stack((self.via - self.start, self.solution - self.via)).abs() / world.model.qdlim
        )
        return legs.amax(2).sum(0)


def sample_uniform(
    bounds: tuple[float, float], *shape: int, like: Tensor, generator: torch.Generator
) -> Tensor:
    """Uniform numbers on the device of `like`."""
    lower, upper = bounds
    return lower + (upper - lower) * torch.rand(*shape, device=like.device, generator=generator)


def draw_obstacles(
    world: World,
    detour: Detour,
    margin: float,
    path_margin: float,
    spread: float,
    generator: torch.Generator,
) -> tuple[Detour, Obstacles]:
    """1 to 5 obstacles in the way, for those detours for which some are found.

    Args:
        margin: from the arm at start and solution, more than this [m].
        path_margin: from the arm on the way, more than this [m].
        spread: standard deviation of an obstacle's place around what it is to be in the way of,
            each axis [m].

    Returns:
        The detours, and the obstacles of each, spare slots parked at `FAR`.
    """
    proposed, line = propose(world, detour, spread, generator), _sample_line(world, detour)
    chosen, fits = _choose(proposed, _is_roughly_clear(world, detour, proposed, path_margin), line)
    blocks = compute_point_distances(line, chosen).amin(0).T < IN_THE_WAY
    rows = (fits & blocks).any(1)
    detour, chosen, fits, blocks = detour[rows], chosen.select_rows(rows), fits[rows], blocks[rows]

    ends = torch.stack((detour.start, detour.solution))
    fits &= (_compute_clearances(world, ends, chosen) > margin) & (
        _compute_clearances(world, detour.sample_points(), chosen) > path_margin
    )
    blocks &= fits
    here = {"device": fits.device, "generator": generator}
    wanted = 1 + torch.multinomial(
        torch.tensor(NUMBERS, device=fits.device).expand(len(fits), -1), 1, generator=generator
    )
    lot = (
        torch.rand(fits.shape, **here) + 2.0 * (~fits) - 1.0 * (blocks & (blocks.cumsum(1) == 1))
    )  # one that blocks
    stays = fits & (lot.argsort(1).argsort(1) < wanted)
    spheres, walls, boxes = stays.split((SPHERES, WALLS, BOXES), 1)
    rows = blocks.any(1)
    return detour[rows], park(chosen, spheres, boxes, walls).select_rows(rows)


def _sample_line(world: World, detour: Detour) -> Tensor:
    """(3, P, B) points on the straight line from the TCP's start to its goal."""
    first, last = (
        kinematics.fkine(world.model.chain, q)[:, :3, 3].T[:, None]
        for q in (detour.start, detour.solution)
    )
    return torch.lerp(first, last, torch.linspace(0, 1, POINTS, device=first.device)[:, None])


def _is_roughly_clear(
    world: World, detour: Detour, proposed: Obstacles, path_margin: float
) -> Tensor:
    """(B, M) bool: whether a detour avoids the proposals, judged by the middle of each capsule."""
    radius = world.capsules.radius[:, None]  # (K, 1, 1)
    fits = torch.ones((), dtype=torch.bool, device=radius.device)
    for q in detour.sample_points(COARSE).unbind(0):
        p, d = compute_segments(world.capsules, q)
        fits = fits & (
            (compute_point_distances(p + d / 2, proposed) - radius).amin(0).T > path_margin
        )
    return fits


def _choose(proposed: Obstacles, fits: Tensor, line: Tensor) -> tuple[Obstacles, Tensor]:
    """One of the proposals for each slot, and whether it fits (B, M): for the first slot of each
    kind the one that is most in the way of those that fit, for the others any.
    """
    score = -compute_point_distances(line, proposed).amin(0).T
    chosen, there = [], []
    counts = [PROPOSALS * slots for slots in (SPHERES, WALLS, BOXES)]
    spheres, boxes, walls = proposed.kinds
    kinds = (spheres, walls, boxes)
    for value, fit, way in zip(kinds, fits.split(counts, 1), score.split(counts, 1)):
        fit, way = fit.unflatten(1, (-1, PROPOSALS)), way.unflatten(1, (-1, PROPOSALS))
        way = torch.cat((way[:, :1], torch.zeros_like(way[:, 1:])), 1)
        best = torch.where(fit, way, -torch.inf).argmax(2)[:, :, None]
        chosen.append(
            value.unflatten(1, fit.shape[1:]).take_along_dim(best[:, :, :, None], 2)[:, :, 0]
        )
        there.append(fit.any(2))
    return Obstacles(chosen[0], chosen[2], chosen[1]), torch.cat(there, 1)


def compute_point_distances(points: Tensor, obstacles: Obstacles) -> Tensor:
    """Signed distances of points (3, N, B) to every obstacle, in the order of `obstacle_distances`,
    (N, M, B) [m].
    """
    sphere, box, wall = map(move_components_first, obstacles.kinds)
    x = points[:, :, None]
    r = x - sphere[:3]
    axes, offset = build_rotations(box[6:]).unbind(1), x - box[:3]
    beyond = torch.stack([dot(axis, offset) for axis in axes]).abs() - box[3:6]
    outside = beyond.clamp(min=0)
    inside = torch.maximum(torch.maximum(beyond[0], beyond[1]), beyond[2]).clamp(max=0)
    found = (
        dot(r, r).sqrt() - sphere[3],
        dot(wall[:3], x) - wall[3],
        dot(outside, outside).sqrt() + inside,
    )
    return torch.cat(found, 1)


def propose(world: World, detour: Detour, spread: float, generator: torch.Generator) -> Obstacles:
    """Obstacles that are in the way of going straight, `PROPOSALS` for every slot."""
    start, solution = detour.start, detour.solution
    B, here = len(start), {"like": start, "generator": generator}
    first, last = (kinematics.fkine(world.model.chain, q)[:, :3, 3] for q in (start, solution))
    p, d = compute_segments(world.capsules, (start + solution) / 2)
    middles = (p + d / 2).permute(2, 1, 0)  # (B, K, 3)

    def places(count: int) -> Tensor:
        """(B, count, 3)."""
        share = sample_uniform((0.1, 0.9), B, count, 1, **here)
        at_hand = torch.lerp(first[:, None], last[:, None], share)
        chosen = torch.randint(
            middles.shape[1], (B, count, 1), device=start.device, generator=generator
        )
        at_arm = middles.gather(1, chosen.expand(-1, -1, 3))
        offset = spread * torch.randn(B, count, 3, device=start.device, generator=generator)
        return (
            torch.where(sample_uniform((0, 1), B, count, 1, **here) < AT_THE_HAND, at_hand, at_arm)
            + offset
        )

    S, N, W = (PROPOSALS * slots for slots in (SPHERES, BOXES, WALLS))
    spheres = torch.cat((places(S), sample_uniform(SPHERE_RADIUS, B, S, 1, **here)), 2)
    boxes = torch.cat((places(N), _sample_boxes(last - first, N, generator)), 2)
    return Obstacles(spheres, boxes, _sample_walls(first, last, W, generator))


def _sample_boxes(motion: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(B, count, 7) sides and turn of boxes: some lumps at any angle, some slabs across a motion
    (B, 3) [m], which are upright or level after the way it goes.
    """
    shape, here = (len(motion), count), {"like": motion, "generator": generator}
    slab, motion = sample_uniform((0, 1), *shape, **here) < SLABS, motion[:, None]
    level = motion[:, :, 2].abs() > torch.linalg.vector_norm(motion[:, :, :2], dim=2)
    heading = torch.atan2(motion[:, :, 1], motion[:, :, 0]) + sample_uniform(
        (-SLANT, SLANT), *shape, **here
    )
    yaw = torch.where(
        slab & ~level, heading, sample_uniform((0, torch.pi), *shape, **here)
    ).remainder(torch.pi)
    lump, thickness = (
        sample_uniform(BOX_HALF, *shape, 3, **here),
        sample_uniform(SLAB_THICKNESS, *shape, **here),
    )
    thin = torch.stack((slab & ~level, torch.zeros_like(slab), slab & level), 2)
    wide = sample_uniform(SLAB_HALF, *shape, 3, **here)
    half = torch.where(thin, thickness[:, :, None], torch.where(slab[:, :, None], wide, lump))
    none = torch.zeros_like(yaw)
    return torch.cat((half, torch.stack(((yaw / 2).cos(), none, none, (yaw / 2).sin()), 2)), 2)


def _sample_walls(first: Tensor, last: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(B, count, 4): upright at any angle, or overhead, so far from the line between two points (B,
    3).
    """
    shape, here = (len(first), count, 1), {"like": first, "generator": generator}
    angle, overhead = (
        sample_uniform((-torch.pi, torch.pi), *shape, **here),
        sample_uniform((0, 1), *shape, **here) < OVERHEAD,
    )
    upright = torch.cat((angle.cos(), angle.sin(), torch.zeros_like(angle)), 2)
    normal = torch.where(overhead, first.new_tensor([0.0, 0.0, -1.0]), upright)
    ends = torch.stack([(normal * end[:, None]).sum(2, keepdim=True) for end in (first, last)])
    return torch.cat((normal, ends.amin(0) - sample_uniform(WALL_GAP, *shape, **here)), 2)


def _compute_clearances(world: World, q: Tensor, obstacles: Obstacles) -> Tensor:
    """(B, M) the least clearance between the arm and each obstacle at q (P, B, n), as
    `obstacle_distances` orders.
    """
    least = []
    for some in q.split(max(1, CACHE_ROWS // max(1, q.shape[1]))):
        everywhere = Obstacles(
            *(value.repeat(len(some), 1, 1) for value in vars(obstacles).values())
        )
        p, d = compute_segments(world.capsules, some.flatten(0, 1))
        found = obstacle_distances(world.capsules, p, d, everywhere).amin(0)  # (M, P' B)
        least.append(found.unflatten(1, (len(some), -1)).amin(1).T)
    return torch.stack(least).amin(0)


def park(obstacles: Obstacles, spheres: Tensor, boxes: Tensor, walls: Tensor) -> Obstacles:
    """The obstacles that are to stay, (B, count) bool for each kind, and the others where nothing
    reaches.
    """

    def centre(value, stays):
        return torch.where(stays[:, :, None], value[:, :, :3], FAR)

    balls, blocks, planes = obstacles.kinds
    offset = torch.where(walls[:, :, None], planes[:, :, 3:], -FAR)
    return Obstacles(
        torch.cat((centre(balls, spheres), balls[:, :, 3:]), 2),
        torch.cat((centre(blocks, boxes), blocks[:, :, 3:]), 2),
        torch.cat((planes[:, :, :3], offset), 2),
    )


def is_present(obstacles: Obstacles) -> tuple[Tensor, Tensor, Tensor]:
    """Which spheres, boxes and walls are not parked, (B, count) bool each."""
    spheres, boxes, walls = obstacles.kinds
    return spheres[:, :, 0] < FAR / 2, boxes[:, :, 0] < FAR / 2, walls[:, :, 3] > -FAR / 2
