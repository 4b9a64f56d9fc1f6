"""The reach task: its reward, observation and gripper as numbers, without an environment around
them.
"""

import dataclasses
import math

import pytest
import torch
import yaml

from envs import kinematics
from envs.config.yaml_values import CONFIGS
from envs.robots import make_robot
from envs.simulation.engine import SimState
from envs.tasks import reach
from envs.tasks.layout import Layout
from envs.tasks.reach import Reach
from envs.world import make_moment

TASK = dataclasses.replace(
    Reach(**yaml.safe_load((CONFIGS / "tasks" / "reach.yaml").read_text())),
    tolerance=0.01,
    distance_weight=2.0,
    precision_weight=3.0,
    precision_scale=0.1,
    action_weight=0.5,
    stillness_weight=4.0,
    stillness_scale=0.2,
    error_unit=0.25,
)


@pytest.fixture(scope="module")
def scene():
    """Five Pandas somewhere, with goals."""
    world = TASK.make_world(make_robot("panda"), "cpu")
    generator = torch.Generator().manual_seed(0)

    def draw():
        return world.random_q(5, generator)

    state = SimState(
        draw(), torch.randn(5, 7, generator=generator), torch.rand(5, generator=generator) * 0.04
    )
    goal = kinematics.fkine(world.model.chain, draw())[:, :3, 3]
    return world, make_moment(world, state, {"goal": goal}, torch.zeros(5, dtype=torch.long))


def test_reward_terms_are_what_a_hand_gets():
    # mean squares 1 and 0.18, roots 1 and 0.424264
    action = torch.tensor([[1.0, -1.0], [0.6, 0.0]])
    terms = reach.compute_reward_terms(TASK, torch.tensor([0.0, 0.1]), action)
    assert terms.keys() == {"distance", "precision", "action", "stillness"}
    torch.testing.assert_close(terms["distance"], torch.tensor([0.0, -0.2]))
    torch.testing.assert_close(terms["precision"], torch.tensor([3.0, 3.0 / math.e]))
    torch.testing.assert_close(terms["action"], torch.tensor([-0.5, -0.09]))
    torch.testing.assert_close(
        terms["stillness"], torch.tensor([-4.0, -4.0 * 0.424264 / math.exp(0.5)])
    )


def test_at_rest_nearer_is_always_better():
    distance = torch.linspace(0, 2, 500)
    reward = sum(reach.compute_reward_terms(TASK, distance, torch.zeros(500, 2)).values())
    assert (reward.diff() < 0).all()


def test_at_any_distance_less_effort_is_better():
    for distance in (0.0, 0.02, 1.0):
        effort = torch.linspace(0, 1, 50)[:, None].expand(50, 7)
        assert (
            sum(
                reach.compute_reward_terms(TASK, torch.full((50,), distance), effort).values()
            ).diff()
            < 0
        ).all()


def test_the_observation_holds_each_quantity_where_the_layout_says(scene):
    world, moment = scene
    state = moment.state
    tcp = moment.tcp
    goal = moment.scene["goal"]
    seen = TASK.observe(world, moment)
    layout = Layout(TASK.list_columns(world))
    assert seen.shape == (5, layout.size)
    assert torch.equal(seen[:, layout["q"]], state.q)
    torch.testing.assert_close(seen[:, layout["drivers"]], state.gripper[:, None].expand(5, 2))
    assert torch.equal(seen[:, layout["qd"]], state.qd)
    assert torch.equal(seen[:, layout["tcp"]], tcp)
    torch.testing.assert_close(tcp, kinematics.fkine(world.model.chain, state.q)[:, :3, 3])
    assert torch.equal(seen[:, layout["goal"]], goal)
    # in units of a quarter metre
    torch.testing.assert_close(seen[:, layout["error"]], 4 * (goal - tcp))


def test_joint_error_is_the_steepest_way_to_the_goal(scene):
    """The gradient of minus half the squared distance, here by differences in float64; joint 7 only
    turns the hand.
    """
    world, moment = scene
    goal = moment.scene["goal"]
    joint_error = TASK.observe(world, moment)[:, Layout(TASK.list_columns(world))["joint_error"]]
    chain = world.model.chain.to(dtype=torch.float64)
    q = moment.state.q.double()
    h = 1e-6

    def half_square(q):
        return 0.5 * (goal.double() - kinematics.fkine(chain, q)[:, :3, 3]).square().sum(1)

    assert joint_error.shape == (5, 6)
    for i in range(7):
        dq = h * torch.eye(7, dtype=torch.float64)[i]
        slope = (half_square(q + dq) - half_square(q - dq)) / (2 * h)
        shown = joint_error[:, i].double() if i < 6 else torch.zeros(5, dtype=torch.float64)
        torch.testing.assert_close(shown, -slope / TASK.error_unit, atol=1e-5, rtol=1e-4)


def test_the_gripper_shuts_at_the_goal_and_only_there(scene):
    world, moment = scene
    away = torch.tensor([0.0, 0.0099, 0.0101, 0.5, 1.0])[:, None] * torch.tensor([0.0, 0.6, 0.8])
    moment = TASK.replace_goal(world, moment, moment.tcp + away)
    assert TASK.make_command(world, moment, torch.zeros(5, 7)).grip.tolist() == [
        0.0,
        0.0,
        1.0,
        1.0,
        1.0,
    ]


def test_without_a_gripper_the_observation_has_no_drivers():
    world = TASK.make_world(dataclasses.replace(make_robot("panda"), gripper=None), "cpu")
    layout = Layout(TASK.list_columns(world))
    assert layout["drivers"] == slice(7, 7) and layout.size == 7 + 7 + 9 + 6
