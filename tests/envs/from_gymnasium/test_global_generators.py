"""Environments that draw from the global generators of Python, numpy and torch: a seed fixes them,
in processes of their own, too, and a resume goes on with them.
"""

import random

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from envs.from_gymnasium import make_gymnasium
from td3_robot.evaluation.rollout import evaluate
from td3_robot.utils.seeding import (
    fork_global_generators,
    get_global_generators,
    seed_global_generators,
    set_global_generators,
)


class Drawing(gym.Env):
    """Observes what the three generators give; saves its count, which is all its own state."""

    observation_space = spaces.Box(-10, 10, (4,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self):
        self.made = random.random()  # already as it is made

    def _observe(self):
        return np.array([self.made, *draw()], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._observe(), {}

    def step(self, action):
        self.count += 1
        observation = self._observe()
        return observation, float(observation.sum()), False, self.count == 5, {}

    def state_dict(self):
        return {"count": self.count, "made": self.made}

    def load_state_dict(self, state):
        self.count = state["count"]
        self.made = state["made"]


def draw() -> list[float]:
    return [random.gauss(), np.random.standard_normal(), torch.randn(()).item()]


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(
        gym.registry, "Drawing-v0", gym.envs.registration.EnvSpec("Drawing-v0", Drawing)
    )


def play(env, steps: int = 8) -> list[list[float]]:
    return [env.step(torch.zeros(2, 1)).next_observation.tolist() for _ in range(steps)]


def test_a_seed_fixes_all_three_and_uses_and_seeds_differ():
    drawn = []
    for seed, use in ((3, "a"), (3, "a"), (3, "b"), (4, "a")):
        seed_global_generators(seed, use)
        drawn.append(draw() + draw())
    assert drawn[0] == drawn[1]
    assert len({value for row in drawn[1:] for value in row}) == 18


def test_states_are_restored_in_the_middle_of_a_pair_of_gaussian_numbers():
    seed_global_generators(0, "a")
    draw()
    state = get_global_generators()
    expected = [draw() for _ in range(700)]  # beyond the 624 numbers that are made at once
    set_global_generators(state)
    assert [draw() for _ in range(700)] == expected


def test_a_fork_gives_them_back():
    state = get_global_generators()
    expected = draw()
    set_global_generators(state)
    with fork_global_generators(1, "a"):
        inside = draw()
    assert draw() == expected
    with fork_global_generators(1, "a"):
        assert draw() == inside


@pytest.mark.parametrize("vector", ["sync", "async"])
def test_an_evaluation_is_of_the_same_episodes_whatever_was_drawn_before(vector):
    env = make_gymnasium("Drawing-v0", 2, seed=1, vector=vector)
    scores = []
    for _ in range(2):
        before = get_global_generators()
        scores.append(evaluate(lambda o: torch.zeros(2, 1), env, seed=5))
        after = get_global_generators()
        assert torch.equal(before["torch"], after["torch"])
        assert before["numpy"]["pos"] == after["numpy"]["pos"]
        draw()
    env.close()
    assert scores[0] == scores[1]


def test_a_seed_fixes_processes_and_these_differ():
    played = []
    for seed in (1, 1, 2):
        env = make_gymnasium("Drawing-v0", 2, seed=seed, vector="async")
        played.append([env.reset(seed).tolist(), *play(env)])
        env.close()
    assert played[0] == played[1] != played[2]
    assert all(one != other for one, other in played[0])
    assert played[0][0][0][0] != played[0][0][1][0]  # what was drawn as they were made


def test_processes_go_on_in_the_middle_of_an_episode():
    env = make_gymnasium("Drawing-v0", 2, seed=1, vector="async")
    play(env, 3)
    state = env.state_dict()
    expected = play(env)
    env.close()
    other = make_gymnasium("Drawing-v0", 2, seed=9, vector="async")
    assert torch.equal(other.load_state_dict(state), state["observation"])
    assert play(other) == expected
    other.close()
