"""Random feasible obstacle scenes: obstacles block the straight motion, but not a known detour.

A detour in joint space, start - via - solution in two straight legs, is sampled first, free of
contact with the ground and the arm itself. Obstacles are then placed around the line from the TCP's
start to its goal, and around the arm halfway. Those too near to the arm on the detour are dropped.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from envs import kinematics
from envs.collision import Obstacles
from envs.collision.geometry import dot
from envs.collision.obstacles import FAR, move_components_first
from envs.collision.queries import CACHE_ROWS, compute_segments
from envs.collision.surroundings import obstacle_distances
from envs.kinematics.rotations import build_rotations
from envs.world import World
from td3_robot.vec_env import draw_normal, draw_uniform

KINDS = ("spheres", "boxes", "walls")  # in the order of `Obstacles.kinds`
# Slots of each kind of obstacle.
SPHERES = 3
BOXES = 2
WALLS = 1
# Relative probabilities of 1, 2, ... obstacles; fewer if there is no room for as many.
NUMBERS = (1.0, 1.0, 2.0, 4.0, 8.0)
PROPOSALS = 8  # positions that are tried for every slot
SPHERE_RADIUS = (0.05, 0.12)  # [m]
BOX_HALF = (0.04, 0.12)  # half of each side [m]
SLABS = 0.85  # share of boxes that are slabs across the motion; the others are at any angle
SLAB_HALF = (0.12, 0.28)  # half of a slab's long sides [m]
SLAB_THICKNESS = (0.03, 0.05)  # half of its short one [m]
SLANT = 0.3  # greatest deviation of a slab from across the motion [rad]
WALL_GAP = (0.03, 0.15)  # from the line between start and goal to a wall [m]
OVERHEAD = 0.25  # share of walls that are ceilings; the others are upright
AT_THE_HAND = 0.65  # share of spheres and boxes that block the hand; the others block the arm
IN_THE_WAY = -0.02  # distance of the straight line below which an obstacle blocks it [m]
COARSE = 4  # configurations on a leg of a detour for choosing obstacles
POINTS = 14  # configurations on a leg of a detour for checking them


@dataclass(frozen=True)
class Detour:
    """Paths of B arms of two straight legs in joint space.

    Attributes:
        start, via, solution: (B, n) [rad or m].
    """

    start: Tensor
    via: Tensor
    solution: Tensor

    def __getitem__(self, rows: Tensor) -> "Detour":
        """Return the paths of some rows."""
        return Detour(*(value[rows] for value in vars(self).values()))

    def sample_points(self, count: int = POINTS) -> Tensor:
        """Return configurations (2 count + 1, B, n), evenly spread over each leg."""
        share = torch.linspace(0, 1, count + 1, dtype=self.via.dtype, device=self.via.device)
        share = share[:, None, None]
        return torch.cat(
            (
                torch.lerp(self.start, self.via, share),
                torch.lerp(self.via, self.solution, share[1:]),
            )
        )

    def compute_duration(self, world: World) -> Tensor:
        """Compute the duration (B,) with every joint at full speed [s]."""
        legs = (
            torch.stack((self.via - self.start, self.solution - self.via)).abs() / world.model.qdlim
        )
        return legs.amax(2).sum(0)


def sample_uniform(
    bounds: tuple[float, float], *shape: int, like: Tensor, generator: torch.Generator
) -> Tensor:
    """Sample uniform numbers on the device of `like`."""
    lower, upper = bounds
    return lower + (upper - lower) * draw_uniform(generator, *shape)


def draw_obstacles(
    world: World,
    detour: Detour,
    margin: float,
    path_margin: float,
    spread: float,
    generator: torch.Generator,
) -> tuple[Detour, Obstacles]:
    """Sample 1 to 5 obstacles that block the straight motions of detours.

    Args:
        margin: least clearance of the arm at start and solution [m].
        path_margin: least clearance of the arm on the detour [m].
        spread: standard deviation of an obstacle's position around what it blocks, each axis [m].

    Returns:
        The detours for which there are obstacles, and these, with spare slots parked at `FAR`.
    """
    proposed = propose(world, detour, spread, generator)
    line = sample_line(world, detour)
    clear = _is_roughly_clear(world, detour, proposed, path_margin)
    best, fits = choose_proposals(proposed, clear, line)
    chosen = select_obstacles(proposed, best)
    blocks = compute_point_distances(line, chosen).amin(0).T < IN_THE_WAY
    rows = (fits & blocks).any(1)
    detour = detour[rows]
    chosen = chosen.select_rows(rows)
    fits = fits[rows]
    blocks = blocks[rows]

    ends = torch.stack((detour.start, detour.solution))
    fits &= _is_clear(world, ends, chosen, margin)
    fits &= _is_clear(world, detour.sample_points(), chosen, path_margin)
    blocks &= fits
    spheres, walls, boxes = draw_number(fits, blocks, generator)
    rows = blocks.any(1)
    return detour[rows], park(chosen, spheres, boxes, walls).select_rows(rows)


def draw_number(fits: Tensor, blocks: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Draw how many obstacles there are, and return which spheres, walls and boxes stay.

    Args:
        fits, blocks: (B, M) bool, whether each may stay, and is in the way.
    """
    shares = torch.tensor(NUMBERS, device=fits.device, dtype=torch.float32)
    wanted = 1 + torch.multinomial(shares.expand(len(fits), -1), 1, generator=generator)
    first = blocks & (blocks.cumsum(1) == 1)  # one that blocks always stays
    # the lowest lots stay: those that block first, those that do not fit last
    lot = draw_uniform(generator, *fits.shape) + 2.0 * (~fits) - 1.0 * first
    rank = lot.argsort(1).argsort(1)
    stays = fits & (rank < wanted)
    return stays.split((SPHERES, WALLS, BOXES), 1)


