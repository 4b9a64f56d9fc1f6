"""Laws of the classical controllers."""

import dataclasses

import pytest
import torch

import envs
from envs.baselines import ResolvedRate, damped_least_squares, make_baseline
from td3_robot.errors import ConfigError


@pytest.fixture
def env():
    return envs.make("panda", "reach", num_envs=100, seed=3)


def speeds(env, action):
    return action * env.model.qdlim


def test_damped_least_squares_is_the_minimum():
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    J, velocity, damping = draw(20, 3, 7), draw(20, 3), 0.3
    qd = damped_least_squares(J, velocity, damping)

    def cost(qd):
        residual = (J @ qd[:, :, None])[:, :, 0] - velocity
        return residual.square().sum(1) + damping**2 * qd.square().sum(1)

    for _ in range(10):
        assert (cost(qd + 1e-3 * draw(20, 7)) > cost(qd)).all()


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_singular_jacobians_give_finite_and_bounded_velocities(rank):
    generator = torch.Generator().manual_seed(rank)
    J = torch.randn(50, 3, rank, generator=generator) @ torch.randn(50, rank, 7, generator=generator)
    velocity, damping = torch.randn(50, 3, generator=generator), 0.1
    qd = damped_least_squares(J, velocity, damping)
    # sigma / (sigma^2 + damping^2) is at most 1 / (2 damping)
    assert (qd.norm(dim=1) <= velocity.norm(dim=1) / (2 * damping) * 1.001).all()


def test_error_falls_at_every_step_with_a_small_gain(env):
    env.model = dataclasses.replace(env.model, dqd=torch.full_like(env.model.dqd, torch.inf))
    policy, observation = ResolvedRate(env, gain=1.0), env.reset(3)
    before = first = (env.goal - env.tcp).norm(dim=1)
    for _ in range(env.task.horizon):
        step = env.step(policy(observation))
        error, observation = step.info["position_error"], step.observation
        assert (error < before).all()
        before = error
    assert (error < 0.2 * first).all()


def test_the_tcp_sets_out_straight_for_the_goal(env):
    v = env.jacob0(env.state.q)[:, :3] @ speeds(env, ResolvedRate(env, damping=1e-3)(None))[:, :, None]
    towards = torch.nn.functional.cosine_similarity(v[:, :, 0], env.goal - env.tcp)
    assert (towards > 0.999).all()


def test_velocities_are_scaled_together_and_never_over_a_limit(env):
    slow, fast = ResolvedRate(env, gain=0.01)(None), ResolvedRate(env, gain=1000.0)(None)
    assert (slow.abs().amax(1) < 1).all()
    torch.testing.assert_close(fast.abs().amax(1), torch.ones(env.num_envs))
    assert (torch.nn.functional.cosine_similarity(speeds(env, slow), speeds(env, fast)) > 0.9999).all()


def test_it_solves_reach_within_the_limits_of_the_arm(env):
    policy, observation = ResolvedRate(env), env.reset(3)
    for _ in range(env.task.horizon):
        step = env.step(policy(observation))
        observation = step.observation
        assert (step.info["qd"].abs() <= env.model.qdlim).all()
    assert step.info["success"].float().mean() >= 0.99  # 100% of 4,000 episodes of another seed


def test_batched_equals_looped(env):
    batched = ResolvedRate(env)(None)
    single = envs.make("panda", "reach", num_envs=1)
    policy = ResolvedRate(single)
    for i in range(5):
        single.state = type(env.state)(*(part[i : i + 1] for part in vars(env.state).values()))
        single.goal, single.tcp = env.goal[i : i + 1], env.tcp[i : i + 1]
        torch.testing.assert_close(policy(None)[0], batched[i])


def test_names(env):
    assert isinstance(make_baseline("rrmc", env), ResolvedRate)
    with pytest.raises(ConfigError, match="unknown baseline .rmc.; did you mean .rrmc..* valid choices: rrmc$"):
        make_baseline("rmc", env)
