"""The scripted pick: what a programmer would write for the task `pick_place` instead of learning it."""

import torch
from torch import Tensor

from envs.controllers.controlled import Controlled
from envs.controllers.pointing import PointingDown
from envs.simulation import grasp
from td3_robot.errors import need


class ScriptedPick:
    """To the cube from above with open gripper, shut it, over the goal, down, hold.

    It keeps no state: what to do is read off the moment. The hand follows `PickPlace.way` to the cube and, holding it,
    a like way to the goal, pointing down.

    Args:
        env: an environment of the task `pick_place` to act in.
        gain, damping: see `PointingDown`.
        near: how near the TCP has to be to its grasp before the gripper shuts [m].
    """

    def __init__(self, env: Controlled, gain: float = 5.0, damping: float = 0.05, near: float = 0.008):
        self._env, self._hand, self._near = env, PointingDown(env, gain, damping), near

    def __call__(self, observation: Tensor) -> Tensor:
        """(B, o_dim) -> (B, n + 1) in [-1, 1]; of the observation only the moment matters, not the values."""
        env, moment = self._env, self._env.moment
        task, world, held = env.task, env.world, moment.scene["held"]
        way = task.way(world, moment)
        shut = held | (torch.linalg.vector_norm(way, dim=1) < self._near) | self._closing(way)
        joints = self._hand.action(way + self._detour(way, held))
        return torch.cat((joints, torch.where(shut, -1.0, 1.0)[:, None]), 1)

    def _closing(self, way: Tensor) -> Tensor:
        """Whether the gripper has begun to shut around the cube; then a little more distance does not open it."""
        hand = need(self._env.world.model.hand)
        gap = grasp.gap_of(hand, self._env.moment.state.gripper)
        return (gap < 0.95 * hand.gap[2]) & (torch.linalg.vector_norm(way, dim=1) < 2.0 * self._near)

    def _detour(self, way: Tensor, held: Tensor) -> Tensor:
        """(B, 3) up, as long as the held cube is not over its goal [m]."""
        task = self._env.task
        aside = torch.linalg.vector_norm(way[:, :2], dim=1)
        up = (task.descent * (aside - task.corridor)).clamp(0.0, task.hover)
        return torch.stack((torch.zeros_like(up), torch.zeros_like(up), up * held), 1)