def sample_line(world: World, detour: Detour) -> Tensor:
    """Return points (3, P, B) on the straight line from the TCP's start to its goal."""
    first, last = (
        kinematics.fkine(world.model.chain, q)[:, :3, 3].T[:, None]
        for q in (detour.start, detour.solution)
    )
    share = torch.linspace(0, 1, POINTS, dtype=first.dtype, device=first.device)
    return torch.lerp(first, last, share[:, None])


def _is_roughly_clear(
    world: World, detour: Detour, proposed: Obstacles, path_margin: float
) -> Tensor:
    """Return whether detours avoid the proposals by the middles of the capsules, (B, M) bool."""
    radius = world.capsules.radius[:, None]  # (K, 1, 1)
    fits = torch.ones((), dtype=torch.bool, device=radius.device)
    for q in detour.sample_points(COARSE).unbind(0):
        p, d = compute_segments(world.capsules, q)
        fits = fits & (
            (compute_point_distances(p + d / 2, proposed) - radius).amin(0).T > path_margin
        )
    return fits


def choose_proposals(proposed: Obstacles, fits: Tensor, line: Tensor) -> tuple[Tensor, Tensor]:
    """Choose one of the proposals for each slot, and return which, and whether it fits, both
    (B, M) in the order of `obstacle_distances`.

    For the first slot of each kind it is the fitting one that blocks most, for the others any.
    """
    score = -compute_point_distances(line, proposed).amin(0).T
    chosen = []
    found = []
    counts = [PROPOSALS * slots for slots in (SPHERES, WALLS, BOXES)]
    for fit, block in zip(fits.split(counts, 1), score.split(counts, 1)):
        fit = fit.unflatten(1, (-1, PROPOSALS))
        block = block.unflatten(1, (-1, PROPOSALS))
        block = torch.cat((block[:, :1], torch.zeros_like(block[:, 1:])), 1)
        chosen.append(torch.where(fit, block, -torch.inf).argmax(2))
        found.append(fit.any(2))
    return torch.cat(chosen, 1), torch.cat(found, 1)


def select_obstacles(proposed: Obstacles, chosen: Tensor) -> Obstacles:
    """Return the obstacles of the proposals that `choose_proposals` chose."""
    spheres, walls, boxes = chosen.split((SPHERES, WALLS, BOXES), 1)
    kinds = zip(proposed.kinds, (spheres, boxes, walls))
    return Obstacles(*(select_slots(value, best) for value, best in kinds))


def select_slots(values: Tensor, chosen: Tensor) -> Tensor:
    """Return the chosen rows (B, slots, ...) of proposals' values (B, slots * PROPOSALS, ...)."""
    by_slot = values.unflatten(1, (-1, PROPOSALS))
    index = chosen.view(*chosen.shape, *[1] * (by_slot.ndim - 2))
    return by_slot.take_along_dim(index, 2)[:, :, 0]


def compute_point_distances(points: Tensor, obstacles: Obstacles) -> Tensor:
    """Compute signed distances (N, M, B) of points (3, N, B) to every obstacle, in the order of
    `obstacle_distances` [m].
    """
    sphere, box, wall = map(move_components_first, obstacles.kinds)
    x = points[:, :, None]
    r = x - sphere[:3]
    axes = build_rotations(box[6:]).unbind(1)
    offset = x - box[:3]
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
    """Propose obstacles that block the straight motion, `PROPOSALS` for every slot."""
    start = detour.start
    solution = detour.solution
    B = len(start)
    draws = {"like": start, "generator": generator}
    first, last = (kinematics.fkine(world.model.chain, q)[:, :3, 3] for q in (start, solution))
    p, d = compute_segments(world.capsules, (start + solution) / 2)
    middles = (p + d / 2).permute(2, 1, 0)  # (B, K, 3)

    def sample_places(count: int) -> Tensor:
        """Sample positions (B, count, 3)."""
        share = sample_uniform((0.1, 0.9), B, count, 1, **draws)
        at_hand = torch.lerp(first[:, None], last[:, None], share)
        chosen = torch.randint(
            middles.shape[1], (B, count, 1), device=start.device, generator=generator
        )
        at_arm = middles.gather(1, chosen.expand(-1, -1, 3))
        offset = spread * draw_normal(generator, B, count, 3)
        return (
            torch.where(sample_uniform((0, 1), B, count, 1, **draws) < AT_THE_HAND, at_hand, at_arm)
            + offset
        )

    S, N, W = (PROPOSALS * slots for slots in (SPHERES, BOXES, WALLS))
    spheres = torch.cat((sample_places(S), sample_uniform(SPHERE_RADIUS, B, S, 1, **draws)), 2)
    boxes = torch.cat((sample_places(N), _sample_boxes(last - first, N, generator)), 2)
    return Obstacles(spheres, boxes, _sample_walls(first, last, W, generator))


