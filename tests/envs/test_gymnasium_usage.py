"""Gymnasium ids under what learners do beside the plain loop: pictures, pickles, waiting arms."""

import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.error import ResetNeeded

from envs.gymnasium_ids import make_env_id
from td3_robot.errors import ConfigError, NotFiniteError, ViewerError

REACH = make_env_id("panda", "reach", "")


def actions(steps: int, num_envs: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(steps, num_envs, 7, generator=generator) * 2 - 1


def test_the_action_of_a_waiting_arm_is_ignored_whatever_it_is():
    """A learner may send anything to an arm whose next step is its reset, as Gymnasium says."""
    make = {"num_envs": 3, "vectorization_mode": "vector_entry_point", "autoreset_mode": "NextStep"}
    plain, odd = (gym.make_vec(REACH, **make) for _ in range(2))
    ended = np.zeros(3, bool)
    waits = 0
    for env in (plain, odd):
        env.reset(seed=3)
    for action in actions(130, 3).numpy():
        strange = np.where(ended[:, None], np.nan, action)
        waits += int(ended.sum())
        expected, found = plain.step(action), odd.step(strange)
        for one, other in zip(expected[:4], found[:4]):
            np.testing.assert_array_equal(one, other)
        ended = expected[2] | expected[3]
    assert waits >= 3
    with pytest.raises(NotFiniteError, match="NaN"):
        odd.step(np.full((3, 7), np.nan, np.float32))


def test_a_reset_of_some_arms_alone_is_refused():
    env = gym.make_vec(REACH, num_envs=2)
    with pytest.raises(ConfigError, match="reset takes no options, got reset_mask"):
        env.reset(options={"reset_mask": np.array([True, False])})
    env.reset(seed=3, options={})


def test_pictures_that_cannot_be_drawn_are_one_line_each_time(monkeypatch):
    def find():
        raise ViewerError("recording needs Chromium")

    monkeypatch.setattr("envs.view.recording.find_chromium", find)
    env = gym.make(REACH, render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    for _ in range(2):
        with pytest.raises(ViewerError, match="recording needs Chromium"):
            env.render()
    env.close()
    env.close()
    with pytest.raises(ViewerError, match="the renderer is closed"):
        env.render()


def test_a_picture_before_the_first_reset_is_refused_without_gymnasiums_wrapper_too():
    with pytest.raises(ResetNeeded, match="render before reset"):
        gym.make(REACH, render_mode="rgb_array").unwrapped.render()
    assert gym.make(REACH).unwrapped.render() is None


def test_a_pickled_environment_goes_on_as_the_one_it_was_made_of():
    env = gym.make(REACH).unwrapped
    env.reset(seed=1)
    for action in actions(3)[:, 0].numpy():
        env.step(action)
    copied = pickle.loads(pickle.dumps(env))
    for action in actions(70)[:, 0].numpy():
        one, other = (each.step(action) for each in (env, copied))
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1:4] == other[1:4]
