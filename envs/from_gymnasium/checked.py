"""An environment held to Gymnasium's interface: what breaks it is named in one line.

https://gymnasium.farama.org/api/env has the interface.
"""

import reprlib
from collections.abc import Callable, Mapping

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from td3_robot.errors import EnvError, Td3RobotError


class Checked(gym.Wrapper):
    """Passes on what an environment returns, if it is what Gymnasium says.

    Numbers may come as arrays of one. Values outside the bounds of a Box are taken, as so many
    environments give them.

    Args:
        env: the environment itself, below all wrappers.
        name: how errors call it.

    Raises:
        EnvError: by `reset` and `step`, where the environment raises, or returns anything else. It
            tells the step, the episode and the seed, with which it happens again.
    """

    def __init__(self, env: gym.Env, name: str):
        super().__init__(env)
        self._name = name
        self._seed: int | None = None
        self._episode = self._time = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[object, dict]:
        """See `gymnasium.Env.reset`."""
        self._episode, self._time = (1 if seed is not None else self._episode + 1), 0
        self._seed = self._seed if seed is None else seed
        returned = self._call("reset", self.env.reset, seed=seed, options=options)
        observation, info = self._parts("reset", returned, ("observation", "info"))
        self._require_observation(observation)
        self._require_info(info)
        return observation, info

    def step(self, action: object) -> tuple[object, float, bool, bool, dict]:
        """See `gymnasium.Env.step`."""
        self._time += 1
        returned = self._call("step", self.env.step, action)
        names = ("observation", "reward", "terminated", "truncated", "info")
        observation, reward, terminated, truncated, info = self._parts("step", returned, names)
        self._require_observation(observation)
        self._require_info(info)
        ended, cut = self._number("terminated", terminated), self._number("truncated", truncated)
        return observation, float(self._number("reward", reward)), bool(ended), bool(cut), info

    def _call(self, what: str, method: Callable, *args, **kwargs) -> object:
        try:
            return method(*args, **kwargs)
        except Td3RobotError:
            raise
        except Exception as error:  # an environment's own code, which may fail in any way
            raise self._error(f"{what} raised {one_line(error)}") from error

    def _parts(self, what: str, returned: object, names: tuple[str, ...]) -> tuple:
        """What a call returned, taken apart."""
        if isinstance(returned, tuple) and len(returned) == len(names):
            return returned
        got = f"{len(returned)} values" if isinstance(returned, tuple) else _described(returned)
        raise self._error(f"{what} must return ({', '.join(names)}), got {got}")

    def _require_observation(self, observation: object) -> None:
        space = self.env.observation_space
        if not fits(space, observation):
            raise self._error(
                f"observation must be of {str(space)[:120]}, got {_described(observation)}"
            )

    def _number(self, what: str, value: object) -> int | float | bool:
        """The one real number that a value is."""
        if isinstance(value, float | int):
            return value
        array = _array(value)
        if array is None or array.size != 1:
            raise self._error(f"{what} must be one real number, got {_described(value)}")
        return array.item()

    def _require_info(self, info: object) -> None:
        if not isinstance(info, dict):
            raise self._error(f"info must be a dict, got {_described(info)}")

    def _error(self, what: str) -> EnvError:
        where = f"step {self._time} of episode {self._episode} after reset(seed={self._seed})"
        return EnvError(f"env {self._name!r}, {where}: {what}")


def fits(space: spaces.Space, value: object) -> bool:
    """Whether a value has the structure, shapes and kind of numbers of a space; numbers may be
    beyond its bounds.
    """
    if isinstance(space, spaces.Box):
        array = _array(value)
        return array is not None and array.shape == space.shape
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or value.keys() != space.spaces.keys():
            return False
        return all(fits(part, value[key]) for key, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            return False
        return all(map(fits, space.spaces, value))
    return space.contains(value)


def _array(value: object) -> np.ndarray | None:
    """Real numbers as an array; None where they are none, or have no shape."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    return array if array.dtype.kind in "biuf" else None


def _described(value: object) -> str:
    """What came, in a few words."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    return f"{type(value).__name__} {reprlib.repr(value)}"


def one_line(error: Exception) -> str:
    """An error of somebody else's code in a line that is not too long."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
