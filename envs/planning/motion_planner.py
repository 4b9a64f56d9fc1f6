"""A way among obstacles that stand still: where to in joint space, and over which corner.

What a motion planner of an arm does before it moves, once for each episode: inverse kinematics
gives joint positions with the TCP at the goal, corners are tried around the straight lines to them,
and the quickest way that is free is taken, its corner cut as far as that stays free. The corners
that are tried are always the same ones, so that a scene has one way wherever it is worked out. A
sampling planner of two legs; see LaValle, "Planning Algorithms", 2006, chapter 5.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from envs.collision import Obstacles, clearance
from envs.kinematics.inverse import solve_pose, spread_joints
from envs.planning.goal_solver import unwind
from envs.world import GROUND, World


class Effort(NamedTuple):
    """How much is tried.

    Attributes:
        starts: of inverse kinematics.
        corners: for each solution.
        looks: ways that are looked at closely.
    """

    starts: int
    corners: int
    looks: int


EFFORTS = (
    Effort(32, 16, 8),
    Effort(32, 64, 32),
    Effort(64, 128, 64),
)  # each for what the one before found none for
ASIDE = 1.0  # standard deviation of a corner about the straight line, each joint [rad or m]
MARGIN = 0.01  # to what is not to be touched, all along a way [m]
COARSE, POINTS = (
    2,
    14,
)  # configurations on a leg: of ways that may be free, and of those that are looked at closely
NEAR = 5e-3  # from the goal, as a solution [m]
FIRST = 4  # as many times more are looked at coarsely
TIGHTER = 8  # places between a corner and the straight line that it may move to
# [s] that a way counts longer by which is not free, and as much again for each metre that it lacks
BARRED = 1e3


def plan_path(world: World, q: Tensor, goal: Tensor, obstacles: Obstacles) -> tuple[Tensor, Tensor]:
    """The corner and the end of ways from joint positions to goals, both in straight legs in joint
    space.

    Where nothing free is found, it is the way that keeps clear the most. That none was found does
    not prove that there is none.

    Args:
        q: (B, n) where the arms are [rad or m].
        goal: (B, 3) wanted TCP positions in the base frame [m].
        obstacles: of B scenes.

    Returns:
        via, solution: (B, n) inside the limits [rad or m].
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
    """via, solution (B, n), and whether the way is free (B,)."""
    solution, fault = _solve_goals(world, q, goal, obstacles, effort.starts)  # (B, S, n), (B, S)
    via = _sample_corners(world, q, solution, effort.corners)  # (B, S, V, n)
    legs = (
        torch.stack((via - q[:, None, None], solution[:, :, None] - via)).abs() / world.model.qdlim
    )
    time = (legs.amax(4).sum(0) + fault[:, :, None]).flatten(1)  # (B, S V)
    ends, via = solution.repeat_interleave(effort.corners, 1), via.flatten(1, 2)
    for count, points in ((FIRST * effort.looks, COARSE), (effort.looks, POINTS)):
        quickest = time.topk(min(count, time.shape[1]), largest=False).indices
        ends, via = (each.take_along_dim(quickest[:, :, None], 1) for each in (ends, via))
        lacks = MARGIN - _compute_clearance(world, q, via, ends, obstacles, points)
        time = time.gather(1, quickest) + torch.where(lacks < 0, 0.0, BARRED * (1.0 + lacks))
    best = time.argmin(1)
    rows = torch.arange(len(q), device=q.device)
    via, solution, found = via[rows, best], ends[rows, best], time[rows, best] < BARRED
    return (
        torch.where(found[:, None], _tighten(world, q, via, solution, obstacles), via),
        solution,
        found,
    )


def _tighten(
    world: World, q: Tensor, via: Tensor, solution: Tensor, obstacles: Obstacles
) -> Tensor:
    """(B, n) the corners of free ways, moved towards the straight lines as far as that leaves them
    free.
    """
    there, on = (
        (b - a).abs().div(world.model.qdlim).amax(1, keepdim=True)
        for a, b in ((q, via), (via, solution))
    )
    straight = torch.lerp(q, solution, there / (there + on).clamp_min(1e-9))
    share = torch.arange(TIGHTER, dtype=q.dtype, device=q.device)[:, None] / TIGHTER
    corners = torch.lerp(via[:, None], straight[:, None], share)
    free = (
        _compute_clearance(
            world, q, corners, solution[:, None].expand_as(corners), obstacles, POINTS
        )
        > MARGIN
    )
    least = (free * torch.arange(TIGHTER, device=q.device)).amax(1)
    return corners[torch.arange(len(q), device=q.device), least]


def _solve_goals(
    world: World, q: Tensor, goal: Tensor, obstacles: Obstacles, starts: int
) -> tuple[Tensor, Tensor]:
    """(B, S, n) joint positions for the goals, and (B, S) by how much longer their ways count
    [s].
    """
    B, n = q.shape
    begin = torch.cat(
        (q[:, None], spread_joints(world.model.qlim, starts - 1).expand(B, -1, -1)), 1
    )
    wanted = goal.repeat_interleave(starts, 0)
    found, _, left = solve_pose(world.model.chain, world.model.qlim, begin.flatten(0, 1), wanted)
    found = unwind(world, begin[:, :1], found.view(B, starts, n)).flatten(0, 1)
    lacks = MARGIN - clearance(
        world.capsules, found, obstacles.select_rows(_repeat_rows(B, starts, q)), GROUND
    )
    fault = torch.where(lacks < 0, 0.0, BARRED * (1.0 + lacks)) + torch.where(
        left < NEAR, 0.0, BARRED * (1.0 + left)
    )
    return found.view(B, starts, n), fault.view(B, starts)


def _sample_corners(world: World, q: Tensor, solution: Tensor, count: int) -> Tensor:
    """(B, S, V, n) joint positions around the straight lines from q (B, n) to solutions (B, S,
    n).
    """
    n = q.shape[1]
    share = spread_joints(torch.stack((q.new_zeros(n + 1), q.new_ones(n + 1))), count)  # (V, n + 1)
    aside = ASIDE * torch.special.ndtri(share[:, 1:].clamp(1e-3, 1.0 - 1e-3))
    aside = torch.cat(
        (torch.zeros_like(aside[:1]), aside[1:])
    )  # the first is the straight line itself
    on_the_line = torch.lerp(q[:, None, None], solution[:, :, None], share[:, :1])
    return (on_the_line + aside).clamp(*world.model.qlim)


def _compute_clearance(
    world: World, q: Tensor, via: Tensor, ends: Tensor, obstacles: Obstacles, points: int
) -> Tensor:
    """(B, K) the least clearance on ways from q (B, n) over via (B, K, n) to their ends (B, K, n)
    [m].
    """
    B, K, n = via.shape
    share = torch.linspace(0, 1, points + 1, dtype=q.dtype, device=q.device)[1:, None, None, None]
    legs = torch.cat(
        (torch.lerp(q[:, None].expand_as(via), via, share), torch.lerp(via, ends, share[:-1]))
    )
    each = obstacles.select_rows(_repeat_rows(B, K, q).repeat(len(legs)))
    return clearance(world.capsules, legs.flatten(0, 2), each, GROUND).view(len(legs), B, K).amin(0)


def _repeat_rows(rows: int, times: int, like: Tensor) -> Tensor:
    """Every row so many times."""
    return torch.arange(rows, device=like.device).repeat_interleave(times)
