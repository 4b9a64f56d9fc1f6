"""Message about a hand that does not point straight down where a task wants it."""

import torch
from torch import Tensor

from envs.kinematics.inverse import spread_joints
from envs.kinematics.pointing_down import solve_pointing_down
from envs.world import World
from td3_robot.errors import not_none

PLACES = 256


def describe_tilt(world: World, low: Tensor, high: Tensor) -> str | None:
    """Describe that the hand points straight down nowhere in a box; None if it does somewhere.

    Args:
        low, high: (3,) corners of the box that the task has the TCP in, base frame [m].
    """
    model = world.model
    share = spread_joints(torch.stack((torch.zeros_like(low), torch.ones_like(low))), PLACES)
    axis = not_none(model.hand).axes[:, 2]
    home = world.home.expand(PLACES, -1)
    found = solve_pointing_down(model.chain, model.qlim, axis, home, low + share * (high - low))[1]
    if found.any():
        return None
    box = [[round(x, 3) for x in corner.tolist()] for corner in (low, high)]
    return (
        f"the hand of robot {world.robot.name!r} is not found to point straight down anywhere in "
        f"{box}: mount it, or the arm, so that it does, or choose a task without a hand, "
        "such as 'reach'"
    )
