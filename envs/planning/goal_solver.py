"""Goal solver: the nearest joint positions with the wanted pose, by inverse kinematics.

Robot programs do the same before they move, once for each goal.
"""

import torch
from torch import Tensor

from envs.kinematics.inverse import solve_pose, spread_joints
from envs.kinematics.rotations import to_matrix
from envs.planning.contact_check import is_free
from envs.world import World
from td3_robot.vec_env import is_asynchronous

STARTS = 15  # of the search, in addition to the arm's positions
LOOKS = 6  # contact checks on the straight line to a solution
# Penalties in the duration of the motion [s].
UNSOLVED = 1e4
TOUCHING = 1e3
BARRED = 1e2


def solve_goal(world: World, q: Tensor, goal: Tensor, starts: int = STARTS) -> Tensor:
    """Find joint positions of goal poses.

    The result is the solution of the shortest motion at full speed: of those without contact on the
    straight line in joint space, else of those without contact at the end, else of any. If no start
    leads to a solution, it is the nearest approximation.

    Args:
        q: (B, n) positions of the arms [rad or m].
        goal: (B, 7) positions [m] and unit quaternions, wxyz.
        starts: number of starts of the search in addition to q.

    Returns:
        (B, n) inside the limits [rad or m].
    """
    B, n = q.shape
    begin = torch.cat((q[None], spread_joints(world.model.qlim, starts)[:, None].expand(-1, B, -1)))
    wanted = goal.repeat(len(begin), 1)
    found, solved, left = solve_pose(
        world.model.chain,
        world.model.qlim,
        begin.flatten(0, 1),
        wanted[:, :3],
        to_matrix(wanted[:, 3:]),
    )
    found = unwind(world, q, found.view(-1, B, n))
    solved = solved.view(-1, B)
    left = left.view(-1, B)
    time = ((found - q).abs() / world.model.qdlim).amax(2)
    unsolved = torch.where(solved, 0.0, UNSOLVED * (1.0 + left))
    quickest = _select(found, time + unsolved)
    if starts == 0 or is_asynchronous(q.device):  # nothing to choose, or asking would wait
        rows = torch.arange(B, device=q.device)
    else:  # few of the quickest touch anything; then all are checked
        rows = (_find_penalties(world, q, quickest[None])[0] > 0).nonzero()[:, 0]
    found = found[:, rows]
    time = time[:, rows] + _find_penalties(world, q[rows], found) + unsolved[:, rows]
    return quickest.index_copy(0, rows, _select(found, time))


def _select(found: Tensor, time: Tensor) -> Tensor:
    """Return the solutions (B, n) of found (S, B, n) with the least of time (S, B)."""
    B, n = found.shape[1:]
    return found.gather(0, time.argmin(0).expand(1, n, B).transpose(1, 2))[0]


def _find_penalties(world: World, q: Tensor, found: Tensor) -> Tensor:
    """Return the penalties (S, B) of contact at found (S, B, n) and on the straight lines there."""
    share = torch.arange(1, LOOKS + 1, dtype=q.dtype, device=q.device) / (LOOKS + 1)
    line = torch.lerp(q.expand_as(found), found, share[:, None, None, None])
    barred = ~is_free(world, line, 0.0).all(0)
    return BARRED * barred + TOUCHING * ~is_free(world, found)


def unwind(world: World, q: Tensor, found: Tensor) -> Tensor:
    """Return found (..., n) without whole turns from q (..., n), where the limits allow it."""
    turns = torch.round((found - q) / (2.0 * torch.pi)) * ~world.model.chain.slides
    unwound = found - 2.0 * torch.pi * turns
    lower, upper = world.model.qlim
    return torch.where((unwound >= lower) & (unwound <= upper), unwound, found)
