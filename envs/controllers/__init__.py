"""Classical controllers to compare a policy with: the same observations in, the same actions out.

They are told what a controller on the real robot would know: the environment's own state, goal and surroundings.
"""

from collections.abc import Callable

from torch import Tensor

from envs.controllers.controlled import Controlled
from envs.controllers.neo import Neo
from envs.controllers.reactive import Reactive
from envs.controllers.resolved_rate import ResolvedRate
from envs.controllers.scripted_pick import ScriptedPick
from envs.kinematics.least_squares import damped_least_squares
from td3_robot.errors import ConfigError, unknown

__all__ = ["BASELINES", "Neo", "Reactive", "ResolvedRate", "ScriptedPick", "damped_least_squares", "make_baseline"]

BASELINES = {"rrmc": ResolvedRate, "neo": Neo, "reactive": Reactive, "pick": ScriptedPick}
GRASPING = ("pick",)  # the names of those whose action has one more element, the opening of the gripper


def make_baseline(name: str, env: Controlled) -> Callable[[Tensor], Tensor]:
    """A policy, (B, o_dim) -> (B, a_dim), that controls `env` and no other.

    Raises:
        ConfigError: no such baseline, or one that cannot do the task of `env`.
    """
    if name not in BASELINES:
        raise unknown("baseline", name, BASELINES)
    able = [other for other in BASELINES if (other in GRASPING) == env.task.moves_gripper]
    if name not in able:
        why = "does not grasp" if env.task.moves_gripper else "only grasps"
        raise ConfigError(f"baseline {name!r} {why}; valid choices for this task: {', '.join(('random', *able))}")
    return BASELINES[name](env)
