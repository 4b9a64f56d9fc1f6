"""A small training on the toy environment, for the tests of the trainer."""

import copy
import dataclasses
import os
import time

import pytest
import torch

from envs.config import env_options
from td3_robot import TD3
from td3_robot.config.run import (
    Config,
    EvaluationConfig,
    ExplorationConfig,
    ReplayConfig,
    ScheduleConfig,
    TD3Config,
)
from td3_robot.data.mixed import make_source
from td3_robot.training.callbacks import Callback
from td3_robot.training.trainer import Trainer

CONFIG = Config(
    seed=3,
    num_envs=4,
    steps=400,
    save_every=1e9,
    td3=TD3Config(hidden=(16,), actor_lr=1e-3, critic_lr=1e-3, policy_delay=2),
    replay=ReplayConfig(capacity=150, batch_size=16),  # a ring that goes round more than twice
    exploration=ExplorationConfig(start_steps=40, noise=0.3, per_env=True),
    schedule=ScheduleConfig(lr="linear", noise="cosine"),
    evaluation=EvaluationConfig(every=60, episodes=8),
)


class Log(list):
    """A tracker that remembers the metrics, and the actor of each evaluation."""

    def __init__(self, agent: TD3):
        self.agent = agent
        self.actors = []

    def log(self, metrics):
        self.append(metrics)
        self.actors.append(copy.deepcopy(self.agent.actor.state_dict()))

    def close(self):
        pass


class OnStep(Callback):
    """Calls a function with the steps made."""

    def __init__(self, tell):
        self.tell = tell

    def on_step(self, run):
        self.tell(run.steps)


@pytest.fixture
def no_fsync(monkeypatch):
    """Only a power cut needs it, and it is slow."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="session")
def train(point_env):
    """Builds a trainer in a folder, from CONFIG and changes to it; its first tracker is a Log."""

    def build(
        folder,
        make=point_env,
        env=None,
        evaluation_env=None,
        agent_seed=None,
        on_step=(),
        callbacks=(),
        **changes,
    ):
        config = dataclasses.replace(CONFIG, **changes)
        env = env or make(config.num_envs, config.seed)
        if evaluation_env is None and config.evaluation.episodes:
            evaluation_env = point_env(config.evaluation.episodes, config.seed)
        seed = config.seed if agent_seed is None else agent_seed
        agent = TD3(env.o_dim, env.a_dim, seed=seed, **dataclasses.asdict(config.td3))
        source = make_source(agent, env, config)
        callbacks = [*map(OnStep, on_step), *callbacks]
        started = time.perf_counter()
        about = {"robot": "point"}
        trainer = Trainer(agent, source, evaluation_env, config, folder, started, callbacks, about)
        trainer.trackers.append(Log(agent))
        return trainer

    return build


@pytest.fixture(scope="session")
def scripted(point_env):
    """Builds an environment whose evaluations give these success rates, whatever the policy."""

    class Scripted(point_env):
        rates: list[float]
        played = -2  # the constructor resets once

        def reset(self, seed=None):
            self.played += 1
            return super().reset(seed)

        def step(self, action):
            wins = torch.arange(self.num_envs) < self.rates[self.played] * self.num_envs
            return super().step(action)._replace(info={"success": wins})

    def build(rates: list[float], episodes: int = 8):
        env = Scripted(episodes)
        env.rates = rates
        return env

    return build


def leaves(state: object, name: str = "") -> dict[str, torch.Tensor]:
    """The tensors in nested state dicts, by their path."""
    if isinstance(state, dict):
        return {
            path: leaf
            for key, item in state.items()
            for path, leaf in leaves(item, f"{name}.{key}").items()
        }
    return {name: state} if isinstance(state, torch.Tensor) else {}


@pytest.fixture(scope="session")
def assert_same():
    """Checks that two nested state dicts hold the same tensors, bit by bit."""

    def check(left: dict, right: dict) -> None:
        left = leaves(left)
        right = leaves(right)
        assert left and left.keys() == right.keys()
        different = [name for name in left if not torch.equal(left[name], right[name])]
        assert not different, f"{len(different)} of {len(left)} differ, {different[0]} first"

    return check


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """Work in a folder of the test's own, with its own presets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(env_options, "CONFIGS", tmp_path / "configs")
    (tmp_path / "configs").mkdir()
    return tmp_path
