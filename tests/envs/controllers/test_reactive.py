"""The reactive controller: damped least squares in free space, the quadratic programme's optimum
behind dampers.
"""

import dataclasses

import pytest
import qpsolvers
import torch
from torch.testing import assert_close

import envs
from envs.collision import Nearest
from envs.controllers import make_baseline
from envs.controllers.halfspaces import (
    compute_damped_speed,
    make_distance_dampers,
    make_joint_dampers,
)
from envs.controllers.reactive import DEFAULTS, compute_reactive_velocity, solve_with_dampers
from envs.kinematics import Chain


@pytest.fixture(scope="module")
def env():
    return envs.make("panda", "reach_avoid", num_envs=50, seed=3, guard=True)


def random_problem(env, count, distances, seed=0, rows=3):
    """Jacobians of random configurations, errors, wanted velocities, and dampers of distances that
    motions change.
    """
    generator = torch.Generator().manual_seed(seed)
    J = env.jacob0(env.world.random_q(count, generator))[:, :rows]
    error = 0.3 * torch.randn(count, rows, generator=generator)
    gradient = torch.randn(count, len(distances), 7, generator=generator)
    return J, error, 8.0 * error, dampers(torch.tensor(distances).expand(count, -1), gradient)


def dampers(distance, gradient):
    return make_distance_dampers(
        Nearest(distance, gradient),
        DEFAULTS.obstacle_damper,
        DEFAULTS.self_damper,
        torch.ones(gradient.shape[2]),
    )


