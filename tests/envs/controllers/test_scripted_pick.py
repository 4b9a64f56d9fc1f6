"""The scripted pick: it solves the task, within the limits, and is paid more than what only looks
like it.
"""

import pytest
import torch

import envs
from envs.controllers import ScriptedPick
from envs.tasks.episodes import ScenePool


@pytest.fixture(scope="module", params=["panda", "ur5e"])
def env(request):
    """150 arms."""
    return envs.make(request.param, "pick_place", num_envs=150)


def play(env, policy, seed: int = 12345):
    """One episode each: the last step's info, the returns, and the lowest finger tips."""
    observation = env.reset(seed)
    returns = 0.0
    lowest = torch.full((env.num_envs,), torch.inf)
    for _ in range(env.task.horizon):
        step = env.step(policy(observation))
        observation = step.observation
        returns = returns + step.reward
        lowest = torch.minimum(lowest, step.info["table_clearance"])
    return step.info, returns, lowest


def test_it_solves_the_task(env):
    info, _, lowest = play(env, ScriptedPick(env))
    assert info["success"].float().mean() >= 0.97
    assert info["held"].float().mean() >= 0.97
    assert (info["qd"].abs() <= env.model.qdlim * (1 + 1e-5)).all()
    assert (lowest > 0).all()


@pytest.mark.parametrize("robot", ["ur5e", "wx250s"])
def test_it_solves_the_task_behind_the_guard(robot, monkeypatch):
    """Which lets finger tips down to a centimetre over the table: not what encloses their stroke,
    and stands out.
    """
    monkeypatch.setattr(ScenePool, "BLOCK", 64)
    env = envs.make(robot, "pick_place", num_envs=30, guard=True)
    info, _, lowest = play(env, ScriptedPick(env))
    assert info["success"].all() and (lowest > 0).all()
    assert 0.005 < lowest.median() < 0.015


def test_its_actions_are_in_bounds_and_of_the_environments_shape(env):
    observation = env.reset(0)
    pick = ScriptedPick(env)
    for _ in range(40):
        action = pick(observation)
        assert action.shape == (150, env.a_dim) and (action.abs() <= 1 + 1e-6).all()
        assert (action[:, -1].abs() == 1).all()
        observation = env.step(action).observation


def test_it_decides_from_the_moment_alone(env):
    """Halfway, a new controller goes on as the old one would have."""
    observation = env.reset(0)
    pick = ScriptedPick(env)
    for _ in range(30):
        observation = env.step(pick(observation)).observation
    assert torch.equal(pick(observation), ScriptedPick(env)(observation))
    assert torch.equal(pick(observation), pick(torch.zeros_like(observation)))


def test_success_is_paid_more_than_any_part_of_it(env):
    """Each arm on its own: the whole beside hovering, holding without moving, and doing nothing."""
    pick = ScriptedPick(env)

    def hover(observation):
        action = pick(observation)
        near = (
            torch.linalg.vector_norm(
                env.task.compute_approach_vector(env.world, env.moment)[:, :2], dim=1
            )
            < 0.02
        )
        action[:, :-1] *= (~near)[:, None]
        action[:, -1] = 1.0
        return action

    def hold(observation):
        action = pick(observation)
        action[:, :-1] *= (~env.moment.scene["held"])[:, None]
        return action

    info, whole, _ = play(env, pick)
    solved = info["success"]
    generator = torch.Generator().manual_seed(0)
    parts = {
        "hover": hover,
        "hold": hold,
        "nothing": lambda observation: torch.zeros(150, env.a_dim),
        "random": lambda observation: 2 * torch.rand(150, env.a_dim, generator=generator) - 1,
    }
    means = {name: play(env, policy)[1] for name, policy in parts.items()}
    print(
        env.robot.name,
        "whole",
        whole.mean().item(),
        {name: value.mean().item() for name, value in means.items()},
    )
    for name, value in means.items():
        assert (whole > value)[solved].float().mean() > 0.99, name
