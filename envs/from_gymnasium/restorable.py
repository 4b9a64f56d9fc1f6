"""Where an episode stands, saved and taken up again, for environments that can tell it.

Gymnasium has no such thing. An environment of one's own has it with `state_dict()`, which gives tensors and plain
values, and `load_state_dict(state)`, which takes them back; ours have.
"""

import json
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import torch
from gymnasium.wrappers import TimeLimit

from td3_robot.errors import EnvError

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
        """Everything that its next step depends on; None where the environment cannot tell it.

        Raises:
            EnvError: what it tells is no tensors and plain values.
        """
        core: Any = self.unwrapped
        if not (hasattr(core, "state_dict") and hasattr(core, "load_state_dict")):
            return None
        if not _is_plain(state := core.state_dict()):
            raise EnvError(f"env {self._name!r}: state_dict must give tensors and plain values in lists and dicts")
        stream = json.dumps(core.np_random.bit_generator.state)  # text: its numbers have 128 bits
        return {"state": state, "stream": stream, "elapsed": [limit._elapsed_steps for limit in self._limits()]}

    @standing.setter
    def standing(self, standing: dict[str, Any]) -> None:
        """Go on from what it told."""
        core: Any = self.unwrapped
        core.load_state_dict(standing["state"])
        core.np_random.bit_generator.state = json.loads(standing["stream"])
        for limit, elapsed in zip(self._limits(), standing["elapsed"], strict=True):
            limit._elapsed_steps = elapsed

    def _limits(self) -> Iterator[TimeLimit]:
        """The wrappers that count steps."""
        env: gym.Env = self.env
        while isinstance(env, gym.Wrapper):
            if isinstance(env, TimeLimit):
                yield env
            env = env.env


def _is_plain(state: object) -> bool:
    """Whether a checkpoint can hold it."""
    if isinstance(state, dict):
        return all(type(key) in (str, int) and _is_plain(value) for key, value in state.items())
    if isinstance(state, list | tuple):
        return type(state) in (list, tuple) and all(map(_is_plain, state))
    return isinstance(state, torch.Tensor) or type(state) in _PLAIN
