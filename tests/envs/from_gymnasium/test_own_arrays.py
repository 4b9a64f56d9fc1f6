"""Environments that fill the same arrays at every step and reset: the true successor is kept."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from envs.config.notices import warn_once
from envs.from_gymnasium import GymnasiumEnv, make_gymnasium
from envs.from_gymnasium.adapter import GOAL_KEYS
from envs.from_gymnasium.own_arrays import OwnArrays

KINDS = ("box", "dict", "goals", "tuple", "shared")
BOX = spaces.Box(-10, 10, (1,), np.float32)
EVERYBODYS = np.zeros(1, np.float32)  # one array for all copies


class Counting(gym.Env):
    """Counts 1, 2, 3 in arrays that it uses again; an episode ends at 3, with success."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, kind: str = "box"):
        own = np.zeros(1, np.float32)
        parts = {key: np.zeros(1, np.float32) for key in GOAL_KEYS}
        first = dict(list(parts.items())[:2])
        self.observation, self.observation_space = {
            "box": (own, BOX),
            "dict": (first, spaces.Dict({key: BOX for key in first})),
            "goals": (parts, spaces.Dict({key: BOX for key in parts})),
            "tuple": ((own, own), spaces.Tuple((BOX, BOX))),
            "shared": (EVERYBODYS, BOX),
        }[kind]
        self.arrays = [own, *parts.values(), EVERYBODYS]
        self.reward = np.zeros(())
        self.info = {"is_success": np.zeros((), bool)}

    def _tell(self, count: int):
        for array in self.arrays:
            array[0] = count
        self.reward[...] = count
        self.info["is_success"][...] = count == 3
        return self.observation

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._tell(0), self.info

    def step(self, action):
        self.count += 1
        return self._tell(self.count), self.reward, False, self.count == 3, self.info


def check(env: GymnasiumEnv) -> None:
    """Play two episodes; all columns of an observation are the count."""
    env.reset(0)
    count = 0
    for _ in range(9):
        step = env.step(torch.zeros(2, 1))
        if step.valid is not None and not step.valid.any():
            count = 0
            continue
        count = count % 3 + 1
        assert (step.next_observation == count).all(), count
        assert step.info["success"].tolist() == [count == 3] * 2
        assert step.reward.tolist() == [count] * 2
        assert step.truncated.tolist() == [count == 3] * 2
        assert (step.observation == (count if step.valid is not None else count % 3)).all()
    env.close()


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for kind in KINDS:
        spec = gym.envs.registration.EnvSpec(f"Counting{kind}-v0", Counting, kwargs={"kind": kind})
        monkeypatch.setitem(gym.registry, spec.id, spec)


@pytest.mark.parametrize("vector", ["sync", "async"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_successor_is_the_last_observation_of_the_episode(kind, vector):
    check(make_gymnasium(f"Counting{kind}-v0", 2, vector=vector))


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("kind", KINDS)
def test_also_in_a_vector_environment_that_somebody_else_made(kind, mode):
    if kind == "dict" or kind == "tuple":
        copies = [lambda: gym.wrappers.FlattenObservation(Counting(kind))] * 2
    else:
        copies = [lambda: Counting(kind)] * 2
    check(GymnasiumEnv(SyncVectorEnv(copies, copy=False, autoreset_mode=mode)))


@pytest.mark.parametrize("wrapped", [False, True])
def test_processes_of_somebody_else_that_lose_the_successor_are_warned_of(wrapped, capsys):
    warn_once.cache_clear()
    copies = [lambda: OwnArrays(Counting()) if wrapped else Counting()] * 2
    env = GymnasiumEnv(AsyncVectorEnv(copies, autoreset_mode=AutoresetMode.SAME_STEP))
    env.reset(0)
    for _ in range(3):
        step = env.step(torch.zeros(2, 1))
    env.close()
    assert (step.next_observation == (3 if wrapped else 0)).all()
    assert ("OwnArrays around each" in capsys.readouterr().err) is not wrapped
