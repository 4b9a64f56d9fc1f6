"""Random feasible scenes with obstacles that move: a known motion of the arm is free of them.

As in envs/planning/obstacle_scenes.py, a detour is sampled first and obstacles are placed around
what they block. Each then gets a stroke, a straight line on which it goes back and forth at
constant speed, and passes its place at a crossing time. Those that would touch an arm that moves
along the detour and waits at its end, or an arm that has not yet started, are dropped.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from envs.collision import Obstacles
from envs.collision.queries import compute_segments
from envs.collision.surroundings import obstacle_distances
from envs.planning import obstacle_scenes as scenes
from envs.planning.obstacle_scenes import Detour
from envs.world import World
from td3_robot.vec_env import draw_normal, draw_uniform

COARSE = 0.4  # time between looks when obstacles are chosen [s]
FINE = 0.05  # time between looks when they are checked [s]


@dataclass(frozen=True)
class Motion:
    """The motion of the obstacles of scenes, in numbers of the task.

    Attributes:
        speed: least and greatest [m/s].
        stroke: least and greatest length of a stroke [m].
        crossing: earliest and latest time at which an obstacle passes its place [s].
        pace: mean share of the fastest joint's speed limit in the known motion.
        wait: time for which obstacles keep clear of the start [s].
        duration: of an episode [s].
    """

    speed: tuple[float, float]
    stroke: tuple[float, float]
    crossing: tuple[float, float]
    pace: float
    wait: float
    duration: float


@dataclass(frozen=True)
class Strokes:
    """Straight lines on which obstacles go back and forth, in B scenes.

    Attributes:
        ends: (B, M, 2, 3) of each line [m].
        rates: (B, M) rounds, there and back, a second [1/s].
        phases: (B, M) share of a round that has been made at time 0.
    """

    ends: Tensor
    rates: Tensor
    phases: Tensor

    def locate(self, time: float | Tensor) -> tuple[Tensor, Tensor]:
        """Return the places (B, M, 3) [m] and velocities (B, M, 3) [m/s] at a time.

        Args:
            time: since the episode began, one or one for each scene (B, 1) [s].
        """
        part = (self.phases + self.rates * time) % 1.0
        share = 1.0 - (2.0 * part - 1.0).abs()
        way = 2.0 * torch.where(part < 0.5, self.rates, -self.rates)
        first, last = self.ends.unbind(2)
        return torch.lerp(first, last, share[:, :, None]), way[:, :, None] * (last - first)

    def select_rows(self, rows: Tensor) -> "Strokes":
        """Select the strokes of some scenes."""
        return Strokes(self.ends[rows], self.rates[rows], self.phases[rows])

    def select_slots(self, chosen: Tensor) -> "Strokes":
        """Select the strokes of chosen proposals, see `obstacle_scenes.select_slots`."""
        return Strokes(*(scenes.select_slots(value, chosen) for value in vars(self).values()))


def draw_moving_obstacles(
    world: World,
    detour: Detour,
    motion: Motion,
    margins: tuple[float, float],
    spread: float,
    generator: torch.Generator,
) -> tuple[Detour, Obstacles, Strokes]:
    """Sample 1 to 5 obstacles that block the straight motions of detours, and their strokes.

    Args:
        margins: least clearance of the arm at its start, and on the known motion [m].
        spread: standard deviation of the place around what it blocks, each axis [m].

    Returns:
        The detours for which there are obstacles, these at the places that they pass, with spare
        slots parked, and the strokes of spheres and boxes.
    """
    proposed = scenes.propose(world, detour, spread, generator)
    line = scenes.sample_line(world, detour)
    proposed_strokes = _draw_strokes(proposed, motion, generator)
    fits = _is_roughly_clear(world, detour, motion, proposed, proposed_strokes, margins[1])
    best, fits = scenes.choose_proposals(proposed, fits, line)
    chosen = scenes.select_obstacles(proposed, best)
    spheres, _, boxes = best.split((scenes.SPHERES, scenes.WALLS, scenes.BOXES), 1)
    strokes = proposed_strokes.select_slots(torch.cat((spheres, boxes), 1))
    blocks = scenes.compute_point_distances(line, chosen).amin(0).T < scenes.IN_THE_WAY
    rows = (fits & blocks).any(1)
    detour, chosen, fits, blocks = detour[rows], chosen.select_rows(rows), fits[rows], blocks[rows]
    strokes = strokes.select_rows(rows)

    fits &= _is_clear(world, detour, motion, chosen, strokes, margins)
    blocks &= fits
    spheres, walls, boxes = scenes.draw_number(fits, blocks, generator)
    rows = blocks.any(1)
    parked = scenes.park(chosen, spheres, boxes, walls)
    stays = torch.cat((spheres, boxes), 1)[:, :, None, None]
    ends = torch.where(stays, strokes.ends, _get_centres(parked)[:, :, None])
    strokes = replace(strokes, ends=ends)
    return detour[rows], parked.select_rows(rows), strokes.select_rows(rows)


def compute_known_motion(world: World, detour: Detour, pace: float, time: float) -> Tensor:
    """Return where arms (B, n) are that move along detours, starting and stopping at their ends.

    Args:
        pace: mean share of the fastest joint's speed limit on each leg.
        time: since the start [s].
    """
    legs = ((detour.start, detour.via), (detour.via, detour.solution))
    q = detour.start
    began = torch.zeros_like(q[:, :1])
    for first, last in legs:
        duration = ((last - first).abs() / world.model.qdlim).amax(1, keepdim=True) / pace
        share = ((time - began) / duration.clamp_min(1e-6)).clamp(0.0, 1.0)
        eased = 0.5 - 0.5 * torch.cos(torch.pi * share)
        q = torch.where(time >= began, torch.lerp(first, last, eased), q)
        began = began + duration
    return q


def relocate(obstacles: Obstacles, places: Tensor) -> Obstacles:
    """Return obstacles with the centres of spheres, then boxes, at places (B, M, 3) [m]."""
    spheres, boxes, walls = obstacles.kinds
    counts = (spheres.shape[1], boxes.shape[1])
    balls, blocks = (
        torch.cat((place, shapes[:, :, 3:]), 2)
        for place, shapes in zip(places.split(counts, 1), (spheres, boxes))
    )
    return Obstacles(balls, blocks, walls)


def _get_centres(obstacles: Obstacles) -> Tensor:
    """Return the centres (B, M, 3) of spheres, then boxes [m]."""
    spheres, boxes, _ = obstacles.kinds
    return torch.cat((spheres[:, :, :3], boxes[:, :, :3]), 1)


def _draw_strokes(proposed: Obstacles, motion: Motion, generator: torch.Generator) -> Strokes:
    """Sample a stroke for every sphere and box, which passes its place at a crossing time."""
    places = _get_centres(proposed)
    B, M, _ = places.shape
    draws = {"like": places, "generator": generator}
    direction = torch.nn.functional.normalize(draw_normal(generator, B, M, 3), dim=2)
    speed = scenes.sample_uniform(motion.speed, B, M, **draws)
    length = scenes.sample_uniform(motion.stroke, B, M, **draws)
    time = scenes.sample_uniform(motion.crossing, B, M, **draws)
    share = draw_uniform(generator, B, M, 1)
    way = length[:, :, None] * direction
    ends = torch.stack((places - share * way, places + (1.0 - share) * way), 2)
    rates = 0.5 * speed / length
    return Strokes(ends, rates, (0.5 * share[:, :, 0] - rates * time) % 1.0)


def _is_roughly_clear(
    world: World,
    detour: Detour,
    motion: Motion,
    proposed: Obstacles,
    strokes: Strokes,
    margin: float,
) -> Tensor:
    """Return whether known motions avoid the proposals by the middles of capsules, (B, M) bool."""
    radius = world.capsules.radius[:, None]  # (K, 1, 1)
    fits = torch.ones((), dtype=torch.bool, device=radius.device)
    for time in _list_times(motion.duration, COARSE):
        q = compute_known_motion(world, detour, motion.pace, time)
        p, d = compute_segments(world.capsules, q)
        places, _ = strokes.locate(time)
        distances = scenes.compute_point_distances(p + d / 2, relocate(proposed, places))
        room = (distances - radius).amin(0).T
        fits = fits & (room > margin)
    return fits


def _is_clear(
    world: World,
    detour: Detour,
    motion: Motion,
    obstacles: Obstacles,
    strokes: Strokes,
    margins: tuple[float, float],
) -> Tensor:
    """Return whether known motions, and arms that still wait, avoid each obstacle, (B, M) bool."""
    fits = torch.ones((), dtype=torch.bool, device=detour.start.device)
    for time in _list_times(motion.duration, FINE):
        places, _ = strokes.locate(time)
        relocated = relocate(obstacles, places)
        q = compute_known_motion(world, detour, motion.pace, time)
        fits = fits & _is_far(world, q, relocated, margins[1])
        if time <= motion.wait:
            fits = fits & _is_far(world, detour.start, relocated, margins[0])
    return fits


def _is_far(world: World, q: Tensor, obstacles: Obstacles, margin: float) -> Tensor:
    """Tell (B, M) if the arm at q (B, n) is farther than `margin` [m] from each obstacle."""
    least = []
    for rows in torch.arange(len(q), device=q.device).split(1024):
        p, d = compute_segments(world.capsules, q[rows])
        around = obstacles.select_rows(rows)
        least.append(obstacle_distances(world.capsules, p, d, around, 1.1 * margin).amin(0).T)
    return torch.cat(least) > margin


def _list_times(duration: float, step: float) -> list[float]:
    return [step * number for number in range(int(duration / step) + 1)]
