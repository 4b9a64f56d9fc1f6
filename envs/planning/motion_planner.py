"""Motion planner: paths of two straight legs in joint space among obstacles.

Once for each episode, inverse kinematics finds joint positions with the TCP at the goal, corners
are sampled around the straight lines to them, and the fastest free path is taken, with its corner
cut as far as it stays free. The sampled corners are always the same, so that a scene has the same
path on every machine. Obstacles that move are where they will be when the arm gets there, as
their velocities tell. On sampling-based planners see LaValle, "Planning Algorithms", 2006,
chapter 5.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from envs.collision import Obstacles, clearance
from envs.kinematics.inverse import solve_pose, spread_joints
from envs.planning.goal_solver import unwind
from envs.world import GROUND, World


class Effort(NamedTuple):
    """The effort of a search.

    Attributes:
        starts: number of starts of inverse kinematics.
        corners: number of corners for each solution.
        looks: number of paths that are checked closely.
    """

    starts: int
    corners: int
    looks: int


# Each effort is for the arms for which the one before found no path.
EFFORTS = (Effort(32, 16, 8), Effort(32, 64, 32), Effort(64, 128, 64))
ASIDE = 1.0  # standard deviation of a corner about the straight line, each joint [rad or m]
MARGIN = 0.01  # least clearance along a path [m]
ENOUGH = 1.1 * MARGIN  # clearance of which no more is asked [m]
COARSE = 2  # configurations on a leg in the coarse check
POINTS = 14  # configurations on a leg in the close check
NEAR = 5e-3  # greatest distance of a solution from the goal [m]
SAME = 1e-3  # difference of joint positions that are one solution [rad or m]
FIRST = 4  # number of paths in the coarse check, relative to the close one
STAGES = (slice(0, 1), slice(1, 4), slice(4, None))  # of the close check, quickest paths first
TIGHTER = 8  # positions between a corner and the straight line that it may move to
PACE = 0.6  # assumed mean share of the fastest joint's speed limit, among obstacles that move
FORESIGHT = 0.5  # time for which obstacles are taken to go on as they do [s]
BARRED = 1e3  # penalty in the duration of a path without clearance, and for each metre it lacks [s]


def plan_path(world: World, q: Tensor, goal: Tensor, obstacles: Obstacles) -> tuple[Tensor, Tensor]:
    """Plan paths of two straight legs in joint space to goals.

    If no free path is found, the result is the one with the most clearance. A free path may exist
    nevertheless.

    Args:
        q: (B, n) positions of the arms [rad or m].
        goal: (B, 3) wanted TCP positions in the base frame [m].
        obstacles: of B scenes.

    Returns:
        via, solution: (B, n) corners and ends, inside the limits [rad or m].
    """
    via, solution, found = _search(world, q, goal, obstacles, EFFORTS[0])
    for effort in EFFORTS[1:]:
        rows = (~found).nonzero()[:, 0]
        if not len(rows):
            break
        more = _search(world, q[rows], goal[rows], obstacles.select_rows(rows), effort)
        via, solution, found = (
            old.index_copy(0, rows, new) for old, new in zip((via, solution, found), more)
        )
    return via, solution


def _search(
    world: World, q: Tensor, goal: Tensor, obstacles: Obstacles, effort: Effort
) -> tuple[Tensor, Tensor, Tensor]:
    """Return via and solution (B, n), and whether the path is free (B,)."""
    solution, fault = _solve_goals(world, q, goal, obstacles, effort.starts)  # (B, S, n), (B, S)
    via = _sample_corners(world, q, solution, effort.corners)  # (B, S, V, n)
    legs = (
        torch.stack((via - q[:, None, None], solution[:, :, None] - via)).abs() / world.model.qdlim
    )
    time = (legs.amax(4).sum(0) + fault[:, :, None]).flatten(1)  # (B, S V)
    ends = solution.repeat_interleave(effort.corners, 1)
    via = via.flatten(1, 2)
    quickest = time.topk(min(FIRST * effort.looks, time.shape[1]), largest=False).indices
    ends, via = (each.take_along_dim(quickest[:, :, None], 1) for each in (ends, via))
    time = time.gather(1, quickest)
    best, found = _choose_paths(world, q, via, ends, time, obstacles, effort.looks)
    rows = torch.arange(len(q), device=q.device)
    via = via[rows, best]
    solution = ends[rows, best]
    free = found.nonzero()[:, 0]
    tight = _tighten(world, q[free], via[free], solution[free], obstacles.select_rows(free))
    return via.index_copy(0, free, tight), solution, found


def _penalise(room: Tensor) -> Tensor:
    """Return the penalties (...) of clearances (...) [m] in the duration of a path [s]."""
    lacks = MARGIN - room
    return torch.where(lacks < 0, 0.0, BARRED * (1.0 + lacks))


def _choose_paths(
    world: World,
    q: Tensor,
    via: Tensor,
    ends: Tensor,
    time: Tensor,
    obstacles: Obstacles,
    looks: int,
) -> tuple[Tensor, Tensor]:
    """Choose the quickest free path of each arm, or else that with the most clearance.

    Most arms can take one of the quickest, so few have all of theirs checked.

    Args:
        via, ends: (B, K, n) of the paths.
        time: (B, K) their durations and penalties, ascending.
        looks: number of paths that are checked closely.

    Returns:
        The chosen path (B,), and whether it is free (B,).
    """
    best = torch.zeros(len(q), dtype=torch.int64, device=q.device)
    found = torch.zeros(len(q), dtype=torch.bool, device=q.device)
    rows = torch.arange(len(q), device=q.device)
    for count, stages in ((looks, STAGES[:1]), (time.shape[1], STAGES)):
        paths = via[rows, :count], ends[rows, :count], time[rows, :count]
        around = obstacles.select_rows(rows)
        best[rows], found[rows] = _check_paths(world, q[rows], *paths, around, looks, stages)
        rows = (~found).nonzero()[:, 0]
    return best, found


def _check_paths(
    world: World,
    q: Tensor,
    via: Tensor,
    ends: Tensor,
    time: Tensor,
    obstacles: Obstacles,
    looks: int,
    stages: tuple[slice, ...],
) -> tuple[Tensor, Tensor]:
    """Return what `_choose_paths` does, of the `looks` best paths after a coarse check of all."""
    time = time + _penalise(_compute_clearance(world, q, via, ends, obstacles, COARSE))
    quickest = time.topk(min(looks, time.shape[1]), largest=False).indices
    ends, via = (each.take_along_dim(quickest[:, :, None], 1) for each in (ends, via))
    time = time.gather(1, quickest)
    checked = torch.full_like(time, torch.inf)
    rows = torch.arange(len(q), device=q.device)
    for part in stages:
        some = obstacles.select_rows(rows)
        paths = via[rows, part], ends[rows, part]
        room = _compute_clearance(world, q[rows], *paths, some, POINTS)
        checked[rows, part] = time[rows, part] + _penalise(room)
        rows = (checked.amin(1) >= BARRED).nonzero()[:, 0]
    best = checked.argmin(1, keepdim=True)
    return quickest.gather(1, best)[:, 0], checked.amin(1) < BARRED


def _tighten(
    world: World, q: Tensor, via: Tensor, solution: Tensor, obstacles: Obstacles
) -> Tensor:
    """Return the corners (B, n) of free paths, each moved to the farthest of `TIGHTER` places
    towards the straight line where the path is free; nearer places may be blocked.
    """
    first, second = (
        (b - a).abs().div(world.model.qdlim).amax(1, keepdim=True)
        for a, b in ((q, via), (via, solution))
    )
    straight = torch.lerp(q, solution, first / (first + second).clamp_min(1e-9))
    steps = torch.arange(TIGHTER - 1, 0, -1, dtype=q.dtype, device=q.device)[:, None] / TIGHTER
    rows = torch.arange(len(q), device=q.device)
    tight = via
    for some in (steps[:1], steps[1:]):  # most paths stay free when they are the tightest
        corners = torch.lerp(via[rows, None], straight[rows, None], some)  # (R, T, n)
        ends = solution[rows, None].expand_as(corners)
        around = obstacles.select_rows(rows)
        free = _compute_clearance(world, q[rows], corners, ends, around, POINTS) > MARGIN
        moved = free.any(1)
        first = free[moved].byte().argmax(1)
        tight = tight.index_copy(0, rows[moved], corners[moved, first])
        rows = rows[~moved]
    return tight


def _solve_goals(
    world: World, q: Tensor, goal: Tensor, obstacles: Obstacles, starts: int
) -> tuple[Tensor, Tensor]:
    """Find joint positions (B, S, n) for the goals, and the penalties (B, S) of their paths [s].

    It is infinite for a solution that an earlier start has led to: the same corners would be looked
    at again in place of others. An arm of three joints has few solutions.
    """
    B, n = q.shape
    begin = torch.cat(
        (q[:, None], spread_joints(world.model.qlim, starts - 1).expand(B, -1, -1)), 1
    )
    wanted = goal.repeat_interleave(starts, 0)
    found, _, left = solve_pose(world.model.chain, world.model.qlim, begin.flatten(0, 1), wanted)
    found = unwind(world, begin[:, :1], found.view(B, starts, n)).flatten(0, 1)
    each = obstacles.select_rows(_repeat_rows(B, starts, q))
    if obstacles.are_moving:
        time = compute_duration(world, found - begin[:, :1].expand(-1, starts, -1).flatten(0, 1))
        each = each.move(time.clamp_max(FORESIGHT)[:, None])
    fault = _penalise(clearance(world.capsules, found, each, GROUND, within=ENOUGH))
    fault = fault + torch.where(left < NEAR, 0.0, BARRED * (1.0 + left))
    found = found.view(B, starts, n)
    apart = (found[:, :, None] - found[:, None]).abs().amax(3)
    again = (apart < SAME).tril(-1).any(2)
    return found, fault.view(B, starts).masked_fill(again, torch.inf)


def _sample_corners(world: World, q: Tensor, solution: Tensor, count: int) -> Tensor:
    """Sample corners (B, S, V, n) around the lines from q (B, n) to solutions (B, S, n)."""
    n = q.shape[1]
    share = spread_joints(torch.stack((q.new_zeros(n + 1), q.new_ones(n + 1))), count)  # (V, n + 1)
    aside = ASIDE * torch.special.ndtri(share[:, 1:].clamp(1e-3, 1.0 - 1e-3))
    aside = torch.cat((torch.zeros_like(aside[:1]), aside[1:]))  # the first is on the line itself
    on_the_line = torch.lerp(q[:, None, None], solution[:, :, None], share[:, :1])
    return (on_the_line + aside).clamp(*world.model.qlim)


def _compute_clearance(
    world: World, q: Tensor, via: Tensor, ends: Tensor, obstacles: Obstacles, points: int
) -> Tensor:
    """Compute the least clearance (B, K) on paths from q over via to ends, (B, K, n) each [m].

    It is `ENOUGH` where it is more.
    """
    B, K, n = via.shape
    share = torch.linspace(0, 1, points + 1, dtype=q.dtype, device=q.device)[1:, None, None, None]
    legs = torch.cat(
        (torch.lerp(q[:, None].expand_as(via), via, share), torch.lerp(via, ends, share[:-1]))
    )
    each = obstacles.select_rows(_repeat_rows(B, K, q).repeat(len(legs)))
    if obstacles.are_moving:
        first, second = (
            compute_duration(world, b - a)[None] for a, b in ((q[:, None], via), (via, ends))
        )
        time = torch.cat((share[..., 0] * first, first + share[:-1, ..., 0] * second))
        each = each.move(time.clamp_max(FORESIGHT).view(-1, 1))
    found = clearance(world.capsules, legs.flatten(0, 2), each, GROUND, within=ENOUGH)
    return found.view(len(legs), B, K).amin(0)


def compute_duration(world: World, motion: Tensor) -> Tensor:
    """Return the assumed duration (...) of joint motions (..., n) [s]."""
    return (motion.abs() / world.model.qdlim).amax(-1) / PACE


def is_path_free(
    world: World, q: Tensor, via: Tensor, solution: Tensor, obstacles: Obstacles
) -> Tensor:
    """Return whether paths from q over via to solutions, (B, n) each, keep `MARGIN`, (B,) bool."""
    ends = solution[:, None]
    room = _compute_clearance(world, q, via[:, None], ends, obstacles, POINTS)[:, 0]
    if not obstacles.are_moving:
        at_end = clearance(world.capsules, solution, obstacles, GROUND)
        return torch.minimum(room, at_end) > MARGIN
    time = compute_duration(world, via - q) + compute_duration(world, solution - via)
    then = obstacles.move(time.clamp_max(FORESIGHT)[:, None])
    return torch.minimum(room, clearance(world.capsules, solution, then, GROUND)) > MARGIN


def _repeat_rows(rows: int, times: int, like: Tensor) -> Tensor:
    """Return the index of every row, repeated `times`."""
    return torch.arange(rows, device=like.device).repeat_interleave(times)
