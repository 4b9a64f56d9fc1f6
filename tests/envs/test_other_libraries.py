"""Libraries of others make an environment of ours by its id and step it over an episode's end.

Stable-Baselines3 is installed with the tests. For the others, which pin packages of their own:
`make test-libraries`.
"""

import gymnasium as gym
import numpy as np
import pytest
import torch

import envs.gymnasium_ids  # noqa: F401  registers the ids

REACH = "td3_robot/PandaReach-v0"
STEPS = 65  # an episode has 60


def test_stable_baselines3_makes_and_trains():
    from stable_baselines3 import TD3
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env(REACH, n_envs=2, seed=0)
    agent = TD3("MlpPolicy", env, learning_starts=20, batch_size=8, seed=0)
    agent.learn(130)
    assert agent.num_timesteps == 130 and len(agent.ep_info_buffer) == 2


def test_torchrl_makes_many_and_has_the_true_successor():
    """With its wrapper of vector environments, which reads `autoreset_mode`."""
    libs = pytest.importorskip("torchrl.envs.libs.gym")
    env = libs.GymWrapper(gym.make_vec(REACH, num_envs=2), device="cpu")
    first = env.reset(seed=0)
    assert first["observation"].shape == (2, 31)
    rolled = env.rollout(STEPS, policy=None, auto_reset=True, break_when_any_done=False)
    ends = rolled["next", "truncated"][:, :, 0]
    assert rolled.shape == (2, STEPS) and ends.nonzero().tolist() == [[0, 59], [1, 59]]
    after = rolled["next", "observation"]
    following = rolled["observation"]
    assert torch.equal(after[:, :59], following[:, 1:60])
    assert (after[:, 59] != following[:, 60]).any(1).all()  # a new episode begins
    one = libs.GymEnv(REACH, device="cpu")
    assert one.rollout(STEPS).shape == (60,)


def test_skrl_wraps_many():
    wrapped = pytest.importorskip("skrl.envs.wrappers.torch").wrap_env
    env = wrapped(gym.make_vec(REACH, num_envs=2), wrapper="gymnasium")
    observation, _ = env.reset()
    assert observation.shape == (2, 31) and env.num_envs == 2
    ends = []
    for number in range(STEPS):
        observation, reward, terminated, truncated, _ = env.step(torch.zeros(2, 7))
        assert torch.isfinite(observation).all() and reward.shape == (2, 1)
        ends += [number] * bool(truncated.all())
    assert ends == [59]


def test_tianshou_collects():
    pytest.importorskip("tianshou")
    from tianshou.env import DummyVectorEnv

    env = DummyVectorEnv([lambda: gym.make(REACH)] * 2)
    env.seed(0)
    observation, _ = env.reset()
    assert observation.shape == (2, 31)
    for _ in range(60):
        observation, reward, terminated, truncated, _ = env.step(np.zeros((2, 7), np.float32))
    assert truncated.all() and not terminated.any()
    observation, _ = env.reset(np.arange(2))
    assert np.isfinite(observation).all()
