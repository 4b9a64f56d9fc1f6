"""Whether joint positions are free of contact: with the arm itself and with the ground."""

import torch
from torch import Tensor

from envs.collision import clearance
from envs.world import GROUND, World

MARGIN = 0.005  # [m] by which what solves a goal is free of contact
_HALVINGS = 4


def is_free(world: World, q: Tensor, room: float = MARGIN, driver: float | None = None) -> Tensor:
    """Whether arms at q (..., n) are more than `room` [m] away from themselves and the ground.

    Args:
        driver: coordinate of the gripper's [rad or m]; None: whatever it does.

    Returns:
        (...) bool, and true of a robot whose capsules are not known.
    """
    if world.collision is None:
        return torch.ones(q.shape[:-1], dtype=torch.bool, device=q.device)
    q_each = q.flatten(0, -2)
    gripper = None if driver is None else q_each.new_full((len(q_each),), driver)
    return (
        clearance(world.collision, q_each, ground=GROUND, gripper=gripper).view(q.shape[:-1]) > room
    )


def find_free_start(world: World, offset: Tensor) -> Tensor:
    """Joint positions (B, n) at offsets (B, n) from home, halved until nothing touches, at home in
    the end.
    """
    for _ in range(_HALVINGS):
        q = torch.clamp(world.home + offset, *world.model.qlim)
        offset = torch.where(is_free(world, q, 0.0)[:, None], offset, 0.5 * offset)
    q = torch.clamp(world.home + offset, *world.model.qlim)
    return torch.where(is_free(world, q, 0.0)[:, None], q, world.home)
