"""Evaluation: whole first episodes of every environment, success at their ends."""

import pytest
import torch

from td3_robot.evaluation import evaluate, rollout, rollouts
from td3_robot.vec_env import Step, VecEnv


class Countdown:
    """Environment i ends its episodes after i + 1 steps, the even ones by termination, the odd ones by time.

    The reward of a step is its number in the episode; a step is a success if that number is even.
    """

    o_dim, a_dim, num_envs, device = 1, 1, 4, torch.device("cpu")

    def reset(self, seed=None):
        self.age = torch.zeros(4)
        return self.age[:, None]

    def step(self, action):
        assert not torch.is_grad_enabled()
        age = self.age + 1
        ended = age == torch.arange(1.0, 5.0)
        even = torch.arange(4) % 2 == 0
        self.age = torch.where(ended, 0.0, age)
        info = {"success": age % 2 == 0, "age": age, "action": action}
        return Step(self.age[:, None], age, ended & even, ended & ~even, age[:, None], info)


def policy(observation):
    return 0.1 * observation


def test_scores_are_what_a_hand_counts():
    # lengths 1 2 3 4; returns 1, 1 + 2, 1 + 2 + 3, 1 + 2 + 3 + 4: mean 5; last steps 1 2 3 4: half are even
    assert evaluate(policy, Countdown(), seed=0) == {"success_rate": 0.5, "episode_return": 5.0}


def test_a_rollout_keeps_every_step_of_the_first_episodes_and_marks_them():
    env = Countdown()
    played = rollout(policy, env, env.reset())
    assert played.reward.shape == played.alive.shape == (4, 4)
    assert played.alive.sum(0).tolist() == [1, 2, 3, 4]
    assert torch.equal(played.alive, torch.arange(4)[:, None] <= torch.arange(4))
    assert played.last("age").tolist() == [1, 2, 3, 4]
    assert played.last("action").shape == (4, 1)
    assert set(played.info) == {"success", "age", "action"}


def test_the_policy_sees_what_it_is_to_act_on():
    """After an automatic reset that is the new episode's first observation, not the old one's last."""
    env, seen = Countdown(), []

    def watching(observation):
        seen.append(observation[:, 0].tolist())
        return policy(observation)

    rollout(watching, env, env.reset())
    assert seen == [[0, 0, 0, 0], [0, 1, 1, 1], [0, 0, 2, 2], [0, 1, 0, 3]]


def test_only_what_is_kept_is_collected():
    env = Countdown()
    assert set(rollout(policy, env, env.reset(), keep=("age",)).info) == {"age"}


@pytest.mark.parametrize("episodes, rounds", [(1, 1), (4, 1), (5, 2), (12, 3)])
def test_as_many_rounds_as_the_episodes_need(episodes, rounds):
    assert len(list(rollouts(policy, Countdown(), episodes, seed=0))) == rounds


def test_a_seed_fixes_the_episodes_whatever_was_played_before(point_env):
    env = point_env(num_envs=50)
    assert isinstance(env, VecEnv)
    still = lambda observation: torch.zeros(50, 2)  # noqa: E731
    first = evaluate(still, env, seed=1)
    assert evaluate(still, env, seed=2) != first
    assert evaluate(still, env, seed=1) == first


def test_rounds_differ_and_repeat_with_the_seed(point_env):
    env = point_env(num_envs=20)
    still = lambda observation: torch.zeros(20, 2)  # noqa: E731
    first, again = ([played.reward for played in rollouts(still, env, 40, seed=3)] for _ in range(2))
    assert not torch.equal(first[0], first[1])
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_neighbouring_seeds_share_no_round(point_env):
    env = point_env(num_envs=20)
    still = lambda observation: torch.zeros(20, 2)  # noqa: E731
    left, right = ([played.reward for played in rollouts(still, env, 60, seed=seed)] for seed in (3, 4))
    assert not any(torch.equal(a, b) for a in left for b in right)
