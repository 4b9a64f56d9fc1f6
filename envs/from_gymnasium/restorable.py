"""Where an episode stands, saved and taken up again, for environments that can tell it.

Gymnasium has no such thing. An environment of one's own has it with `state_dict()`, which gives
tensors and plain values, and `load_state_dict(state)`, which takes them back; ours have. So can a
wrapper of one's own.
"""

import json
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import torch
from gymnasium.wrappers import (
    OrderEnforcing,
    PassiveEnvChecker,
    RecordEpisodeStatistics,
    TimeLimit,
    TransformAction,
    TransformObservation,
    TransformReward,
)

from envs.from_gymnasium.checked import one_line
from td3_robot.errors import EnvError

_STATELESS = (
    *(OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit),
    *(TransformAction, TransformObservation, TransformReward),
)
_PLAIN = (bool, int, float, str, type(None))


class Restorable(gym.Wrapper):
    """Tells and takes the state of an environment and of what Gymnasium has put around it.

    Args:
        env: with all its wrappers.
        name: how errors call it.
    """

    def __init__(self, env: gym.Env, name: str):
        super().__init__(env)
        self._name = name

    @property
    def standing(self) -> dict[str, object] | None:
        """Everything that its next step depends on; None where the environment, or what is around
        it, cannot tell it.

        Raises:
            EnvError: what it tells is no tensors and plain values, or its own code fails.
        """
        core: Any = self.unwrapped
        if not _tells(core) or not all(_tells(env) or _stateless(env) for env in self._wrappers()):
            return None
        stream = json.dumps(core.np_random.bit_generator.state)  # text: its numbers have 128 bits
        wrappers = [self._told(env) for env in self._wrappers() if _tells(env)]
        limits = [limit._elapsed_steps for limit in self._limits()]
        return {
            "state": self._told(core),
            "wrappers": wrappers,
            "stream": stream,
            "elapsed": limits,
        }

    @standing.setter
    def standing(self, standing: dict[str, Any]) -> None:
        """Go on from what it told."""
        core: Any = self.unwrapped
        core.load_state_dict(standing["state"])
        for env, state in zip(filter(_tells, self._wrappers()), standing["wrappers"], strict=True):
            env.load_state_dict(state)
        core.np_random.bit_generator.state = json.loads(standing["stream"])
        for limit, elapsed in zip(self._limits(), standing["elapsed"], strict=True):
            limit._elapsed_steps = elapsed

    def _told(self, env: Any) -> object:
        try:
            state = env.state_dict()
        except (
            Exception
        ) as error:  # somebody's own code; an AttributeError would count as that of a property
            raise EnvError(f"env {self._name!r}: state_dict raised {one_line(error)}") from error
        if not _is_plain(state):
            raise EnvError(
                f"env {self._name!r}: state_dict must give tensors and plain values in lists and dicts"
            )
        return state

    def _wrappers(self) -> Iterator[Any]:
        """All that is around the core, but for this, from the outside."""
        env: gym.Env = self.env
        while isinstance(env, gym.Wrapper):
            yield env
            env = env.env

    def _limits(self) -> Iterator[TimeLimit]:
        """The wrappers that count steps."""
        return (env for env in self._wrappers() if isinstance(env, TimeLimit))


def _tells(env: gym.Env) -> bool:
    """Whether an environment or a wrapper has a state of its own that it can tell."""
    return hasattr(env, "state_dict") and hasattr(env, "load_state_dict")


def _stateless(wrapper: gym.Wrapper) -> bool:
    """Whether what a wrapper does is known to depend on the present step alone, or on a
    `TimeLimit`'s count.
    """
    owner = type(wrapper).__module__.partition(".")[0]  # somebody's subclass may keep what it likes
    return owner == "envs" or (owner == "gymnasium" and isinstance(wrapper, _STATELESS))


def _is_plain(state: object) -> bool:
    """Whether a checkpoint can hold it."""
    if isinstance(state, dict):
        return all(type(key) in (str, int) and _is_plain(value) for key, value in state.items())
    if isinstance(state, list | tuple):
        return type(state) in (list, tuple) and all(map(_is_plain, state))
    return isinstance(state, torch.Tensor) or type(state) in _PLAIN
