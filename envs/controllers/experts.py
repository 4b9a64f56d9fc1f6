"""Experts: controllers that act in some of the episodes of a training (`exploration.expert`).

They are the classical controllers, and one that moves to the scene's solution.
"""

from collections.abc import Callable

from torch import Tensor

from envs.controllers import BASELINES, make_baseline
from envs.controllers.controlled import Controlled
from envs.controllers.follow_solution import FollowSolution
from td3_robot.errors import ConfigError, unknown
from td3_robot.utils.legacy import find_old_names


def make_expert(name: str, env: Controlled) -> Callable[[Tensor], Tensor]:
    """Build a policy, (B, o_dim) -> (B, a_dim), that controls `env` and no other.

    Raises:
        ConfigError: no such expert, or one that cannot do this task.
    """
    if not hasattr(env, "moment"):
        raise ConfigError("exploration.expert has no effect without a robot and its task")
    if name == "solution":
        return FollowSolution(env)
    if name not in BASELINES:
        raise unknown("exploration.expert", name, ("solution", *BASELINES))
    return make_baseline(name, env)


__getattr__ = find_old_names(__name__)
