"""Contact checks of joint positions with the arm itself and the ground."""

import torch
from torch import Tensor

from envs.collision import clearance
from envs.world import GROUND, World
from td3_robot.utils.legacy import find_old_names

MARGIN = 0.005  # least clearance of solutions [m]
_HALVINGS = 4


def is_free(world: World, q: Tensor, room: float = MARGIN, driver: float | None = None) -> Tensor:
    """Return whether arms at q (..., n) are further than `room` [m] from themselves and the ground.

    Args:
        driver: coordinate of the gripper [rad or m]; None: any.

    Returns:
        (...) bool; true if the robot's capsules are not known.
    """
    if world.collision is None:
        return torch.ones(q.shape[:-1], dtype=torch.bool, device=q.device)
    q_each = q.flatten(0, -2)
    gripper = None if driver is None else q_each.new_full((len(q_each),), driver)
    return (
        clearance(world.collision, q_each, ground=GROUND, gripper=gripper).view(q.shape[:-1]) > room
    )


def find_free_start(world: World, offset: Tensor) -> Tensor:
    """Return joint positions (B, n) at offsets (B, n) from home, halved until free of contact.

    After `_HALVINGS` they are home itself.
    """
    for _ in range(_HALVINGS):
        q = torch.clamp(world.home + offset, *world.model.qlim)
        offset = torch.where(is_free(world, q, 0.0)[:, None], offset, 0.5 * offset)
    q = torch.clamp(world.home + offset, *world.model.qlim)
    return torch.where(is_free(world, q, 0.0)[:, None], q, world.home)


__getattr__ = find_old_names(__name__)
