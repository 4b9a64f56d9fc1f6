"""Failures of the MuJoCo engine in the episodes of an evaluation."""

import torch
from torch import Tensor

from envs.arm_env.arm_env import ArmEnv
from td3_robot.vec_env import Policy


class FailureCounter:
    """A policy that counts failures of the physics, which its environment's `info` leaves out.

    Args:
        policy: the policy to call.
        env: the environment that it acts in, of the MuJoCo engine.
    """

    def __init__(self, policy: Policy, env: ArmEnv):
        self._policy = policy
        self._env = env
        self._before: list[Tensor] = []  # (B,) of each step

    def __call__(self, observation: Tensor) -> Tensor:
        """(B, o_dim) -> (B, a_dim)."""
        self._before.append(self._env.arrived.scene["unstable"])
        return self._policy(observation)

    def take(self) -> Tensor:
        """Return the failures (T, B) up to each step of its episode since the last call."""
        after = torch.stack([*self._before[1:], self._env.arrived.scene["unstable"]])
        self._before.clear()
        return after
