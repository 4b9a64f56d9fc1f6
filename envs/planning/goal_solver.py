"""Where a goal is in joint space: of the joint positions that have the wanted pose those to which
the way is shortest.

What a program of an arm does before it moves: inverse kinematics, once for each goal.
"""

import torch
from torch import Tensor

from envs.kinematics.inverse import solve_pose, spread_joints
from envs.kinematics.rotations import to_matrix
from envs.planning.contact_check import is_free
from envs.world import World

STARTS = 15  # beside the arm's own positions
LOOKS = 6  # on the straight way to a solution
UNSOLVED, TOUCHING, BARRED = 1e4, 1e3, 1e2  # [s] that the way counts longer by


def solve_goal(world: World, q: Tensor, goal: Tensor, starts: int = STARTS) -> Tensor:
    """Joint positions for goal poses.

    Taken is the solution that the slowest joint reaches first at full speed, of those that touch
    nothing on the straight way in joint space, if there are any; else of those that touch nothing
    once there, else of any; and if no start leads to one, what comes nearest.

    Args:
        q: (B, n) where the arms are [rad or m].
        goal: (B, 7) positions [m] and unit quaternions, wxyz.
        starts: how many positions the search begins from beside q.

    Returns:
        (B, n) inside the limits [rad or m].
    """
    B, n = q.shape
    begin = torch.cat((q[None], spread_joints(world.model.qlim, starts)[:, None].expand(-1, B, -1)))
    wanted = goal.repeat(len(begin), 1)
    found, there, left = solve_pose(
        world.model.chain,
        world.model.qlim,
        begin.flatten(0, 1),
        wanted[:, :3],
        to_matrix(wanted[:, 3:]),
    )
    found, there, left = found.view(-1, B, n), there.view(-1, B), left.view(-1, B)
    found = unwind(world, q, found)
    share = torch.arange(1, LOOKS + 1, dtype=q.dtype, device=q.device)[:, None, None, None] / (
        LOOKS + 1
    )
    barred = ~is_free(world, torch.lerp(q.expand_as(found), found, share), 0.0).all(0)
    time = ((found - q).abs() / world.model.qdlim).amax(2)
    time = (
        time
        + BARRED * barred
        + TOUCHING * ~is_free(world, found)
        + torch.where(there, 0.0, UNSOLVED * (1.0 + left))
    )
    return found.gather(0, time.argmin(0).expand(1, n, B).transpose(1, 2))[0]


def unwind(world: World, q: Tensor, found: Tensor) -> Tensor:
    """The same poses, without whole turns on the way from q (..., n), where the limits allow it;
    (..., n).
    """
    turns = torch.round((found - q) / (2.0 * torch.pi)) * ~world.model.chain.slides
    unwound, (lower, upper) = found - 2.0 * torch.pi * turns, world.model.qlim
    return torch.where((unwound >= lower) & (unwound <= upper), unwound, found)