def _sample_boxes(motion: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Sample sides and turns (B, count, 7) of boxes: some at any angle, some slabs across a motion
    (B, 3) [m], upright or level depending on its direction.
    """
    shape = (len(motion), count)
    draws = {"like": motion, "generator": generator}
    slab = sample_uniform((0, 1), *shape, **draws) < SLABS
    motion = motion[:, None]
    level = motion[:, :, 2].abs() > torch.linalg.vector_norm(motion[:, :, :2], dim=2)
    heading = torch.atan2(motion[:, :, 1], motion[:, :, 0]) + sample_uniform(
        (-SLANT, SLANT), *shape, **draws
    )
    yaw = torch.where(
        slab & ~level, heading, sample_uniform((0, torch.pi), *shape, **draws)
    ).remainder(torch.pi)
    box_half = sample_uniform(BOX_HALF, *shape, 3, **draws)
    thickness = sample_uniform(SLAB_THICKNESS, *shape, **draws)
    is_short_side = torch.stack((slab & ~level, torch.zeros_like(slab), slab & level), 2)
    long_half = sample_uniform(SLAB_HALF, *shape, 3, **draws)
    slab_half = torch.where(is_short_side, thickness[:, :, None], long_half)
    half = torch.where(slab[:, :, None], slab_half, box_half)
    zero = torch.zeros_like(yaw)
    quaternion = torch.stack(((yaw / 2).cos(), zero, zero, (yaw / 2).sin()), 2)
    return torch.cat((half, quaternion), 2)


def _sample_walls(first: Tensor, last: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Sample walls (B, count, 4), upright at any angle or overhead, at distances of `WALL_GAP` from
    the line between two points (B, 3).
    """
    shape = (len(first), count, 1)
    draws = {"like": first, "generator": generator}
    angle = sample_uniform((-torch.pi, torch.pi), *shape, **draws)
    overhead = sample_uniform((0, 1), *shape, **draws) < OVERHEAD
    upright = torch.cat((angle.cos(), angle.sin(), torch.zeros_like(angle)), 2)
    normal = torch.where(overhead, first.new_tensor([0.0, 0.0, -1.0]), upright)
    ends = torch.stack([(normal * end[:, None]).sum(2, keepdim=True) for end in (first, last)])
    return torch.cat((normal, ends.amin(0) - sample_uniform(WALL_GAP, *shape, **draws)), 2)


def _is_clear(world: World, q: Tensor, obstacles: Obstacles, margin: float) -> Tensor:
    """Tell (B, M) if the arm at all q (P, B, n) is farther than `margin` [m] from each obstacle, in
    the order of `obstacle_distances`.
    """
    least = []
    for part in q.split(max(1, CACHE_ROWS // max(1, q.shape[1]))):  # (P', B, n)
        repeated = Obstacles(*(value.repeat(len(part), 1, 1) for value in obstacles.kinds))
        p, d = compute_segments(world.capsules, part.flatten(0, 1))
        distances = obstacle_distances(world.capsules, p, d, repeated, 1.1 * margin)
        least.append(distances.amin(0).unflatten(1, (len(part), -1)).amin(1).T)  # of (M, P' B)
    return torch.stack(least).amin(0) > margin


def park(obstacles: Obstacles, spheres: Tensor, boxes: Tensor, walls: Tensor) -> Obstacles:
    """Return the obstacles with those that do not stay, (B, count) bool each, out of reach."""

    def park_centre(value, stays):
        return torch.where(stays[:, :, None], value[:, :, :3], FAR)

    balls, blocks, planes = obstacles.kinds
    offset = torch.where(walls[:, :, None], planes[:, :, 3:], -FAR)
    return Obstacles(
        torch.cat((park_centre(balls, spheres), balls[:, :, 3:]), 2),
        torch.cat((park_centre(blocks, boxes), blocks[:, :, 3:]), 2),
        torch.cat((planes[:, :, :3], offset), 2),
    )


def is_present(obstacles: Obstacles) -> tuple[Tensor, Tensor, Tensor]:
    """Return which spheres, boxes and walls are not parked, (B, count) bool each."""
    spheres, boxes, walls = obstacles.kinds
    # a base that is taken to be turned turns where they are parked, too
    balls, blocks = (kind[:, :, :3].abs().amax(2) < FAR / 2 for kind in (spheres, boxes))
    return balls, blocks, walls[:, :, 3] > -FAR / 2
