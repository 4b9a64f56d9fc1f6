"""Gymnasium environments that can tell where they stand go on from there, to the bit."""

import io

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import (
    DtypeObservation,
    FrameStackObservation,
    NormalizeObservation,
    RescaleAction,
    TimeLimit,
)

from envs.from_gymnasium import GymnasiumEnv, make_gymnasium
from envs.from_gymnasium.processes import make_vector_env
from envs.from_gymnasium.save_state import SaveStateWrapper
from td3_robot.errors import EnvError


class Wanderer(gym.Env):
    """A place on a line that chance pushes about."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,))
    action_space = spaces.Box(-1, 1, (1,))
    place = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal()
        return np.array([self.place]), {}

    def step(self, action):
        self.place += float(action[0]) + self.np_random.normal()
        return np.array([self.place]), -abs(self.place), abs(self.place) > 5, False, {}

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class Strange(Wanderer):
    def state_dict(self):
        return {"place": np.array([self.place])}


class Mistaken(Wanderer):
    def state_dict(self):
        return {"place": self.plaice}


class Doubling(gym.ObservationWrapper):
    """Somebody's, which could keep anything."""

    def observation(self, observation):
        return 2 * observation


class Summing(Doubling):
    """The sum of all that was seen, and it tells where it stands."""

    total = 0.0

    def observation(self, observation):
        self.total += float(observation[0])
        return np.array([self.total])

    def state_dict(self):
        return {"total": self.total}

    def load_state_dict(self, state):
        self.total = state["total"]


def toy(
    vector: str = "sync",
    seed: int = 0,
    kind: type[gym.Env] = Wanderer,
    around=lambda env: env,
    autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
) -> GymnasiumEnv:
    """Three wanderers, whose episodes are cut after seven steps."""

    def make_one():
        return SaveStateWrapper(around(TimeLimit(kind(), 7)), "toy")

    copies = make_vector_env(make_one, 3, vector, autoreset=autoreset)
    return GymnasiumEnv(copies, seed=seed, restorable=True)


def play(env: GymnasiumEnv, steps: int) -> list[torch.Tensor]:
    """All that comes of the same actions, whatever the environment."""
    numbers = torch.Generator().manual_seed(steps)
    seen = []
    for _ in range(steps):
        step = env.step(torch.rand(3, env.a_dim, generator=numbers) * 2 - 1)
        seen += [
            step.observation,
            step.next_observation,
            step.reward,
            step.terminated,
            step.truncated,
        ]
    return seen


def on_disk(state: dict) -> dict:
    """What a checkpoint gives back."""
    file = io.BytesIO()
    torch.save(state, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: toy("sync", seed),
        lambda seed: toy("async", seed),
        lambda seed: toy(seed=seed, around=Summing),
        lambda seed: toy(
            seed=seed, around=lambda env: RescaleAction(DtypeObservation(env, np.float32), -2, 2)
        ),
        lambda seed: make_gymnasium("td3_robot/PandaReach-v0", 3, seed=seed),
        lambda seed: make_gymnasium("td3_robot/Ur5eTrackGoal-v0", 3, seed=seed, time_limit=9),
    ],
    ids=["sync", "async", "wrapper with a state", "without", "ours", "ours with goals"],
)
def test_it_goes_on_where_it_stood(make):
    env = make(1)
    other = make(2)
    play(env, 11)
    state = on_disk(env.state_dict())
    observation = env._observation.clone()
    expected = play(env, 25)
    play(other, 3)
    assert torch.equal(other.load_state_dict(state), observation) and other.restored
    assert all(map(torch.equal, play(other, 25), expected))
    for one in (env, other):
        one.close()


def test_one_that_cannot_tell_begins_new_episodes():
    env = make_gymnasium("Pendulum-v1", 3)
    assert env.state_dict().keys() == {"seed", "steps"}
    env.load_state_dict(env.state_dict())
    assert not env.restored


def test_after_the_end_of_an_episode_that_is_still_to_be_seen_new_ones_begin():
    """Or the ended one would go on, and its steps would count. Every episode has seven steps."""

    class Near(Wanderer):
        def step(self, action):
            return np.zeros(1), 0.0, False, False, {}

    env, other = (toy(kind=Near, autoreset=AutoresetMode.NEXT_STEP, seed=seed) for seed in (1, 2))
    restored = []
    for _ in range(10):
        play(env, 1)
        other.load_state_dict(env.state_dict())
        restored.append(other.restored)
        valid = other.step(torch.zeros(3, 1)).valid
        assert valid is not None and valid.all()
    assert restored == [True] * 6 + [False] + [True] * 3


@pytest.mark.parametrize(
    "around", [NormalizeObservation, lambda env: FrameStackObservation(env, 3), Doubling]
)
def test_what_is_around_it_and_cannot_tell_begins_new_episodes(around):
    """Or it would go on with other observations, and say that all is as it was."""
    assert toy(around=around).state_dict().keys() == {"seed", "steps"}


def test_a_mistake_in_its_state_dict_is_told():
    with pytest.raises(EnvError, match="env 'toy': state_dict raised AttributeError.*plaice"):
        toy(kind=Mistaken).state_dict()


def test_what_no_checkpoint_can_hold_is_named():
    with pytest.raises(
        EnvError,
        match="env 'toy': state_dict must give tensors and plain values in lists and dicts",
    ):
        toy(kind=Strange).state_dict()
