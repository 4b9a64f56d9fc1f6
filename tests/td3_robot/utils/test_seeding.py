"""A seed's uses share no random numbers."""

import itertools

import pytest
import torch

from td3_robot import TD3
from td3_robot.config.run import Config, ExplorationConfig
from td3_robot.data.collector import Collector
from td3_robot.data.dataset_file import collect
from td3_robot.evaluation.rollout import make_random_policy
from td3_robot.utils.seeding import derive_seed


def test_seeds_and_uses_repeat_and_differ():
    assert derive_seed(3, "a") == derive_seed(3, "a")
    seeds = {
        derive_seed(seed, use)
        for seed in range(100)
        for use in ("weights", "exploration", "evaluation", "")
    }
    assert len(seeds) == 400 and min(seeds) >= 0 and max(seeds) < 2**32


class Starting:
    """Mixed into an environment: remembers the random numbers that its first starts were made
    of.
    """

    def reset(self, seed=None):
        start = super().reset(seed)
        self.starts = start[:, :2] / 0.9
        return start


def related(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether rows of numbers are made of the same random numbers, whatever the scale."""
    return (torch.corrcoef(torch.stack((left.flatten(), right.flatten())))[0, 1].abs() > 0.3).item()


@pytest.fixture
def env(point_env):
    return type("StartingPoints", (Starting, point_env), {})(200, 0)


def test_the_first_random_actions_have_nothing_to_do_with_the_starts(env):
    agent = TD3(3, 2, seed=7)
    collector = Collector(
        agent, env, Config(seed=7, num_envs=200, exploration=ExplorationConfig(start_steps=1000))
    )
    starts = env.starts
    collector.collect(0.0)
    actions = collector.replay.rows[:200, collector.replay.columns.action]
    numbers = [
        starts,
        actions,
        torch.rand(200, 2, generator=agent.generator),
        agent.Q1.layers[1].weight[:200, :2],
    ]
    assert not any(itertools.starmap(related, itertools.combinations(numbers, 2)))


def test_random_actions_and_the_noise_of_datasets_are_independent_of_the_starts(env):
    env.reset(5)
    assert not related(env.starts, make_random_policy(env, 5)(None))
    played = collect(lambda observation: torch.zeros(200, 2), env, 200, seed=5, noise=0.1)
    assert not related(env.starts, torch.erf(played.action / 0.1 / 2**0.5))
