"""The scripted pick: what a programmer would write for tasks like `pick_place` instead of learning
them.
"""

from typing import Any

import torch
from torch import Tensor

from envs.controllers.controlled import Controlled
from envs.controllers.pointing import point_down
from envs.simulation import grasp
from envs.world import Moment, World
from td3_robot.errors import not_none

GAIN, DAMPING = 5.0, 0.05  # see `point_down` [1/s, m/rad]
NEAR = 0.008  # how near the TCP has to be to its grasp before the gripper shuts [m]
SHUTTING = 0.95  # part of the widest gap between the pads below which they have begun to shut


def compute_pick_action(task: Any, world: World, moment: Moment) -> Tensor:
    """To the cube from above with open gripper, shut it, over the goal, down, and hold it or, where
    it is `placed`, let it go.

    It keeps no state: what to do is read off the moment. The hand follows `Picking.way` to the cube
    and, holding it, a like way to the goal, pointing down.

    Args:
        task: a `Picking`.

    Returns:
        (B, n + 1) in [-1, 1].
    """
    held, way = moment.scene["held"], task.compute_approach_vector(world, moment)
    left = torch.linalg.vector_norm(way, dim=1)
    gap = grasp.compute_gap(hand := not_none(world.model.hand), moment.state.gripper)
    shutting = (gap < SHUTTING * hand.gap[2]) & (
        left < 2.0 * NEAR
    )  # a little more distance does not open it again
    shut = (held | (left < NEAR) | shutting) & ~task.is_placed(moment.scene)
    joints = point_down(world, moment, way + _compute_detour(task, way, held), None, GAIN, DAMPING)
    return torch.cat((joints, torch.where(shut, -1.0, 1.0)[:, None].to(joints.dtype)), 1)


def _compute_detour(task: Any, way: Tensor, held: Tensor) -> Tensor:
    """(B, 3) up, as long as the held cube is not over its goal [m]."""
    aside = torch.linalg.vector_norm(way[:, :2], dim=1)
    up = (task.descent * (aside - task.corridor)).clamp(0.0, task.hover)
    return torch.stack((torch.zeros_like(up), torch.zeros_like(up), up * held), 1)


class ScriptedPick:
    """`compute_pick_action` in an environment of the task `pick_place` or one like it.

    Args:
        env: the environment to act in.
    """

    def __init__(self, env: Controlled):
        self._env = env

    def __call__(self, observation: Tensor) -> Tensor:
        """(B, o_dim) -> (B, n + 1) in [-1, 1]; of the observation only the moment matters, not the
        values.
        """
        return compute_pick_action(self._env.task, self._env.world, self._env.moment)
