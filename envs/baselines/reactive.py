"""The reactive controller that `reach_avoid` shows its policies, as one to compare with."""

import torch
from torch import Tensor

from envs.arm_env import ArmEnv
from envs.collision import Nearest
from envs.reactive import reactive


class Reactive:
    """Damped least squares behind dampers, see envs/reactive.py: nearly NEO, for many arms at once and on any device.

    Args:
        env: the environment to act in; its obstacles are heeded where its task has any.
    """

    def __init__(self, env: ArmEnv):
        self._env = env

    def __call__(self, observation: Tensor) -> Tensor:
        """(B, o_dim) -> (B, a_dim) in [-1, 1]; of the observation only the moment matters, not the values."""
        env = self._env
        near = self._nothing() if env.world.collision is None else env.task.nearest(env.world, env.moment)
        return reactive(env.model, env.moment, near) / env.model.qdlim

    def _nothing(self) -> Nearest:
        q = self._env.state.q
        return Nearest(q.new_full((len(q), 1), torch.inf), q.new_zeros(len(q), 1, q.shape[1]))
