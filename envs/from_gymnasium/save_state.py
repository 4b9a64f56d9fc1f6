"""Saving and restoring of the state of a Gymnasium environment in the middle of an episode.

Gymnasium has no interface for it. An environment or wrapper supports it by `state_dict()`, which
returns tensors and plain values, and `load_state_dict(state)`; ours do.
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

from envs.from_gymnasium.interface_checker import format_error
from td3_robot.errors import EnvError

_STATELESS = (
    *(OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit),
    *(TransformAction, TransformObservation, TransformReward),
)
_PLAIN = (bool, int, float, str, type(None))


class SaveStateWrapper(gym.Wrapper):
    """Wrapper that saves and restores an environment's state with that of its wrappers.

    Args:
        env: the environment with all its wrappers.
        name: its name in errors.
    """

    def __init__(self, env: gym.Env, name: str):
        super().__init__(env)
        self._name = name

    @property
    def saved_state(self) -> dict[str, object] | None:
        """State that the next step depends on; None where env or wrappers do not support it.

        Raises:
            EnvError: the state has other than tensors and plain values, or `state_dict` fails.
        """
        core: Any = self.unwrapped
        if not _has_state(core):
            return None
        if not all(_has_state(env) or _is_stateless(env) for env in self._iter_wrappers()):
            return None
        return {
            "state": self._get_state(core),
            "wrappers": [self._get_state(env) for env in self._iter_wrappers() if _has_state(env)],
            "stream": json.dumps(core.np_random.bit_generator.state),  # has integers of 128 bits
            "elapsed": [limit._elapsed_steps for limit in self._iter_time_limits()],
        }

    @saved_state.setter
    def saved_state(self, saved: dict[str, Any]) -> None:
        """Restore a saved state."""
        core: Any = self.unwrapped
        core.load_state_dict(saved["state"])
        stateful = filter(_has_state, self._iter_wrappers())
        for env, state in zip(stateful, saved["wrappers"], strict=True):
            env.load_state_dict(state)
        core.np_random.bit_generator.state = json.loads(saved["stream"])
        for limit, elapsed in zip(self._iter_time_limits(), saved["elapsed"], strict=True):
            limit._elapsed_steps = elapsed

    def _get_state(self, env: Any) -> object:
        try:
            state = env.state_dict()
        # code of others; an AttributeError would look like a missing property
        except Exception as error:
            raise EnvError(
                f"env {self._name!r}: state_dict raised {format_error(error)}"
            ) from error
        if not _is_plain(state):
            raise EnvError(
                f"env {self._name!r}: state_dict must give tensors and plain values in lists and "
                "dicts"
            )
        return state

    def _iter_wrappers(self) -> Iterator[Any]:
        """Iterate over all wrappers but this one, from the outside."""
        env: gym.Env = self.env
        while isinstance(env, gym.Wrapper):
            yield env
            env = env.env

    def _iter_time_limits(self) -> Iterator[TimeLimit]:
        """Iterate over the wrappers that count steps."""
        return (env for env in self._iter_wrappers() if isinstance(env, TimeLimit))


def _has_state(env: gym.Env) -> bool:
    return hasattr(env, "state_dict") and hasattr(env, "load_state_dict")


def _is_stateless(wrapper: gym.Wrapper) -> bool:
    """Return whether a wrapper is known to keep no state, a `TimeLimit`'s count excepted."""
    owner = type(wrapper).__module__.partition(".")[0]  # subclasses of others may keep state
    return owner == "envs" or (owner == "gymnasium" and isinstance(wrapper, _STATELESS))


def _is_plain(state: object) -> bool:
    """Return whether a checkpoint can hold the state."""
    if isinstance(state, dict):
        return all(type(key) in (str, int) and _is_plain(value) for key, value in state.items())
    if isinstance(state, list | tuple):
        return type(state) in (list, tuple) and all(map(_is_plain, state))
    return isinstance(state, torch.Tensor) or type(state) in _PLAIN
