"""A way among obstacles: it is free, it ends at the goal, and nothing that was tried is quicker."""

import dataclasses

import numpy as np
import pytest
import torch

import envs
from envs.collision import Obstacles, clearance
from envs.kinematics.inverse import solve_pose, spread_joints
from envs.planning import motion_planner
from envs.planning.motion_planner import MARGIN, is_path_free, plan_path
from envs.robots import make_robot
from envs.tasks.among_obstacles import compute_goals
from envs.tasks.registry import make_task
from envs.world import get_obstacles


@pytest.fixture(scope="module")
def env():
    return envs.make("panda", "reach_avoid", 300, "cpu", 5)


@pytest.fixture(scope="module")
def found(env):
    return plan_path(env.world, env.state.q, env.goal, get_obstacles(env.scene))


def room(env, q, via, solution, obstacles, points=100):
    """(B,) the least clearance, walked finely."""
    share = torch.linspace(0, 1, points)
    legs = [torch.lerp(q, via, each) for each in share] + [
        torch.lerp(via, solution, each) for each in share
    ]
    return torch.stack(
        [clearance(env.world.collision, each, obstacles, 0.0) for each in legs]
    ).amin(0)


def time(env, q, via, solution):
    return sum(((b - a).abs() / env.model.qdlim).amax(1) for a, b in ((q, via), (via, solution)))


def test_it_is_free_and_ends_at_the_goal(env, found):
    via, solution = found
    lower, upper = env.model.qlim
    assert all(((q >= lower) & (q <= upper)).all() for q in found)
    assert ((env.fkine(solution)[:, :3, 3] - env.goal).norm(dim=1) < 5e-3).float().mean() > 0.99
    least = room(env, env.state.q, via, solution, get_obstacles(env.scene))
    assert (
        least > 0.8 * MARGIN
    ).float().mean() > 0.97  # the scenes leave a way free; of those that are looked at
    assert (least > 0).float().mean() > 0.99


def test_it_is_straight_where_that_is_free(env, found):
    """Its own end without the corner is among what is tried, and so are the solutions that the
    search finds.
    """
    q = env.state.q
    around = get_obstacles(env.scene)
    taken = time(env, q, *found)
    ends = [found[1]]
    for start in (q, *spread_joints(env.model.qlim, 5).unbind()):
        ends.append(solve_pose(env.model.chain, env.model.qlim, start.expand_as(q), env.goal)[0])
    tried = 0
    for end in ends:
        there = (env.fkine(end)[:, :3, 3] - env.goal).norm(dim=1) < 4e-3
        free = there & (room(env, q, (q + end) / 2, end, around) > MARGIN + 1e-3)
        assert (taken <= time(env, q, q, end) + 1e-3)[free].all()
        tried += int(free.sum())
    assert tried > 100


def test_each_scene_has_the_way_that_it_would_have_alone(env, found):
    for row in (0, 7, 250):
        one = slice(row, row + 1)
        alone = plan_path(
            env.world, env.state.q[one], env.goal[one], get_obstacles(env.scene).select_rows(one)
        )
        torch.testing.assert_close(alone[0], found[0][one], atol=1e-4, rtol=0)
        torch.testing.assert_close(alone[1], found[1][one], atol=1e-4, rtol=0)


def test_where_nothing_is_free_there_is_a_way_all_the_same(env):
    """A goal inside a ball, and one out of reach."""
    goal = torch.tensor([[0.5, 0.0, 0.4], [2.0, 0.0, 0.4]])
    balls = Obstacles(torch.tensor([[[0.5, 0.0, 0.4, 0.1]], [[0.5, 0.0, 0.9, 0.05]]]), None, None)
    via, solution = plan_path(env.world, env.world.home.expand(2, -1), goal, balls)
    assert (
        via.isfinite().all()
        and ((solution >= env.model.qlim[0]) & (solution <= env.model.qlim[1])).all()
    )
    assert (env.fkine(solution)[1, :3, 3] - goal[1]).norm() < 1.3  # stretched towards it


@pytest.mark.parametrize(("count", "looks"), [(2, 2), (8, 8), (8, 3)])
def test_checking_few_paths_first_chooses_as_checking_all_does(env, count, looks):
    """With a free path among those that are tried, and for arms without any."""
    q = env.state.q[:100]
    around = get_obstacles(env.scene).select_rows(torch.arange(100))
    generator = torch.Generator().manual_seed(1)
    shape = 100, count, q.shape[1]
    ends = env.world.random_q(100 * count, generator).view(shape)
    via = torch.lerp(q[:, None], ends, 0.5) + 0.3 * torch.randn(shape, generator=generator)
    time = torch.rand(100, count, generator=generator).sort(1).values
    arguments = (env.world, q, via, ends, time, around, looks)
    chosen, free = motion_planner._choose_paths(*arguments)
    all_chosen, all_free = motion_planner._check_paths(*arguments, stages=(slice(None),))
    assert 0 < free.sum() < 100
    assert torch.equal(chosen, all_chosen) and torch.equal(free, all_free)


def test_an_arm_of_three_joints_has_as_many_corners_to_choose_from_as_another():
    """Nearly all starts lead to one solution. Of these scenes each has a known free detour."""
    panda = make_robot("panda")
    still = [2, 4, 5, 6]
    qlim = panda.qlim.copy()
    qlim[:, still] = panda.home[still] + np.array([[-1e-5], [1e-5]])
    task = make_task("reach_avoid")
    world = task.make_world(dataclasses.replace(panda, qlim=qlim), "cpu")
    detour, around = task.draw(world, 8192, torch.Generator().manual_seed(0))
    via, solution = plan_path(world, detour.start, compute_goals(world, detour), around)
    assert len(via) > 30
    assert is_path_free(world, detour.start, via, solution, around).float().mean() > 0.95
