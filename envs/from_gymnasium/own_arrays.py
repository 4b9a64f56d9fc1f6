"""Copies of what environments return, since many fill the same arrays at every step and reset."""

import copy
from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.vector import SyncVectorEnv, VectorEnv

SUCCESS_KEYS = ("is_success", "success")  # in the infos


class OwnArrays(gym.Wrapper):
    """Wrapper that returns arrays of its own.

    A vector environment with SAME_STEP autoreset keeps an episode's last observation and info while
    it resets the environment, which would overwrite them in an array that is used again. Of infos
    only the success is read, so only that is copied. A step costs about a microsecond more.
    """

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Reset the environment and copy its observation."""
        observation, info = self.env.reset(seed=seed, options=options)
        return copy.deepcopy(observation), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict]:
        """Step the environment and copy its observation; at an episode's end its success, too."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            known = [key for key in SUCCESS_KEYS if key in info]
            info = info | {key: copy.deepcopy(info[key]) for key in known}
        return copy.deepcopy(observation), reward, terminated, truncated, info


def wrap_copies(vector_env: VectorEnv) -> None:
    """Let the copies of a SyncVectorEnv that somebody else made return arrays of their own."""
    core = vector_env.unwrapped
    if isinstance(core, SyncVectorEnv):
        core.envs = [OwnArrays(env) for env in core.envs]
