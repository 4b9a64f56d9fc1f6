"""Contact costs the success of an episode, whatever the task; and episodes can be done without
it.
"""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import envs
from envs.arm_env.arm_env import ArmEnv
from envs.collision import clearance
from envs.planning import contact_check as contact
from envs.robots import make_robot
from envs.simulation.engine import make_rest_state
from envs.tasks.contact import compute_contact_terms
from envs.tasks.registry import make_task
from envs.world import GROUND, make_moment
from tests.support import each_task

# whose scenes say by which joint positions they can be solved
WHERE_POSES_ARE = ("reach_pose", "reach_avoid")


@pytest.fixture(scope="module")
def env():
    return envs.make("panda", "reach", num_envs=32, seed=1)


def put(env, q: torch.Tensor) -> None:
    """Arms at rest at q, each with its goal where its TCP is, nothing touched so far."""
    state = make_rest_state(env.model, q)
    steps = torch.zeros(len(q), dtype=torch.long)
    scene = {**env.moment.scene, "touched": torch.zeros(len(q), dtype=torch.bool)}
    there = make_moment(env.world, state, scene, steps)
    env.moment = replace(there, scene={**scene, "goal": there.tcp})


def touching(env, count: int) -> torch.Tensor:
    """(count, n) random joint positions with the arm in itself or the ground."""
    q = env.world.random_q(4000, torch.Generator().manual_seed(5))
    return q[clearance(env.world.collision, q, ground=GROUND) < -0.02][:count]


def test_no_success_survives_a_contact_however_long_ago(env):
    env.reset(2)
    home = env.world.home.expand(32, -1)
    half = torch.arange(32) < 16
    still = torch.zeros(32, 7)
    put(env, torch.where(half[:, None], touching(env, 32), home))
    step = env.step(still)
    assert step.info["success_with_contact"].all()
    assert torch.equal(step.info["touched"], half) and torch.equal(step.info["clearance"] < 0, half)
    assert torch.equal(step.info["success"], ~half)
    away = replace(env.moment, state=make_rest_state(env.model, home))
    env.moment = make_moment(
        env.world, away.state, {**away.scene, "goal": env.fkine(home)[:, :3, 3]}, away.steps
    )
    step = env.step(still)
    assert (step.info["clearance"] > 0).all() and torch.equal(step.info["touched"], half)
    assert step.info["success_with_contact"].all() and torch.equal(step.info["success"], ~half)


def test_with_a_new_episode_it_is_forgotten(env):
    put(env, touching(env, 32))
    assert env.step(torch.zeros(32, 7)).info["touched"].all()
    env.reset(3)
    assert not env.step(torch.zeros(32, 7)).info["touched"].any()


@pytest.mark.parametrize("sparse", [False, True])
def test_hindsight_pays_for_contact_as_the_step_did(sparse):
    """Under the goal that the step had, the reward is the step's own."""
    env = ArmEnv(make_robot("panda"), make_task("reach_pose"), 64, "cpu", 0, sparse=sparse)
    generator = torch.Generator().manual_seed(0)
    touched = False
    for _ in range(40):
        before = env.memory()
        action = 2 * torch.rand(64, 7, generator=generator) - 1
        goal = env.goal
        step = env.step(action)
        paid = env.relabel(before, action, env.memory(arrived=True), goal)[2]
        assert_close(paid, step.reward, rtol=1e-4, atol=1e-4)
        touched |= bool(step.info["touched"].any())
    assert touched


def test_what_nearness_and_contact_cost():
    task = replace(make_task("reach"), near_weight=0.5, near_distance=0.04, contact_weight=2.0)
    terms = compute_contact_terms(task, torch.tensor([0.1, 0.04, 0.03, 0.01, 0.0, -0.01, -1.0]))
    assert_close(terms["near"], torch.tensor([0.0, 0.0, -0.125, -0.375, -0.5, -0.5, -0.5]))
    assert_close(terms["contact"], torch.tensor([0.0, 0, 0, 0, 0, -2, -2]))
    assert (
        compute_contact_terms(replace(task, near_weight=0.0, contact_weight=0.0), torch.zeros(3))
        == {}
    )


@pytest.mark.parametrize("robot", ["panda", "ur5e"])
@pytest.mark.parametrize("task", each_task())
def test_every_episode_begins_free_of_contact(robot, task):
    env = envs.make(robot, task, num_envs=100, seed=4)
    env.moment = replace(env.moment, state=replace(env.state, qd=0.0 * env.state.qd))
    assert not env.moment.scene["touched"].any() and (env.moment.scene["clearance"] > 0).all()


@pytest.mark.parametrize("task", WHERE_POSES_ARE)
def test_goals_have_a_solution_without_contact(task):
    env = envs.make("panda", task, num_envs=100, seed=5)
    q = env.moment.scene["solution"]
    goal = env.goal
    assert contact.is_free(env.world, q).all()
    # found by a search that ends there
    assert_close(env.fkine(q)[:, :3, 3], goal[:, :3], rtol=0, atol=5e-3)


def test_starts_go_home_where_nothing_else_is_free(env, monkeypatch):
    offset = 0.3 * torch.ones(32, 7)
    at = contact.find_free_start(env.world, offset)
    assert_close(at, (env.world.home + offset).clamp(*env.model.qlim), rtol=0, atol=1e-6)
    monkeypatch.setattr(
        contact, "is_free", lambda world, q, room: torch.zeros(q.shape[:-1], dtype=torch.bool)
    )
    assert torch.equal(contact.find_free_start(env.world, offset), env.world.home.expand(32, -1))


def test_of_an_arm_without_capsules_nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr("envs.collision.files.CAPSULES", tmp_path)
    env = envs.make("panda", "reach", num_envs=4, seed=0)
    step = env.step(torch.zeros(4, 7))
    assert env.world.collision is None and not {"touched", "clearance"} & step.info.keys()
    assert torch.equal(step.info["success"], step.info["success_with_contact"])
