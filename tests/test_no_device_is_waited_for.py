"""A whole step of collecting and learning never waits for the device that it is on."""

import dataclasses
from unittest import mock

import pytest
import torch
from torch.utils._pytree import tree_leaves

import envs
from envs.command_line import TrainFlags
from envs.config.env_options import EnvOptions
from envs.controllers.experts import make_expert
from td3_robot import TD3, checkpoint
from td3_robot.cli.arguments import parse_train
from td3_robot.data.collector import Collector
from td3_robot.networks.residual import resolve_residual_column
from tests.no_device import Waits, Watched, moved

SMALL = "--num_envs 8 --replay.batch_size 16 --replay.capacity 4000 --exploration.start_steps 16 --td3.burn_in 0"


def learner(line):
    """Agent and source of a command line, some steps old, with the beginnings that a device would
    have.
    """
    arguments = parse_train(f"{line} {SMALL}".split(), EnvOptions, TrainFlags)
    config = arguments.config
    with mock.patch("envs.arm_env.arm_env.is_asynchronous", lambda device: True):
        env = envs.make_from_config(
            arguments.environment, config.num_envs, device="cpu", seed=0, training=True
        )
        config = dataclasses.replace(config, td3=resolve_residual_column(config.td3, env))
        agent = TD3(env.o_dim, env.a_dim, **dataclasses.asdict(config.td3))
        expert = make_expert(config.exploration.expert, env) if config.exploration.expert else None
        source = Collector(agent, env, config, expert)
        for _ in range(4):
            step(agent, source)
    return agent, source


def step(agent, source):
    source.collect(0.1)
    for _ in range(2):  # with the actor and without
        metrics = agent.update(source.sample(0.1))
        if "td_error" in metrics:
            source.update_priorities(metrics["td_error"])


LINES = [
    "--task reach",
    "--task reach_pose --td3.critic_grad_clip 1 --replay.prioritized true",
    "--task reach_avoid",
    "--task pick_place --td3.norm layer --reward.normalize true",
]


@pytest.mark.parametrize("line", LINES)
def test_a_step_of_collecting_and_learning_waits_for_no_device(line):
    agent, source = learner(line)
    with moved(agent, source) as (agent, source):
        for _ in range(3):
            step(agent, source)
    assert source.observation.device.type == "meta"


@pytest.mark.filterwarnings("ignore:.*which is a no-op")  # meta has no numbers to take
def test_a_run_of_one_device_goes_on_on_another(tmp_path):
    """All of a checkpoint, counters of the optimizers among it, comes to lie where the agent is."""
    agent, source = learner(
        "--task reach_pose --td3.normalize_observations true --td3.residual null"
    )
    agent.save(tmp_path / "run")
    with moved(agent, source) as (agent, source):
        pass
    agent.load_state_dicts(checkpoint.read(tmp_path / "run"))
    tensors = [x for x in tree_leaves(agent.state_dicts()) if isinstance(x, torch.Tensor)]
    assert len(tensors) > 60 and {x.device.type for x in tensors} == {"meta"}
    with Watched():
        step(agent, source)


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).any()),
        lambda x: x[x > 0],
        lambda x: (x > 0).nonzero(),
        lambda x: x + torch.tensor([1.0, 2.0, 3.0], device=x.device),
        lambda x: x.cpu(),
        lambda x: torch.linalg.inv(x * torch.eye(3, device=x.device)),
    ],
)
def test_what_waits_is_refused(wait):
    with moved(torch.ones(3)) as (x,), pytest.raises((Waits, RuntimeError, NotImplementedError)):
        wait(x)
