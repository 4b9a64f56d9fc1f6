"""Any Gymnasium id as a VecEnv."""

import difflib
import functools
import importlib
import importlib.util
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation

from envs.config.env_options import VECTORS
from envs.from_gymnasium.adapter import GymnasiumEnv, is_goal_space
from envs.from_gymnasium.checked import Checked, one_line
from envs.from_gymnasium.goals import GoalGymnasiumEnv, GoalRules
from envs.from_gymnasium.processes import vectorized
from envs.from_gymnasium.restorable import Restorable
from td3_robot.errors import EXTRAS, ConfigError, install_command, unknown

# Packages that register their ids when imported: how those ids begin, and the module.
_FAMILIES = (
    (("Fetch", "Hand", "Adroit", "Franka", "PointMaze", "AntMaze"), "gymnasium_robotics"),
    (("Panda",), "panda_gym"),
    (("td3_robot/",), "envs.gymnasium_ids"),
)


class DiscreteAsBox(gym.ActionWrapper):
    """A Discrete action space of n as a Box of n scores in [-1, 1]; the action with the greatest
    score is taken.

    The gradient of a deterministic policy reaches every score through the critic, which sees the
    scores rather than the choice. Of equal scores the first one counts.
    """

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self._discrete: Any = env.action_space
        self.action_space = spaces.Box(-1.0, 1.0, (int(self._discrete.n),), np.float32)

    def action(self, action: np.ndarray) -> np.int64:
        """Scores (n,) -> the chosen action."""
        return self._discrete.start + np.argmax(action)


def make_gymnasium(
    env_id: str,
    num_envs: int = 1,
    device: torch.device | str = "cpu",
    seed: int = 0,
    *,
    vector: str = "sync",
    time_limit: int | None = None,
    render_mode: str | None = None,
) -> GymnasiumEnv | GoalGymnasiumEnv:
    """Build B copies of a Gymnasium environment.

    Goal environments whose `compute_reward` needs nothing from the info become a GoalVecEnv.
    Discrete actions become scores (DiscreteAsBox); observations that are neither a Box nor a goal
    dictionary are flattened as gymnasium.spaces.flatten does it.

    Args:
        env_id: a registered id, or "module:id" to import the module first. The ids of
            gymnasium-robotics, panda-gym and our own need no module.
        num_envs: copies.
        device: where tensors go; the environments run on the CPU.
        seed: of the first episodes.
        vector: "sync", the copies step one after the other, or "async", each in a process of its
            own, which pays where a step takes a millisecond or more.
        time_limit: steps after which an episode is truncated, in place of the environment's own
            limit.
        render_mode: as of `gymnasium.make`; "rgb_array" where `picture` is to be asked for.

    Raises:
        EnvError: an environment that raises or returns what it should not.
        ConfigError: no such id, something it needs is not installed, or spaces that cannot be
            learned with.
        NotFiniteError: the first observations are NaN or infinite.
    """
    if num_envs < 1:
        raise ConfigError(f"num_envs must be at least 1, got {num_envs}")
    if vector not in VECTORS:
        raise unknown("vector", vector, VECTORS)
    _find(env_id)
    copies = vectorized(
        functools.partial(_make_one, env_id, time_limit, render_mode), num_envs, vector
    )
    rules = _goal_rules(env_id) if is_goal_space(copies.single_observation_space) else ""
    if isinstance(rules, GoalRules):
        return GoalGymnasiumEnv(copies, rules, device, seed, env_id, restorable=True)
    env = GymnasiumEnv(copies, device, seed, env_id, restorable=True)
    env.no_goals = rules
    return env


def _find(env_id: str) -> None:
    """Import what registers the id, and check that it is registered."""
    module, _, name = env_id.rpartition(":")
    for prefixes, family in _FAMILIES:
        if not module and name not in gym.registry and name.startswith(prefixes):
            module = family
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            remedy = f"; {install_command(module)}" if module in EXTRAS else ""
            raise ConfigError(f"env {env_id!r} needs {module} ({error}){remedy}") from None
        except Exception as error:  # a module of the user's own, which may fail in any way
            raise ConfigError(
                f"env {env_id!r}: module {module} cannot be imported: {one_line(error)}"
            ) from None
    try:
        gym.spec(name)
    except (gym.error.VersionNotFound, gym.error.DeprecatedEnv) as error:
        raise ConfigError(f"env {env_id!r}: {one_line(error)}") from None
    except gym.error.Error:
        near = [repr(known) for known in difflib.get_close_matches(name, gym.registry, n=3)]
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else "gymnasium.pprint_registry() lists the known ones"
        )
        raise ConfigError(f"unknown env {env_id!r}; {hint}") from None


def _make_one(
    env_id: str, time_limit: int | None = None, render_mode: str | None = None
) -> gym.Env:
    """One copy, checked; called in a process of its own it knows only what it imports."""
    _find(env_id)
    try:
        drawn = (
            {} if render_mode is None else {"render_mode": render_mode}
        )  # not all that are made know the word
        env = gym.make(env_id, max_episode_steps=time_limit, disable_env_checker=True, **drawn)
    except Exception as error:  # an environment's own code, which may fail in any way
        no_mujoco = "mujoco" in str(error).lower() and importlib.util.find_spec("mujoco") is None
        hint = f"; {install_command('mujoco')}" if no_mujoco else ""
        raise ConfigError(f"env {env_id!r} cannot be made: {one_line(error)}{hint}") from None
    env = _check_innermost(env, env_id)
    if isinstance(env.action_space, spaces.Discrete):
        env = DiscreteAsBox(env)
    space = env.observation_space
    if not isinstance(space, spaces.Box) and not is_goal_space(space) and space.is_np_flattenable:
        env = FlattenObservation(env)
    return Restorable(env, env_id)


def _check_innermost(env: gym.Env, name: str) -> gym.Env:
    """The same with its core checked, so that none of Gymnasium's own wrappers meets what is
    wrong.
    """
    outer, core = None, env
    while isinstance(core, gym.Wrapper):
        outer, core = core, core.env
    checked = Checked(core, name)
    if outer is None:
        return checked
    outer.env = checked
    return env


def _goal_rules(env_id: str) -> GoalRules | str:
    """The reward and termination as functions of goals, or why there are no such functions."""
    env = _make_one(env_id)
    try:
        return GoalRules(env)
    except (
        Exception
    ) as error:  # no compute_reward, one that needs what only a step knows, or a mistake in it
        env.close()
        return f"compute_reward cannot be asked about other goals: {one_line(error)}"
