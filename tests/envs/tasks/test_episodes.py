"""One episode of many again: the same start, scene, way and end, whatever the task."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import envs
from envs.arm_env.arm_env import ArmEnv
from envs.robots import make_robot
from envs.tasks.episodes import OneEpisode, RandomEpisodes, ScenePool
from envs.tasks.registry import make_task
from td3_robot.errors import ConfigError
from tests.support import each_task


def some_policy(env):
    """Depends on all of the observation, and moves the arm much."""
    weights = (
        torch.randn(env.o_dim, env.a_dim, generator=torch.Generator().manual_seed(1))
        / env.o_dim**0.5
    )
    return lambda observation: torch.tanh(observation @ weights)


def play(env, observation, row=0, steps=1000):
    """(T,) errors and (T, n) joint positions of one arm until the end of its episode, and what is
    observed then; at most so many steps.
    """
    policy = some_policy(env)
    errors = []
    positions = []
    ended = False
    while not ended and len(errors) < steps:
        step = env.step(policy(observation))
        observation = step.observation
        ended = bool((step.terminated | step.truncated)[row])
        errors.append(step.info["position_error"][row])
        positions.append(step.info["q"][row])
    return torch.stack(errors), torch.stack(positions), observation


def replay(env, row):
    """An environment of one arm, every episode of which is that of an arm of another."""
    return ArmEnv(
        env.robot,
        env.task,
        1,
        "cpu",
        0,
        env.sparse,
        env.guard,
        episodes=OneEpisode(env.arrived, row),
    )


@pytest.mark.parametrize("task", each_task())
def test_a_replayed_episode_ends_as_it_did(task):
    many = envs.make("panda", task, num_envs=5)
    errors, positions, _ = play(many, many.reset(7), row=3)
    many.reset(7)
    one = replay(many, 3)
    first = one.reset(123)
    again_errors, again_positions, begun = play(one, first)
    torch.testing.assert_close(again_errors, errors, atol=1e-4, rtol=0)
    # Another batch size rounds otherwise, and what does not move the TCP is led back by nothing.
    torch.testing.assert_close(again_positions, positions, atol=1e-3, rtol=0)
    torch.testing.assert_close(begun, first, atol=0, rtol=0)  # it begins anew, again and again
    torch.testing.assert_close(play(one, begun, steps=20)[0], again_errors[:20], atol=0, rtol=0)


def test_it_takes_over_what_the_environment_pays():
    many = envs.make("panda", "reach", num_envs=2, sparse=True)
    assert replay(many, 1).step(torch.zeros(1, 7)).reward.tolist() == [-1.0]


def test_only_trainings_use_scenes_twice(monkeypatch):
    """Of a task whose scenes are dear; evaluations and Gymnasium environments get new ones."""
    monkeypatch.setattr(ScenePool, "BLOCK", 1024)
    monkeypatch.setattr(ScenePool, "FEWEST", 20)
    panda = make_robot("panda")
    task = make_task("reach_avoid")
    for reuse in (False, True):
        env = ArmEnv(panda, task, 10, "cpu", 0, training=reuse)
        goals = torch.cat([env.goal, *(env.reset()[:, env.layout["goal"]] for _ in range(5))])
        assert (len(goals.unique(dim=0)) == len(goals)) != reuse


def test_arms_that_learn_are_not_in_step():
    """First episodes are of any length up to the horizon, those after them of all of it;
    evaluations end together.
    """
    panda = make_robot("panda")
    task = make_task("reach")
    ends = []
    for training in (False, True):
        env = ArmEnv(panda, task, 120, "cpu", 0, training=training)
        still = torch.zeros(120, 7)
        ends.append(torch.stack([env.step(still).truncated for _ in range(3 * task.horizon)]))
    together, spread = ends
    assert together.all(1).nonzero()[:, 0].tolist() == [59, 119, 179] and together.sum() == 3 * 120
    # two at a step are to be expected
    assert spread.sum(1).max() < 12 and (spread[:60].sum(0) == 1).all()
    first = spread[:60].long().argmax(0)
    assert first.min() < 5 and first.max() > 54
    assert (spread[first + 60, torch.arange(120)]).all() and (spread[60:120].sum(0) == 1).all()


@pytest.mark.parametrize("task", ["pick_place", "push", "stack", "insert"])
def test_a_hand_that_cannot_point_down_is_the_reason_that_is_given(task):
    """The sixth joint's axis is level at home: a quarter turn of it tilts the hand by 90 degrees,
    and joints that hardly move leave it so.
    """
    panda = make_robot("panda")
    home = panda.home + np.array([0, 0, 0, 0, 0, math.pi / 2, 0])
    level = dataclasses.replace(panda, home=home, qlim=home + [[-0.05], [0.05]])
    told = (
        f"^task '{task}': 10 calls of sample_scenes returned no scene; the hand of robot 'panda' is "
        "not found to point straight down anywhere in .*: mount it.*without a hand, such as 'reach'$"
    )
    with pytest.raises(ConfigError, match=told):
        RandomEpisodes(make_task(task), make_task(task).make_world(level, "cpu")).draw(1)


def test_a_hand_that_points_down_is_no_reason():
    """The table in the workspace is within reach; the workspace's corners are named instead."""
    task = make_task("pick_place")
    told = task.describe_lack(task.make_world(make_robot("panda"), "cpu"))
    assert "no goal that the arm reaches" in told
