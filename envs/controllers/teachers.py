"""Controllers that show a learner what can be done: the classical ones, and one that was told a solution.

They act in some of the episodes that a policy learns from (`exploration.guide`); a policy is never compared with one
that was told.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from envs.controllers import BASELINES, make_baseline
from envs.controllers.controlled import Controlled
from td3_robot.errors import ConfigError, unknown


class FollowSolution:
    """Joint by joint to the configuration that the goal was made of: `solution` in the scene, over `via` if there.

    Both are joint positions (B, n) that the task knew when it drew the scene; `passed` (B,) says whether the first is
    behind. Every joint moves at gain times its distance, and all are scaled down together where one is over its
    limit, so that the arm goes straight in joint space.

    Args:
        env: the environment to act in.
        gain: joint speed per distance [1/s].

    Raises:
        ConfigError: the task's scenes hold no solution.
    """

    def __init__(self, env: Controlled, gain: float = 4.0):
        if "solution" not in env.moment.scene:
            raise ConfigError("exploration.guide solution needs a task whose scenes hold one: reach_pose, reach_avoid")
        self._env, self._gain = env, gain

    def __call__(self, observation: Tensor) -> Tensor:
        """(B, o_dim) -> (B, a_dim) in [-1, 1]; of the observation only the moment matters, not the values."""
        scene = self._env.moment.scene
        target = scene["solution"]
        if "via" in scene:
            target = torch.where(scene["passed"][:, None] > 0, target, scene["via"])
        action = self._gain * (target - self._env.moment.state.q) / self._env.model.qdlim
        return action / action.abs().amax(1, keepdim=True).clamp_min(1.0)


def make_teacher(name: str, env: Controlled) -> Callable[[Tensor], Tensor]:
    """A policy, (B, o_dim) -> (B, a_dim), that controls `env` and no other.

    Raises:
        ConfigError: no such teacher, or none for this task.
    """
    if not hasattr(env, "moment"):
        raise ConfigError("exploration.guide has no effect without a robot and its task")
    if name == "solution":
        return FollowSolution(env)
    if name not in BASELINES:
        raise unknown("exploration.guide", name, ("solution", *BASELINES))
    return make_baseline(name, env)
