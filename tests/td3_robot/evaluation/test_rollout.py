"""Evaluation: whole first episodes of every environment, success at their ends."""

import json

import pytest
import torch

from td3_robot.evaluation.rollout import (
    compute_episode_statistics,
    evaluate,
    iter_rollouts,
    make_random_policy,
    rollout,
    summarise,
)
from td3_robot.vec_env import Step, VecEnv


class Countdown:
    """Environment i ends its episodes after i + 1 steps, the even ones by termination, the odd ones
    by time.

    The reward of a step is its number in the episode; a step is a success if that number is even.
    """

    o_dim = 1
    a_dim = 1
    num_envs = 4
    device = torch.device("cpu")

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
    # lengths 1 2 3 4; returns 1, 1 + 2, 1 + 2 + 3, 1 + 2 + 3 + 4: mean 5; last steps 1 2 3 4: half
    # are even
    assert evaluate(policy, Countdown(), seed=0) == {"success_rate": 0.5, "episode_return": 5.0}


def test_a_rollout_keeps_every_step_of_the_first_episodes_and_marks_them():
    env = Countdown()
    played = rollout(policy, env, env.reset())
    assert played.reward.shape == played.alive.shape == (4, 4)
    assert played.alive.sum(0).tolist() == [1, 2, 3, 4]
    assert torch.equal(played.alive, torch.arange(4)[:, None] <= torch.arange(4))
    assert played.get_last("age").tolist() == [1, 2, 3, 4]
    assert played.get_last("action").shape == (4, 1)
    assert set(played.info) == {"success", "age", "action"}
    assert torch.equal(played.action, played.info["action"])


def test_the_policy_sees_what_it_is_to_act_on():
    """After an automatic reset that is the new episode's first observation, not the old one's
    last.
    """
    env = Countdown()
    seen = []

    def watching(observation):
        seen.append(observation[:, 0].tolist())
        return policy(observation)

    rollout(watching, env, env.reset())
    assert seen == [[0, 0, 0, 0], [0, 1, 1, 1], [0, 0, 2, 2], [0, 1, 0, 3]]


@pytest.mark.parametrize("convert", (torch.Tensor.numpy, torch.Tensor.tolist))
def test_a_policy_may_return_arrays(convert):
    env = Countdown()
    of_tensors = rollout(policy, env, env.reset())
    of_arrays = rollout(lambda o: convert(policy(o)), env, env.reset())
    assert torch.equal(of_arrays.action, of_tensors.action)


def test_only_what_is_kept_is_collected():
    env = Countdown()
    assert set(rollout(policy, env, env.reset(), keep=("age",)).info) == {"age"}


@pytest.mark.parametrize("episodes, rounds", [(1, 1), (4, 1), (5, 2), (12, 3)])
def test_as_many_rounds_as_the_episodes_need(episodes, rounds):
    assert len(list(iter_rollouts(policy, Countdown(), episodes, seed=0))) == rounds


def test_a_seed_fixes_the_episodes_whatever_was_played_before(point_env):
    env = point_env(num_envs=50)
    assert isinstance(env, VecEnv)

    def still(observation):
        return torch.zeros(50, 2)

    first = evaluate(still, env, seed=1)
    assert evaluate(still, env, seed=2) != first
    assert evaluate(still, env, seed=1) == first


def test_rounds_differ_and_repeat_with_the_seed(point_env):
    env = point_env(num_envs=20)

    def still(observation):
        return torch.zeros(20, 2)

    first, again = (
        [played.reward for played in iter_rollouts(still, env, 40, seed=3)] for _ in range(2)
    )
    assert not torch.equal(first[0], first[1])
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_neighbouring_seeds_share_no_round(point_env):
    env = point_env(num_envs=20)

    def still(observation):
        return torch.zeros(20, 2)

    left, right = (
        [played.reward for played in iter_rollouts(still, env, 60, seed=seed)] for seed in (3, 4)
    )
    assert not any(torch.equal(a, b) for a in left for b in right)


# Environments other than ours


class NoSuccess(Countdown):
    """The same without a notion of success."""

    def step(self, action):
        step = super().step(action)
        return step._replace(info={"age": step.info["age"]})


class Pausing(Countdown):
    """The same, but the step after the end of an episode only resets (Gymnasium's NEXT_STEP).

    Such a step is no transition: it has a reward and ends that do not count. So is the very first
    step of environment 3, for a start.
    """

    def reset(self, seed=None):
        self.idle = torch.tensor([False, False, False, True])
        return super().reset(seed)

    def step(self, action):
        age = self.age
        idle = self.idle
        step = super().step(action)
        self.age = torch.where(idle, age, self.age)
        self.idle = (step.terminated | step.truncated) & ~idle
        return step._replace(
            observation=self.age[:, None],
            reward=torch.where(idle, 1e6, step.reward),
            terminated=step.terminated | idle,
            info={"success": step.info["success"] | idle},
            valid=~idle,
        )


