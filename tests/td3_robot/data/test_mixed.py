"""Batches of which a share comes from a dataset: how many rows, which, and that a resume goes on to
the bit.
"""

import dataclasses

import pytest
import torch

from td3_robot import TD3
from td3_robot.config.run import Config, ExplorationConfig, ReplayConfig, RewardConfig, TD3Config
from td3_robot.data.collector import Collector
from td3_robot.data.dataset_file import collect, save_dataset
from td3_robot.data.mixed import OfflineOnlineSource, make_source
from td3_robot.data.offline import Dataset
from td3_robot.errors import ConfigError
from td3_robot.utils.communicator import Communicator

RECORDED = 90  # transitions, each with its number above 1,000 as reward


@pytest.fixture
def dataset(tmp_path, point_env):
    path = tmp_path / "data.npz"
    data = collect(lambda o: -o[:, :2].clamp(-1, 1), point_env(4, 0), RECORDED, seed=1)
    save_dataset(path, data._replace(reward=1000.0 + torch.arange(float(RECORDED))))
    return path


@pytest.fixture
def make(point_env, dataset):
    """Builds an agent and a source that has made some steps."""

    def build(
        steps: int = 30, seed: int = 0, norm: str = "none", **replay
    ) -> tuple[TD3, OfflineOnlineSource]:
        options = ReplayConfig(**{"capacity": 200, "batch_size": 64, "dataset": dataset, **replay})
        td3 = TD3Config(hidden=(8,), norm=norm, gamma=0.5, normalize_observations=True)
        config = Config(
            num_envs=4,
            seed=seed,
            td3=td3,
            replay=options,
            exploration=ExplorationConfig(start_steps=40),
        )
        agent = TD3(3, 2, **dataclasses.asdict(config.td3))
        source = make_source(agent, point_env(4, 0), config)
        assert isinstance(source, OfflineOnlineSource)
        for step in range(steps):
            source.collect(step / steps)
        return agent, source

    return build


@pytest.mark.parametrize("share, rows", [(0.5, 32), (0.25, 16), (0.01, 1)])
def test_that_share_of_every_batch_is_the_datasets_and_all_of_it_comes(make, share, rows):
    _, source = make(dataset_share=share)
    seen = set()
    for _ in range(max(20, 1000 // rows)):
        batch = source.sample(0.5)
        recorded = batch.reward[:, 0] >= 1000
        assert recorded.sum() == rows and len(batch.reward) == 64 and batch.weight is None
        seen |= set(batch.reward[recorded, 0].int().tolist())
    assert seen == set(range(1000, 1000 + RECORDED))
    assert source.env_steps == 120 and source.ready


def test_a_part_may_be_one_row_where_norms_are_of_batches(make):
    agent, source = make(dataset_share=1 / 64, norm="renorm")
    batch = source.sample(0.5)
    agent.update(batch)
    assert len(batch.state) == 64 and agent.gradient_steps == 1


def test_both_parts_have_n_step_returns_and_count_into_the_statistics(make):
    agent, source = make(n_step=3)
    batch = source.sample(0.5)
    assert batch.discount is not None and batch.discount.shape == (64, 1)
    assert set(batch.discount[32:, 0].tolist()) >= {0.125} and set(
        batch.discount[:32, 0].tolist()
    ) >= {0.125}
    assert agent.normalizer.moments.count == RECORDED + 4 * 30


def test_processes_that_train_together_count_the_recorded_observations_once(point_env, dataset):
    told = []

    class OneOfTwo(Communicator):
        size = 2

        def all_gather(self, row):
            told.append(row[0])
            return row[None]

    td3 = TD3Config(hidden=(8,), normalize_observations=True)
    config = Config(num_envs=4, td3=td3, replay=ReplayConfig(200, 64, dataset=dataset))
    for rank in range(OneOfTwo.size):
        communicator = OneOfTwo()
        communicator.rank = rank
        agent = TD3(3, 2, config=td3, communicator=communicator)
        make_source(agent, point_env(4, 0), config)
    assert sum(told) == RECORDED


def test_what_was_interrupted_goes_on_to_the_bit(make):
    _, whole = make()
    _, resumed = make(steps=7, seed=5)
    assert resumed.load_state_dict(whole.state_dict(with_replay=True)) == []
    for progress in (0.5, 0.6):
        assert all(
            torch.equal(a, b)
            for a, b in zip(whole.sample(progress)[:5], resumed.sample(progress)[:5])
        )


def test_a_run_trains_on_it_and_resumes(tmp_path, train, dataset, assert_same):
    options = {"replay": ReplayConfig(capacity=150, batch_size=16, dataset=dataset), "steps": 120}
    whole = train(tmp_path / "whole", **options)
    whole.run()
    first = train(
        tmp_path / "run", **options, on_step=[lambda steps: first.stop() if steps == 80 else None]
    )
    first.run()
    second = train(tmp_path / "run", agent_seed=9, **options)
    second.resume()
    assert second.steps == 80
    second.run()
    assert_same(whole.agent.state_dicts(), second.agent.state_dicts())


def test_without_one_it_is_the_collector_and_with_nothing_else_the_dataset(point_env, dataset):
    agent = TD3(3, 2, hidden=(8,))
    env = point_env(4, 0)
    assert isinstance(make_source(agent, env, Config(num_envs=4)), Collector)
    assert isinstance(make_source(agent, env, Config(dataset=dataset)), Dataset)


@pytest.mark.parametrize(
    "cls, options, words",
    [
        (ReplayConfig, {"prioritized": True}, "dataset and prioritized exclude each other"),
        (ReplayConfig, {"dataset_share": 1.0}, "dataset_share must leave both parts a transition"),
        (
            ReplayConfig,
            {"batch_size": 4, "dataset_share": 0.1},
            "dataset_share must leave both parts",
        ),
        (
            Config,
            {"reward": RewardConfig(normalize=True)},
            "reward.normalize and replay.dataset exclude",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(dataset, cls, options, words):
    with pytest.raises(ConfigError, match=words):
        if cls is Config:
            Config(replay=ReplayConfig(dataset=dataset), **options)
        else:
            ReplayConfig(dataset=dataset, **options)
