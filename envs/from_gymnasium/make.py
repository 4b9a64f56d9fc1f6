"""Make a VecEnv of a Gymnasium id."""

import difflib
import functools
import importlib
import importlib.metadata
import importlib.util
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import FlattenObservation

from envs.config.env_options import MOST_ENVS, VECTORS
from envs.from_gymnasium.adapter import GymnasiumEnv, is_goal_space
from envs.from_gymnasium.goals import GoalGymnasiumEnv, GoalRules
from envs.from_gymnasium.interface_checker import InterfaceChecker, format_error
from envs.from_gymnasium.own_arrays import OwnArrays
from envs.from_gymnasium.processes import make_vector_env
from envs.from_gymnasium.save_state import SaveStateWrapper
from td3_robot.errors import EXTRAS, ConfigError, install_command, require_integer, unknown
from td3_robot.utils.seeding import require_seed

# Packages that register their ids when imported: how those ids begin, and the module.
_FAMILIES = (
    (("Fetch", "Hand", "Adroit", "Franka", "PointMaze", "AntMaze"), "gymnasium_robotics"),
    (("Panda",), "panda_gym"),
    (("td3_robot/",), "envs.gymnasium_ids"),
)
_FETCH = ("Fetch", "Hand")  # ids that use gymnasium-robotics' set_joint_qpos
_FETCH_BREAKS = (3, 12)  # the first MuJoCo with which that function fails


class DiscreteAsBox(gym.ActionWrapper):
    """A Discrete action space of n as a Box of n scores in [-1, 1], of which the greatest is taken.

    The critic sees the scores, so a deterministic policy's gradient reaches all of them. Of equal
    ones the first counts.
    """

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self._discrete: Any = env.action_space
        self.action_space = spaces.Box(-1.0, 1.0, (int(self._discrete.n),), np.float32)

    def action(self, action: np.ndarray) -> np.int64:
        """Return the action of the greatest of the scores (n,)."""
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
    """Make B copies of a Gymnasium environment.

    Goal environments whose `compute_reward` needs nothing from the info become a GoalVecEnv.
    Discrete actions become scores (DiscreteAsBox); observations that are neither a Box nor a goal
    dictionary are flattened as gymnasium.spaces.flatten does it.

    Args:
        env_id: a registered id, or "module:id" to import the module first. The ids of
            gymnasium-robotics, panda-gym and our own need no module.
        num_envs: number of copies B.
        device: where tensors go; the environments run on the CPU.
        seed: of the first episodes.
        vector: "sync", the copies step one after the other, or "async", each in a process of its
            own, which pays where a step takes a millisecond or more.
        time_limit: steps until truncation; None is the environment's own limit.
        render_mode: as of `gymnasium.make`; `render` needs "rgb_array". With one an ended episode
            stays to be seen: the step after its end only starts the next (`Step.valid`).

    Raises:
        EnvError: an environment raises or breaks the interface.
        ConfigError: unknown id, a missing package, unsupported spaces, or a number out of range.
        NotFiniteError: the first observations are NaN or infinite.
    """
    num_envs = require_integer("num_envs", num_envs, 1, MOST_ENVS)
    seed = require_seed(seed)
    if vector not in VECTORS:
        raise unknown("vector", vector, VECTORS)
    _find(env_id)
    make_one = functools.partial(_make_one, env_id, time_limit, render_mode)
    autoreset = AutoresetMode.SAME_STEP if render_mode is None else AutoresetMode.NEXT_STEP
    copies: Any = make_vector_env(make_one, num_envs, vector, seed, autoreset)
    rules = _find_goal_rules(env_id) if is_goal_space(copies.single_observation_space) else ""
    if isinstance(rules, GoalRules):
        env = GoalGymnasiumEnv(copies, rules, device, seed, env_id, restorable=True)
    else:
        env = GymnasiumEnv(copies, device, seed, env_id, restorable=True)
        env.no_goals = rules
        env.notes = describe_pictures(env_id, copies.get_attr("pictures")[0])
    env.horizon = time_limit or gym.spec(env_id.rpartition(":")[2]).max_episode_steps
    return env