@pytest.mark.parametrize("rows", [3, 6])
def test_far_from_everything_it_is_damped_least_squares(env, rows):
    """J^T (J J^T + lambda I)^-1 v of Nakamura & Hanafusa, worked out in double precision."""
    J, error, velocity, near = random_problem(env, 50, [1.0, 1.0], rows=rows)
    qd = solve_with_dampers(J, error, velocity, near, DEFAULTS.effort, sweeps=4)
    J = J.double()
    error = error.double()
    velocity = velocity.double()
    damping = (0.01 * error.abs().sum(1))[:, None, None] * torch.eye(rows).double()
    wanted = J.mT @ torch.linalg.solve(J @ J.mT + damping, velocity[:, :, None])
    assert_close(qd.double(), wanted[:, :, 0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_with_many_sweeps_it_is_the_optimum_of_the_quadratic_programme(env, seed):
    J, error, velocity, near = random_problem(env, 20, [0.03, 0.1, 0.2, 0.02], seed)
    found = solve_with_dampers(J, error, velocity, near, DEFAULTS.effort, sweeps=2000)
    rows = (x.double() for x in (J, error, velocity, near.G, near.h, found))
    for j, e, v, G, h, qd in zip(*rows):
        slack = 1.0 / e.abs().sum()
        P = slack * j.T @ j + 0.01 * torch.eye(7)
        c = -slack * j.T @ v
        best = qpsolvers.solve_qp(*(x.numpy() for x in (P, c, G, h)), solver="quadprog")
        assert (G @ qd <= h + 2e-3).all()
        least, mine = (0.5 * x @ P @ x + c @ x for x in (torch.as_tensor(best), qd))
        assert mine.item() == pytest.approx(least.item(), rel=2e-3, abs=1e-2)


def test_a_damper_in_the_way_is_kept_and_one_that_is_not_changes_nothing(env):
    J, error, velocity, near = random_problem(env, 200, [0.05, 1.0])
    far = dataclasses.replace(near, h=torch.full_like(near.h, torch.inf))
    free, qd = (
        solve_with_dampers(J, error, velocity, seen, DEFAULTS.effort, sweeps=4)
        for seen in (far, near)
    )
    allowed = compute_damped_speed(torch.tensor(0.05), *DEFAULTS.obstacle_damper)
    wanted, kept = ((near.G[:, :1] @ x[:, :, None])[:, 0, 0] for x in (free, qd))
    too_fast = wanted > allowed
    assert 20 < too_fast.sum() < 180
    assert_close(kept[too_fast], allowed.expand_as(kept)[too_fast], atol=2e-3, rtol=2e-3)
    assert_close(qd[~too_fast], free[~too_fast])


def test_what_no_joint_can_change_is_left_alone(env):
    J, error, velocity, _ = random_problem(env, 10, [])
    touching, far = (dampers(torch.full((10, 3), d), torch.zeros(10, 3, 7)) for d in (-0.1, 10.0))
    moved, free = (
        solve_with_dampers(J, error, velocity, near, DEFAULTS.effort, sweeps=4)
        for near in (touching, far)
    )
    assert_close(moved, free)


def test_joint_speeds_stay_within_limits_and_slow_down_before_position_limits(env):
    env.reset(3)
    for _ in range(30):
        env.step(make_baseline("rrmc", env)(None))
    moment = env.moment
    goal = torch.rand(50, 3, generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0
    moment = dataclasses.replace(moment, scene={**moment.scene, "goal": goal})
    qd = compute_reactive_velocity(env.model, moment, env.task.find_nearest(env.world, moment))
    assert torch.isfinite(qd).all() and (qd.abs() <= env.model.qdlim).all()
    room = torch.where(
        qd > 0, env.model.qlim[1] - moment.state.q, moment.state.q - env.model.qlim[0]
    )
    assert (qd.abs() <= (room - 0.05).clamp_min(0) / 0.85 + 1e-5)[room < 0.9].all()
    model = env.model
    lower, upper = make_joint_dampers(
        moment.state.q, model.qlim, model.qdlim, DEFAULTS.joint_damper, model.chain
    )
    assert ((qd == lower) | (qd == upper)).sum() > 5


def test_a_joint_that_slides_is_held_back_near_its_ends_alone():
    """5 mm from them it stands, from 90 mm on it is free; one that turns, from 0.05 and 0.9 rad."""
    chain = Chain(torch.eye(4).repeat(3, 1, 1), (True, False))
    qlim = torch.tensor([[0.0, 0.0], [0.5, 2.0]])
    qdlim = torch.tensor([5.0, 5.0])
    q = torch.tensor([[0.005, 0.05], [0.0475, 0.475], [0.091, 0.91], [0.495, 1.95]])
    lower, upper = make_joint_dampers(q, qlim, qdlim, (0.05, 0.9, 1.0), chain)
    for joint in (0, 1):
        assert_close(lower[:, joint], torch.tensor([0.0, -0.5, -5.0, -5.0]), atol=1e-5, rtol=1e-5)
        assert_close(upper[:, joint], torch.tensor([5.0, 5.0, 5.0, 0.0]), atol=1e-5, rtol=1e-5)


def test_among_obstacles_and_behind_the_guard_it_finds_most_goals():
    """What `reach_avoid` shows the policy works by itself, and is what the baseline `reactive`
    does.
    """
    env = envs.make("panda", "reach_avoid", num_envs=80, seed=12345, guard=True)
    observation = env.reset()
    alive = torch.ones(80, dtype=torch.bool)
    baseline = make_baseline("reactive", env)
    for _ in range(env.task.horizon):
        action = baseline(None)
        assert_close(observation[:, env.layout["reactive"]], action, atol=1e-5, rtol=1e-5)
        step = env.step(action)
        alive &= ~step.terminated
        observation = step.observation
    assert (step.info["success"] & alive).float().mean() > 0.75


@pytest.mark.parametrize("task, least", [("reach", 0.95), ("reach_pose", 0.8)])
def test_as_a_baseline_it_reaches_positions_and_poses_in_free_space(task, least):
    env = envs.make("panda", task, num_envs=100, seed=3)
    baseline = make_baseline("reactive", env)
    for _ in range(env.task.horizon):
        step = env.step(baseline(None))
    assert step.info["success"].float().mean() > least


def test_a_damped_distance_never_falls_below_where_it_stops():
    distance = torch.tensor([1.0], dtype=torch.float64)
    for _ in range(1000):
        distance = distance - 0.05 * compute_damped_speed(distance, 0.1, 0.5, 1.0).clamp(max=2.0)
    assert distance.item() == pytest.approx(0.1, abs=1e-6)
    assert compute_damped_speed(
        torch.tensor([0.5, 0.49, 0.3, 0.1, 0.0]), 0.1, 0.5, 2.0
    ).tolist() == pytest.approx([torch.inf, 1.95, 1.0, 0.0, -0.5])
