"""Check that an environment follows Gymnasium's interface, https://gymnasium.farama.org/api/env."""

import reprlib
from collections.abc import Callable, Mapping

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from envs.from_gymnasium.own_arrays import SUCCESS_KEYS
from td3_robot.errors import EnvError, Td3RobotError


class InterfaceChecker(gym.Wrapper):
    """Wrapper that checks what an environment returns.

    Numbers may be arrays of one element. Values outside the bounds of a Box are accepted, since
    many environments return them.

    Args:
        env: the environment itself, below all wrappers.
        name: its name in errors.

    Raises:
        EnvError: by `reset` and `step`, if the environment raises or returns anything else; with
            step, episode and seed to reproduce it.
    """

    def __init__(self, env: gym.Env, name: str):
        super().__init__(env)
        self._name = name
        self._seed: int | None = None
        self._episode = self._time = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[object, dict]:
        """Reset the environment and check what it returns."""
        self._episode = 1 if seed is not None else self._episode + 1
        self._time = 0
        self._seed = self._seed if seed is None else seed
        returned = self._call("reset", self.env.reset, seed=seed, options=options)
        observation, info = self._unpack("reset", returned, ("observation", "info"))
        self._require_observation(observation)
        self._require_info(info)
        return observation, info

    def step(self, action: object) -> tuple[object, float, bool, bool, dict]:
        """Step the environment and check what it returns."""
        self._time += 1
        returned = self._call("step", self.env.step, action)
        names = ("observation", "reward", "terminated", "truncated", "info")
        observation, reward, terminated, truncated, info = self._unpack("step", returned, names)
        self._require_observation(observation)
        self._require_info(info)
        ended = bool(self._convert_to_number("terminated", terminated))
        cut = bool(self._convert_to_number("truncated", truncated))
        return observation, float(self._convert_to_number("reward", reward)), ended, cut, info

    def _call(self, what: str, method: Callable, *args, **kwargs) -> object:
        try:
            return method(*args, **kwargs)
        except Td3RobotError:
            raise
        except Exception as error:  # an environment's own code, which may fail in any way
            raise self._make_error(f"{what} raised {format_error(error)}") from error

    def _unpack(self, what: str, returned: object, names: tuple[str, ...]) -> tuple:
        """Unpack the tuple that a call returned."""
        if isinstance(returned, tuple) and len(returned) == len(names):
            return returned
        got = f"{len(returned)} values" if isinstance(returned, tuple) else _describe(returned)
        raise self._make_error(f"{what} must return ({', '.join(names)}), got {got}")

    def _require_observation(self, observation: object) -> None:
        space = self.env.observation_space
        if not is_compatible(space, observation):
            raise self._make_error(
                f"observation must be of {str(space)[:120]}, got {_describe(observation)}"
            )

    def _convert_to_number(self, what: str, value: object) -> int | float | bool:
        """Convert a value to one real number."""
        if isinstance(value, float | int):
            return value
        array = _convert_to_array(value)
        if array is None or array.size != 1:
            raise self._make_error(f"{what} must be one real number, got {_describe(value)}")
        return array.item()

    def _require_info(self, info: object) -> None:
        if not isinstance(info, dict):
            raise self._make_error(f"info must be a dict, got {_describe(info)}")
        for key in info.keys() & set(SUCCESS_KEYS):
            if info[key] is not None and _convert_to_array(info[key]) is None:
                raise self._make_error(
                    f"info[{key!r}] must be true or false, got {_describe(info[key])}"
                )

    def _make_error(self, what: str) -> EnvError:
        where = f"step {self._time} of episode {self._episode} after reset(seed={self._seed})"
        return EnvError(f"env {self._name!r}, {where}: {what}")


def is_compatible(space: spaces.Space, value: object) -> bool:
    """Return whether a value has a space's structure, shapes and kind of numbers, bounds aside."""
    if isinstance(space, spaces.Box):
        array = _convert_to_array(value)
        return array is not None and array.shape == space.shape
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or value.keys() != space.spaces.keys():
            return False
        return all(is_compatible(part, value[key]) for key, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            return False
        return all(map(is_compatible, space.spaces, value))
    return space.contains(value)


def _convert_to_array(value: object) -> np.ndarray | None:
    """Convert real numbers to an array; return None for anything else."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    return array if array.dtype.kind in "biuf" else None


def _describe(value: object) -> str:
    """Describe a value in a few words."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    return f"{type(value).__name__} {reprlib.repr(value)}"


def format_error(error: Exception) -> str:
    """Format an error of code of others as one short line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
