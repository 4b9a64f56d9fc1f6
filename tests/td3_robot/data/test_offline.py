"""Learning from a dataset: nothing is collected, steps are gradient steps, and TD3+BC does as well
as its data.
"""

import dataclasses

import pytest
import torch

from td3_robot import checkpoint
from td3_robot.config.run import EvaluationConfig, ReplayConfig, TD3Config
from td3_robot.data.dataset_file import collect, save_dataset
from td3_robot.errors import ConfigError
from td3_robot.evaluation.rollout import evaluate, make_random_policy

OFFLINE = {
    "replay": ReplayConfig(batch_size=64),
    "evaluation": EvaluationConfig(every=100, episodes=64),
    "td3": TD3Config(
        hidden=(32, 32), actor_lr=3e-3, critic_lr=3e-3, bc_alpha=2.5, normalize_observations=True
    ),
}


def homewards(observation):
    """Full speed to the origin."""
    return (-10 * observation[:, :2]).clamp(-1, 1)


@pytest.fixture
def dataset(tmp_path, point_env):
    path = tmp_path / "data.npz"
    save_dataset(path, collect(homewards, point_env(8, 0), 4000, seed=1, noise=0.3))
    return path


def test_td3_bc_learns_what_the_data_show_without_a_step_of_its_own(
    tmp_path, train, dataset, point_env
):
    trainer = train(tmp_path / "run", dataset=dataset, steps=1000, **OFFLINE)
    collected = trainer.evaluation_env
    summary = trainer.run()
    log = trainer.trackers[0]
    assert summary["env_steps"] == 0 and summary["gradient_steps"] == 1000
    assert [row["gradient_steps"] for row in log] == list(range(100, 1100, 100))
    data = evaluate(homewards, collected, 5)["episode_return"]
    random = evaluate(make_random_policy(collected), collected, 5)["episode_return"]
    learned = evaluate(trainer.agent.select_action, collected, 5)["episode_return"]
    assert learned > random + 0.9 * (data - random)


def test_the_updates_of_a_presets_steps_wait_for_steps(tmp_path, train, dataset):
    """Each gradient step is a step of the run, and may be its last."""
    trainer = train(tmp_path / "run", dataset=dataset, steps=102, updates_per_step=8, **OFFLINE)
    assert trainer.run()["gradient_steps"] == 102
    assert [row["gradient_steps"] for row in trainer.trackers[0]] == [100, 102]


def test_hindsight_of_a_preset_waits_for_something_to_be_collected(tmp_path, train, dataset):
    runs = [
        train(
            tmp_path / name,
            steps=1,
            dataset=dataset,
            **OFFLINE | {"replay": ReplayConfig(64, 64, hindsight=name)},
        )
        for name in ("none", "future")
    ]
    plain, hindsight = (run.source.sample(0.0) for run in runs)
    assert torch.equal(plain.state, hindsight.state) and torch.equal(plain.reward, hindsight.reward)


@pytest.mark.parametrize("prioritized", [False, True])
def test_interrupted_and_resumed_it_ends_exactly_as_uninterrupted(
    tmp_path, train, dataset, assert_same, prioritized
):
    options = OFFLINE | {"replay": ReplayConfig(batch_size=64, prioritized=prioritized)}
    options |= {"dataset": dataset, "evaluation": EvaluationConfig(every=100, episodes=4)}
    whole = train(tmp_path / "whole", steps=60, **options)
    whole.run()
    first = train(tmp_path / "run", steps=60, **options)
    first.config = dataclasses.replace(first.config, steps=60)
    for _ in range(25):
        first._learn()
    first.agent.save(tmp_path / "run")
    first.state.write(first.state.gather())
    options["dataset"] = dataset.rename(tmp_path / "moved.npz")
    second = train(tmp_path / "run", steps=60, agent_seed=9, **options)
    second.resume()
    assert second.steps == 25
    second.run()
    assert_same(whole.agent.state_dicts(), second.agent.state_dicts())


@pytest.mark.parametrize("steps", [4000, 3000, 5000])
@pytest.mark.parametrize("prioritized", [False, True])
def test_a_run_does_not_go_on_with_other_transitions_in_its_file(
    tmp_path, train, dataset, point_env, prioritized, steps
):
    options = OFFLINE | {"replay": ReplayConfig(batch_size=64, prioritized=prioritized)}
    options |= {"dataset": dataset, "steps": 20}
    train(tmp_path / "run", **options).run()
    other = collect(homewards, point_env(8, 0), steps, seed=1, noise=0.3)
    save_dataset(dataset, other._replace(reward=other.reward + 1.0))
    with pytest.raises(ConfigError, match="data.npz' holds other transitions than the run"):
        train(tmp_path / "run", **options).resume()


def test_a_dataset_of_another_width_is_refused(tmp_path, train, dataset, point_env):
    class Wide(point_env):
        o_dim = 5

        def _fresh(self):
            return torch.zeros(self.num_envs, 5)

    with pytest.raises(ConfigError, match="observations must have width 5, got 3"):
        train(tmp_path / "run", make=Wide, dataset=dataset, steps=10, **OFFLINE)


def test_without_evaluations_the_newest_policy_is_kept(tmp_path, train, dataset, assert_same):
    options = OFFLINE | {"evaluation": EvaluationConfig(every=20, episodes=0)}
    trainer = train(tmp_path / "run", dataset=dataset, steps=60, **options)
    summary = trainer.run()
    assert summary["finished"] and summary.keys().isdisjoint(
        {"episode_return", "train_return", "success_rate"}
    )
    assert [row["gradient_steps"] for row in trainer.trackers[0]] == [20, 40, 60]
    assert_same(checkpoint.read(tmp_path / "run")["actor"], trainer.agent.actor.state_dict())
