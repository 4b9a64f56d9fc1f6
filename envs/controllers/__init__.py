"""Classical controllers to compare a policy with, called like a policy.

They use what a controller on the real robot would know: the observed state, the goal and the
surroundings.
"""

from collections.abc import Callable

from torch import Tensor

from envs.controllers.controlled import Controlled
from envs.controllers.follow_replanned_path import FollowReplannedPath
from envs.controllers.follow_solution import FollowSolution
from envs.controllers.neo import Neo
from envs.controllers.reactive import Reactive
from envs.controllers.resolved_rate import ResolvedRate
from envs.controllers.scripted_pick import ScriptedPick
from envs.controllers.scripted_push import ScriptedPush
from td3_robot.errors import ConfigError, unknown

__all__ = [
    "BASELINES",
    "FollowReplannedPath",
    "FollowSolution",
    "Neo",
    "Reactive",
    "ResolvedRate",
    "ScriptedPick",
    "ScriptedPush",
    "make_baseline",
    "register_controller",
]

BASELINES: dict[str, Callable] = {
    "rrmc": ResolvedRate,
    "neo": Neo,
    "reactive": Reactive,
    "ik": FollowSolution,
    "replan": FollowReplannedPath,
    "pick": ScriptedPick,
    "push": ScriptedPush,
}


def register_controller(name: str) -> Callable[[type], type]:
    """Register a class as the baseline `name`; a decorator, for a task's own file.

    The class is made with an environment and called as a policy, (B, o_dim) -> (B, a_dim). The
    first line of its docstring describes it in `--list baselines`. Tasks that it can do have its
    name among their `controllers`.

    Raises:
        ConfigError: another controller has that name.
    """

    def register(cls: type) -> type:
        known = BASELINES.get(name)
        if known is not None and known.__qualname__ != cls.__qualname__:
            raise ConfigError(f"baseline {name!r} is there already; choose another name")
        BASELINES[name] = cls
        return cls

    return register


def make_baseline(name: str, env: Controlled) -> Callable[[Tensor], Tensor]:
    """Build a policy, (B, o_dim) -> (B, a_dim), that controls `env` and no other.

    Raises:
        ConfigError: no such baseline, or one that cannot do the task of `env`.
    """
    if name not in BASELINES:
        raise unknown("baseline", name, BASELINES)
    if name not in env.task.controllers:
        able = ", ".join(env.task.controllers) or "none"
        raise ConfigError(f"baseline {name!r} cannot do this task; valid choices for it: {able}")
    return BASELINES[name](env)