def test_without_success_there_is_no_success_rate():
    assert evaluate(policy, NoSuccess(), seed=0) == {"episode_return": 5.0}
    env = NoSuccess()
    assert compute_episode_statistics(rollout(policy, env, env.reset())).keys() == {
        "return",
        "length",
    }


def test_rows_that_are_no_transition_neither_count_nor_end_an_episode():
    env = Pausing()
    played = rollout(policy, env, env.reset())
    assert played.alive.sum(0).tolist() == [1, 2, 3, 4] and played.alive.shape == (5, 4)
    statistics = compute_episode_statistics(played)
    assert statistics["return"].tolist() == [1, 3, 6, 10]
    assert statistics["success"].tolist() == [False, True, False, True]
    assert evaluate(policy, env, seed=0) == evaluate(policy, Countdown(), seed=0)


def test_what_comes_after_an_episode_cannot_spoil_its_figures():
    class Garbage(Countdown):
        def step(self, action):
            step = super().step(action)
            self.steps = getattr(self, "steps", 0) + 1
            return step._replace(
                reward=torch.where(torch.arange(1.0, 5.0) < self.steps, torch.nan, step.reward)
            )

    assert evaluate(policy, Garbage(), seed=0)["episode_return"] == 5.0


# Statistics


def test_statistics_of_each_episode_are_what_a_hand_counts():
    env = Countdown()
    statistics = compute_episode_statistics(rollout(policy, env, env.reset()))
    assert statistics["return"].tolist() == [1, 3, 6, 10]
    assert statistics["length"].tolist() == [1, 2, 3, 4]
    assert statistics["success"].tolist() == [False, True, False, True]


def test_the_summary_is_what_a_hand_counts():
    env = Countdown()
    rounds = [
        compute_episode_statistics(played)
        for played in iter_rollouts(policy, env, episodes=6, seed=0)
    ]
    # returns 1 3 6 10, 1 3: mean 4, squares 156 / 6 = 26, variance 26 - 16; lengths 1 2 3 4, 1 2;
    # half succeed
    expected = {
        "episodes": 6,
        "episode_return": {"mean": 4.0, "std": pytest.approx(10**0.5), "min": 1.0, "max": 10.0},
        "episode_length": {"mean": pytest.approx(13 / 6)},
        "success_rate": 0.5,
    }
    assert summarise(rounds, 6) == expected
    assert json.loads(json.dumps(summarise(rounds, 6))) == expected
    assert summarise(rounds)["episodes"] == 8
    unknown = [{name: part[name] for name in ("return", "length")} for part in rounds]
    assert "success_rate" not in summarise(unknown, 6)


def test_a_single_episode_has_no_spread():
    assert (
        summarise([{"return": torch.tensor([2.0]), "length": torch.tensor([3])}])["episode_return"][
            "std"
        ]
        == 0.0
    )


# Random actions


def test_random_actions_are_uniform_independent_and_fixed_by_their_seed(point_env):
    env = point_env(num_envs=100)
    act, again, other = (make_random_policy(env, seed) for seed in (1, 1, 2))
    actions = torch.stack([act(None) for _ in range(200)])
    assert actions.shape == (200, 100, 2)
    assert torch.equal(actions[0], again(None)) and not torch.equal(actions[0], other(None))
    assert actions.min() >= -1 and actions.max() <= 1
    quartiles = torch.quantile(actions.flatten(), torch.tensor([0.25, 0.5, 0.75]))
    torch.testing.assert_close(quartiles, torch.tensor([-0.5, 0.0, 0.5]), atol=0.02, rtol=0)
    table = actions.permute(1, 2, 0).flatten(0, 1)  # one row for each environment and dimension
    assert (torch.corrcoef(table) - torch.eye(200)).abs().max() < 0.4


def test_random_actions_leave_the_global_generator_alone(point_env):
    before = torch.get_rng_state()
    evaluate(make_random_policy(point_env(num_envs=8), seed=3), point_env(num_envs=8), seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_later_rounds_alone_know_was_zero():
    """Success of an environment that reports none before there was one."""
    told = {"success": torch.tensor([True, False])}
    silent = {"return": torch.zeros(2), "length": torch.ones(2)}
    assert summarise([silent, silent | told])["success_rate"] == 0.25
    assert "success_rate" not in summarise([silent])
