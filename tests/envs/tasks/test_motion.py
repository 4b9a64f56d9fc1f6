"""What an arm's motion costs, and how near its joints are to their limits."""

import math
from dataclasses import replace

import torch
from torch.testing import assert_close

import envs
from envs.arm_env.arm_env import ArmEnv
from envs.robots import make_robot
from envs.tasks import motion
from envs.tasks.registry import make_task
from envs.tasks.task import Outcome

TASK = make_task("reach")


def add_cost(task, env, qd, action):
    """Add the cost of a change to an outcome without a term of its own, for arms that move at qd
    (B, n), in parts of each joint's limit.
    """
    none = Outcome(torch.zeros(len(qd), dtype=torch.bool), torch.zeros(len(qd)), {})
    state = replace(env.state, qd=qd * env.model.qdlim)
    before = replace(env.moment, state=state)
    return motion.add_change_cost(task, env.world, before, action, none).terms


def test_a_change_of_velocity_costs_what_a_hand_gets():
    env = envs.make("panda", "reach", num_envs=3)
    qd = torch.tensor([[0.0] * 7, [0.5] * 7, [1.0] + [0.0] * 6])
    action = torch.tensor([[0.6] * 7, [0.5] * 7, [0.0] * 7])
    terms = add_cost(replace(TASK, change_weight=2.0), env, qd, action)
    # rms over the joints: 0.6 for all, nothing asked, and 1 for one of seven
    assert_close(terms["change"], torch.tensor([-1.2, 0.0, -2.0 / math.sqrt(7)]))
    assert add_cost(replace(TASK, change_weight=0.0), env, qd, action) == {}


def test_where_an_action_stands_for_less_than_full_speed_the_velocities_are_compared():
    env = envs.make("panda", "insert", num_envs=2, engine="mujoco")
    task = replace(env.task, change_weight=1.0)
    action = torch.tensor([[0.5] * 7, [-1.0] * 7])
    kept = add_cost(task, env, task.speed * action, action)["change"]
    assert_close(kept, torch.zeros(2))
    begun = add_cost(task, env, torch.zeros(2, 7), action)["change"]
    assert_close(begun, -task.speed * torch.tensor([0.5, 1.0]))


def test_the_price_is_of_the_velocity_as_the_step_began():
    env = ArmEnv(make_robot("panda"), replace(TASK, change_weight=1.0), 5, "cpu", 0)
    for action in torch.empty(4, 5, 7).uniform_(-1, 1, generator=torch.Generator().manual_seed(1)):
        before = env.state.qd / env.model.qdlim
        paid = env.step(action).info["reward/change"]
        assert_close(paid, -(action - before).square().mean(1).sqrt())


def test_room_is_one_at_a_limit_and_nothing_amid():
    model = envs.make("panda", "reach", num_envs=1).model
    lower, upper = model.qlim
    q = torch.stack((lower, upper, upper - motion.NEAR_LIMIT, 0.5 * (lower + upper)))
    room = motion.compute_limit_proximity(model, q)
    assert_close(room[0], -torch.ones(7), atol=1e-5, rtol=0)
    assert_close(room[1], torch.ones(7), atol=1e-5, rtol=0)
    assert_close(room[2], torch.full((7,), 1 / math.e), atol=1e-3, rtol=0)
    assert_close(room[3], torch.zeros(7), atol=1e-5, rtol=0)
