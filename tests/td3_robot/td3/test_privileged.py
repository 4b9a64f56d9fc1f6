"""Critics that see more than the actor: what each depends on, what it is good for, what is kept."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from td3_robot import TD3, Batch
from td3_robot.cli.train_run import resolve_columns
from td3_robot.config.run import Config, ExplorationConfig, ReplayConfig
from td3_robot.config.td3 import TD3Config
from td3_robot.data.collector import Collector
from td3_robot.errors import ConfigError

SEEN = 3
HIDDEN = 2
OPTIONS = {"hidden": (32,), "gamma": 0.0, "actor_lr": 1e-2, "critic_lr": 1e-2, "policy_delay": 1}


def draw_batch(seed: int, hidden: int = HIDDEN, count: int = 128) -> Batch:
    """Draw transitions whose reward is -(a - s0)^2 + 10 h0, with h0 what only critics may see."""
    generator = torch.Generator().manual_seed(seed)
    state, after = torch.randn(2, count, SEEN + HIDDEN, generator=generator)
    action = 2.0 * torch.rand(count, 1, generator=generator) - 1.0
    reward = -(action - state[:, :1].clamp(-1, 1)).square() + 10.0 * state[:, SEEN : SEEN + 1]
    width = SEEN + hidden
    return Batch(state[:, :width], action, reward, after[:, :width], torch.ones(count, 1))


def train(privileged: int, updates: int = 1500, **options) -> tuple[TD3, list[float]]:
    agent = TD3(SEEN, 1, seed=0, privileged=privileged, **{**OPTIONS, **options})
    losses = [
        float(agent.update(draw_batch(seed, privileged))["Q1_loss"]) for seed in range(updates)
    ]
    return agent, losses


def compute_error(agent: TD3) -> float:
    """Compute the root mean square distance from the best action, the first column."""
    o = torch.randn(500, SEEN, generator=torch.Generator().manual_seed(7))
    return float((agent.select_action(o)[:, 0] - o[:, 0].clamp(-1, 1)).square().mean().sqrt())


def test_what_only_critics_see_need_not_be_learnt_around():
    """The variance of 10 h0 is 100: critics that do not see h0 are left with it, others are not."""
    blind, blind_losses = train(0)
    agent, losses = train(HIDDEN)
    assert sum(blind_losses[-100:]) / 100 > 50.0
    assert sum(losses[-100:]) / 100 < 1.0
    assert compute_error(agent) < 0.1
    assert compute_error(agent) < 0.5 * compute_error(blind)


@pytest.mark.parametrize("options", [{}, {"critic": "crossq"}, {"norm": "layer"}])
def test_the_actor_depends_on_the_observation_alone_and_critics_on_all(options):
    agent, _ = train(HIDDEN, updates=3, **options)
    o = torch.randn(5, SEEN)
    assert agent.select_action(o).shape == (5, 1)
    assert agent.policy(o).shape == (5, 1)
    with pytest.raises(ConfigError, match="must end in 3 values"):
        agent.select_action(torch.randn(5, SEEN + HIDDEN))
    seen = torch.cat((o, torch.zeros(5, HIDDEN)), 1)
    other = torch.cat((o, torch.ones(5, HIDDEN)), 1)
    action = torch.zeros(5, 1)
    for critic in (agent.Q1, agent.Q2):
        first, second = (critic(torch.cat((x, action), 1)) for x in (seen, other))
        assert (first != second).all()


def test_a_checkpoint_keeps_it_and_goes_on_to_the_bit(tmp_path):
    agent, _ = train(HIDDEN, updates=5)
    agent.save(tmp_path / "run")
    loaded = TD3.from_checkpoint(tmp_path / "run")
    assert (loaded.o_dim, loaded.privileged) == (SEEN, HIDDEN)
    for each in (agent, loaded):
        each.generator.manual_seed(0)
        each.update(draw_batch(99))
    o = torch.randn(5, SEEN)
    assert torch.equal(agent.select_action(o), loaded.select_action(o))


class Telling:
    """Wraps an environment that tells critics the number of its step and of its episode."""

    privileged_dim = 2

    def __init__(self, env):
        self._env = env
        self._steps = torch.zeros(env.num_envs)
        self._episodes = torch.zeros(env.num_envs)
        self._arrived = torch.zeros(env.num_envs, 2)

    def __getattr__(self, name):
        return getattr(self._env, name)

    def step(self, action):
        step = self._env.step(action)
        self._steps = self._steps + 1.0
        self._arrived = torch.stack((self._steps, self._episodes), 1)
        done = step.terminated | step.truncated
        self._episodes = self._episodes + done
        self._steps = torch.where(done, 0.0, self._steps)
        return step

    def privileged(self, arrived=False):
        return self._arrived if arrived else torch.stack((self._steps, self._episodes), 1)


def make_config(**options) -> Config:
    return Config(
        num_envs=4,
        td3=TD3Config(hidden=(16,), **options),
        replay=ReplayConfig(capacity=4000, batch_size=256),
        exploration=ExplorationConfig(start_steps=0),
    )


def test_the_replay_joins_what_is_observed_and_what_is_known_of_the_same_moment(point_env):
    """Each transition leads from step n to step n + 1 of one episode, also where an episode ends."""
    env = Telling(point_env(4, 0))
    config = make_config(privileged=2)
    agent = TD3(env.o_dim, env.a_dim, **dataclasses.asdict(config.td3))
    collector = Collector(agent, env, config)
    for _ in range(200):
        collector.collect(0.0)
    batch = collector.sample(0.0)
    assert batch.state.shape == (256, env.o_dim + 2)
    before = batch.state[:, env.o_dim :]
    after = batch.next_state[:, env.o_dim :]
    assert torch.equal(after[:, 0], before[:, 0] + 1.0) and torch.equal(after[:, 1], before[:, 1])
    assert before[:, 1].max() > 2.0
    agent.update(batch)


def test_hindsight_which_computes_observations_alone_excludes_it(point_env):
    config = dataclasses.replace(make_config(privileged=2), replay=ReplayConfig(hindsight="future"))
    env = Telling(point_env(4, 0))
    agent = TD3(env.o_dim, env.a_dim, **dataclasses.asdict(config.td3))
    with pytest.raises(ConfigError, match="observations alone: set td3.privileged to 0$"):
        Collector(agent, env, config)


def test_it_is_found_unless_something_forbids_it():
    offers = SimpleNamespace(privileged_dim=6)
    hindsight = ReplayConfig(hindsight="future")
    mixed = ReplayConfig(dataset=Path("data.npz"))
    for config, env, found in (
        (make_config(), offers, 6),
        (make_config(privileged=0), offers, 0),
        (make_config(privileged=6), offers, 6),
        (make_config(), SimpleNamespace(), 0),
        (make_config(normalize_observations=True), offers, 0),
        (dataclasses.replace(make_config(), replay=hindsight), offers, 0),
        (dataclasses.replace(make_config(), replay=mixed), offers, 0),
    ):
        assert resolve_columns(config, env).privileged == found
    with pytest.raises(ConfigError, match="must be 0 or 6, got 5"):
        resolve_columns(make_config(privileged=5), offers)
    with pytest.raises(ConfigError, match="there is nothing that critics alone see"):
        resolve_columns(make_config(privileged=5), SimpleNamespace())
    with pytest.raises(ConfigError, match="exclude each other"):
        TD3Config(privileged=3, normalize_observations=True)