def _find(env_id: str) -> None:
    """Import the module that registers the id, and check that it is registered."""
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
        except Exception as error:  # a module of the user may fail in any way
            raise ConfigError(
                f"env {env_id!r}: module {module} cannot be imported: {format_error(error)}"
            ) from None
    try:
        gym.spec(name)
    except (gym.error.VersionNotFound, gym.error.DeprecatedEnv) as error:
        raise ConfigError(f"env {env_id!r}: {format_error(error)}") from None
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
    """Make one checked copy, possibly in a new process with no modules imported."""
    _find(env_id)
    try:
        # not all environments take a render mode
        mode = {} if render_mode is None else {"render_mode": render_mode}
        env = gym.make(env_id, max_episode_steps=time_limit, disable_env_checker=True, **mode)
    except Exception as error:  # code of others may fail in any way
        if "unexpected keyword argument 'render_mode'" in str(error):
            raise ConfigError(
                f"env {env_id!r} renders no pictures: it takes no render_mode={render_mode!r}"
            ) from None
        hint = _suggest_mujoco(env_id, str(error))
        raise ConfigError(f"env {env_id!r} cannot be made: {format_error(error)}{hint}") from None
    env = _check_innermost(env, env_id)
    if isinstance(env.action_space, spaces.Discrete):
        env = DiscreteAsBox(env)
    space = env.observation_space
    pictures = find_pictures(space)
    if not isinstance(space, spaces.Box) and not is_goal_space(space) and space.is_np_flattenable:
        env = FlattenObservation(env)
    made: Any = SaveStateWrapper(OwnArrays(env), env_id)
    made.pictures = pictures
    return made


def find_pictures(space: spaces.Space) -> list[tuple[int, ...]]:
    """Return the shapes of the pictures in an observation: of three axes, or of bytes in two."""
    if isinstance(space, spaces.Box):
        axes = len(space.shape)
        return [space.shape] if axes == 3 or (axes > 1 and space.dtype == np.uint8) else []
    parts = list(space) if isinstance(space, spaces.Tuple) else []
    parts = list(space.values()) if isinstance(space, spaces.Dict) else parts
    return [shape for part in parts for shape in find_pictures(part)]


def describe_pictures(env_id: str, shapes: list[tuple[int, ...]]) -> list[str]:
    """Describe in a line, if an environment observes pictures, what becomes of them."""
    if not shapes:
        return []
    numbers = sum(int(np.prod(shape)) for shape in shapes)
    return [
        f"env {env_id!r} observes pictures {', '.join(map(str, shapes))}: they enter the networks "
        f"flat, as {numbers:,} numbers without convolutions, from which TD3 hardly learns"
    ]


def _suggest_mujoco(env_id: str, message: str) -> str:
    """Suggest the MuJoCo that an environment needs, where a missing or too new one is the cause."""
    if importlib.util.find_spec("mujoco") is None:
        return f"; {install_command('mujoco')}" if "mujoco" in message.lower() else ""
    version = importlib.metadata.version("mujoco")
    name = env_id.rpartition(":")[2]
    too_new = tuple(int(part) for part in version.split(".")[:2]) >= _FETCH_BREAKS
    if not too_new or not name.startswith(_FETCH):
        return ""
    wanted = ".".join(map(str, _FETCH_BREAKS))
    remedy = install_command("gymnasium_robotics")
    return f"; it needs MuJoCo below {wanted}, and {version} is installed; {remedy}"


def _check_innermost(env: gym.Env, name: str) -> gym.Env:
    """Put an InterfaceChecker around the core, below all of Gymnasium's wrappers."""
    outer = None
    core = env
    while isinstance(core, gym.Wrapper):
        outer = core
        core = core.env
    checked = InterfaceChecker(core, name)
    if outer is None:
        return checked
    outer.env = checked
    return env


def _find_goal_rules(env_id: str) -> GoalRules | str:
    """Return reward and termination as functions of goals, or why there are none."""
    env = _make_one(env_id)
    try:
        return GoalRules(env)
    except Exception as error:  # no compute_reward, or one that fails outside of a step
        env.close()
        return f"compute_reward cannot be asked about other goals: {format_error(error)}"
