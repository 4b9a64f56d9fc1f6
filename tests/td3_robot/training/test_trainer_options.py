"""Every option in a whole training: it changes what is learnt, and an interrupted run ends as an
uninterrupted one.
"""

import signal
from types import SimpleNamespace

import pytest
import torch

from td3_robot.config.run import (
    EvaluationConfig,
    ExplorationConfig,
    ReplayConfig,
    RewardConfig,
    TD3Config,
)
from td3_robot.training import periodic_evaluation
from td3_robot.utils.communicator import Communicator
from td3_robot.vec_env import draw_uniform
from tests.support import set_default_dtype
from tests.td3_robot.remembering import RemembersObservations

pytestmark = pytest.mark.usefixtures("no_fsync")

NETS = {"hidden": (16,), "actor_lr": 1e-3, "critic_lr": 1e-3}
SMALL = {"steps": 240, "evaluation": EvaluationConfig(every=120, episodes=4)}
OPTIONS = {
    "ddpg": {"td3": TD3Config(**NETS, twin_critics=False, policy_delay=1, policy_noise=0.0)},
    "minimum of both": {"td3": TD3Config(**NETS, actor_min_q=True)},
    "small actions": {"td3": TD3Config(**NETS, action_l2=1.0)},
    "layer norm": {"td3": TD3Config(**NETS, norm="layer")},
    "batch norm": {"td3": TD3Config(**NETS, norm="batch")},
    "crossq": {"td3": TD3Config(**NETS, critic="crossq", critic_hidden=(24,), norm="renorm")},
    "initialisation": {"td3": TD3Config(**NETS, init="orthogonal", final_bound=3e-3)},
    "gradient clipping": {"td3": TD3Config(**NETS, actor_grad_clip=0.01, critic_grad_clip=0.01)},
    "C51": {"td3": TD3Config(**NETS, atoms=21, v_min=-10.0, v_max=0.0)},
    "imitation": {"td3": TD3Config(**NETS, bc_alpha=2.5)},
    "normalised observations": {"td3": TD3Config(**NETS, normalize_observations=True, r_max=0.0)},
    "normalised rewards": {"reward": RewardConfig(normalize=True)},
    "shaped rewards": {"reward": RewardConfig(scale=2.0, clip=0.5)},
    "n-step": {"replay": ReplayConfig(capacity=150, batch_size=16, n_step=3)},
    "priorities": {"replay": ReplayConfig(capacity=150, batch_size=16, prioritized=True)},
    "priorities and n-step": {
        "replay": ReplayConfig(capacity=150, batch_size=16, prioritized=True, n_step=3)
    },
    "hindsight": {
        "replay": ReplayConfig(capacity=150, batch_size=16, hindsight="future", hindsight_still=0.3)
    },
    "ou": {
        "exploration": ExplorationConfig(
            start_steps=40, noise=0.3, per_env=True, kind="ou", random_share=0.3
        )
    },
    "pink": {
        "exploration": ExplorationConfig(
            start_steps=40, noise=0.3, per_env=True, kind="pink", pink_steps=20
        )
    },
    "uncertainty": {
        "exploration": ExplorationConfig(start_steps=40, noise=0.3, per_env=True, uncertainty=True)
    },
    "several updates": {"updates_per_step": 3},
}


@pytest.fixture(scope="module")
def goals(point_env):
    """The toy environment with goals: where the point is to be is in the observation."""

    class PointGoals(RemembersObservations, point_env):
        o_dim = 5

        def _fresh(self):
            goal = draw_uniform(self.generator, self.num_envs, 2) * 1.8 - 0.9
            return torch.cat((super()._fresh(), goal), 1)

        def step(self, action):
            goal = self.observation[:, 3:]
            self.observation = self.observation[:, :3]
            fresh = self._fresh
            self._fresh = super()._fresh
            step = super().step(action)
            self._fresh = fresh
            done = (step.terminated | step.truncated)[:, None]
            new = draw_uniform(self.generator, self.num_envs, 2) * 1.8 - 0.9 if done.any() else goal
            self.observation = torch.cat((step.observation, torch.where(done, new, goal)), 1)
            self.arrived = successor = torch.cat((step.next_observation, goal), 1)
            reward = -torch.linalg.vector_norm(successor[:, :2] - goal, dim=1)
            return step._replace(
                observation=self.observation, next_observation=successor, reward=reward
            )

        def achieved_goal(self, observation):
            return observation[:, :2]

        def relabel(self, state, action, next_state, goal):
            state, next_state = (torch.cat((o[:, :3], goal), 1) for o in (state, next_state))
            reward = -torch.linalg.vector_norm(next_state[:, :2] - goal, dim=1)
            return state, next_state, reward, (next_state[:, :2].abs() > 1).any(1)

    return PointGoals


@pytest.fixture(scope="module")
def plain(tmp_path_factory, train, goals):
    """What is learnt without any of them."""
    return run(tmp_path_factory.mktemp("plain"), train, goals).agent


def run(folder, train, goals, stop=None, resume=False, **options):
    """A training, stopped by Ctrl-C at so many env steps."""
    stops = [lambda made: signal.raise_signal(signal.SIGINT) if made == stop else None]
    seed = 100 if resume else None  # nothing but the resume point may help
    trainer = train(
        folder,
        make=goals,
        evaluation_env=goals(4, 1),
        agent_seed=seed,
        on_step=stops,
        **(SMALL | options),
    )
    if resume:
        trainer.resume()
    assert trainer.run()["finished"] == (stop is None)
    return trainer


@pytest.mark.parametrize("name", OPTIONS)
def test_it_has_an_effect_and_survives_an_interruption_and_another_default_dtype(
    tmp_path, train, goals, plain, assert_same, name
):
    options = OPTIONS[name]
    with set_default_dtype(torch.float64):
        whole = run(tmp_path / "whole", train, goals, **options).agent
    learnt = whole.actor.layers[0].weight
    without = plain.actor.layers[0].weight
    assert torch.isfinite(learnt).all() and not torch.equal(learnt, without)
    run(tmp_path / "parts", train, goals, stop=124, **options)
    parts = run(tmp_path / "parts", train, goals, resume=True, **options).agent
    assert_same(parts.state_dicts(), whole.state_dicts())


def test_processes_that_know_different_figures_have_the_same_means(monkeypatch):
    """Success that an environment reports only where there is one, seen by the other process."""

    class Two(Communicator):
        size = 2

        def __init__(self, other):
            self.other = other

        def all_gather_object(self, value):
            return [value, self.other]

    scores = {"success_rate": 0.5, "episode_return": 3.0}
    env = SimpleNamespace(num_envs=1)
    monkeypatch.setattr(periodic_evaluation, "evaluate", lambda *_: {"episode_return": 1.0})
    evaluation = periodic_evaluation.PeriodicEvaluation(env, 0, Two([3, scores]))
    means = evaluation.evaluate(None, "evaluation")
    assert means == {"success_rate": 0.375, "episode_return": 2.5}
