"""Scripted expert for tasks like `pick_place`, as a programmer would write it."""

from typing import Any

import torch
from torch import Tensor

from envs.controllers.controlled import Controlled
from envs.controllers.pointing import point_down
from envs.simulation import grasp
from envs.world import Moment, World
from td3_robot.errors import not_none

GAIN = 5.0  # see `point_down` [1/s]
DAMPING = 0.05  # see `point_down` [m/rad]
NEAR = 0.008  # distance of the TCP to its grasp below which the gripper shuts [m]
SHUTTING = 0.95  # share of the widest gap between the pads below which they are shutting


def compute_pick_action(task: Any, world: World, moment: Moment) -> Tensor:
    """Compute the action (B, n + 1) in [-1, 1] of the scripted expert.

    It moves to the cube from above with an open gripper, grasps it, moves over the goal and down,
    and holds it or, if it `is_placed`, releases it. It has no state: the moment decides what to do.

    Args:
        task: a `Picking`.
    """
    held = moment.scene["held"]
    way = task.compute_approach_vector(world, moment)
    left = torch.linalg.vector_norm(way, dim=1)
    gap = grasp.compute_gap(hand := not_none(world.model.hand), moment.state.gripper)
    # A little more distance does not open it again.
    shutting = (gap < SHUTTING * hand.gap[2]) & (left < 2.0 * NEAR)
    shut = (held | (left < NEAR) | shutting) & ~task.is_placed(moment.scene)
    way = torch.where(held[:, None], task.compute_carrying_vector(way), way)
    joints = point_down(world, moment, way, None, GAIN, DAMPING)
    return torch.cat((joints, torch.where(shut, -1.0, 1.0)[:, None].to(joints.dtype)), 1)


class ScriptedPick:
    """Scripted expert in an environment of `pick_place` or a task like it.

    Args:
        env: the environment to act in.
    """

    def __init__(self, env: Controlled):
        self._env = env

    def __call__(self, observation: Tensor) -> Tensor:
        """Return the action (B, n + 1) in [-1, 1] for the environment's moment."""
        return compute_pick_action(self._env.task, self._env.world, self._env.moment)
