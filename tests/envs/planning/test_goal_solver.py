"""Joint positions for poses: what inverse kinematics finds, and which of it is taken."""

import math

import pytest
import torch

import envs
from envs.kinematics import fkine
from envs.kinematics.inverse import solve_pose, spread_joints
from envs.kinematics.rotations import rotation_error, to_quaternion
from envs.planning import goal_solver
from envs.planning.contact_check import is_free
from envs.planning.goal_solver import solve_goal


def drawn(name: str):
    env = envs.make(name, "reach_pose", num_envs=300, seed=3)
    q = env.world.random_q(300, torch.Generator().manual_seed(5))
    T = fkine(env.model.chain, q)
    return env, q, T, torch.cat((T[:, :3, 3], to_quaternion(T[:, :3, :3])), 1)


@pytest.fixture(scope="module", params=["panda", "ur5e", "wx250s"])
def arm(request):
    return drawn(request.param)


def test_what_is_called_there_is_there_and_inside_the_limits(arm):
    env, q, T, _ = arm
    begin = torch.clamp(
        q + 0.3 * torch.randn(q.shape, generator=torch.Generator().manual_seed(1)), *env.model.qlim
    )
    found, there, left = solve_pose(
        env.model.chain, env.model.qlim, begin, T[:, :3, 3], T[:, :3, :3]
    )
    lower, upper = env.model.qlim
    assert ((found >= lower) & (found <= upper)).all()
    at = fkine(env.model.chain, found[there])
    assert (at[:, :3, 3] - T[there, :3, 3]).norm(dim=1).max() < 5.1e-3
    assert rotation_error(at[:, :3, :3], T[there, :3, :3]).norm(dim=1).max() < 0.031
    assert there.float().mean() > 0.9  # from 0.3 rad away
    assert left[there].max() < 5.1e-3 + 0.3 * 0.031


def test_of_what_is_found_the_nearest_is_taken(arm):
    """Where the arm stands at a goal's solution, that is it; and nothing found is farther than a
    way that is known.
    """
    env, q, _, goal = arm
    there = is_free(env.world, q)
    found = solve_goal(env.world, q, goal)
    assert (found - q)[there].abs().max() < 0.05
    start = env.moment.state.q

    def time(to):
        return ((to - start).abs() / env.model.qdlim).amax(1)

    found = solve_goal(env.world, start, goal)
    assert (
        time(found)[there] <= time(q)[there] + 0.05
    ).float().mean() > 0.85  # that way may touch something


def test_nothing_is_touched_where_a_way_around_is_found(arm):
    env, q, _, goal = arm
    there = is_free(env.world, q)
    start = env.moment.state.q
    found = solve_goal(env.world, start, goal)[there]
    assert is_free(env.world, found).float().mean() > 0.95
    halfway = torch.lerp(start[there], found, 0.5)
    assert is_free(env.world, halfway, 0.0).float().mean() > 0.9


def test_joints_that_turn_more_than_once_go_no_whole_turn_too_far():
    env, q, _, goal = drawn("ur5e")
    start = env.moment.state.q
    found = solve_goal(env.world, start, goal)
    turned = found - 2 * math.pi * torch.sign(found - start)
    lower, upper = env.model.qlim
    shorter = (
        ((turned - start).abs() < (found - start).abs() - 1e-4)
        & (turned > lower)
        & (turned < upper)
    )
    assert not shorter.any()


def test_starting_points_fill_the_limits():
    """Of n points the first coordinates leave no gap of more than 6 / n; and they are the same
    every time.
    """
    qlim = torch.tensor([[-1.0, 0.0, 2.0], [1.0, 0.5, 5.0]])
    points = spread_joints(qlim, 60)
    assert torch.equal(points, spread_joints(qlim, 60)) and torch.equal(
        points[:9], spread_joints(qlim, 9)
    )
    share = ((points - qlim[0]) / (qlim[1] - qlim[0])).sort(0)[0]
    assert (share > 0).all() and (share < 1).all() and share.diff(dim=0).max() < 6 / 60


def test_checking_the_quickest_first_changes_nothing(arm, monkeypatch):
    env, q, _, goal = arm
    start = env.world.random_q(300, torch.Generator().manual_seed(8))
    found = solve_goal(env.world, start, goal)
    monkeypatch.setattr(goal_solver, "is_asynchronous", lambda device: True)  # checks all
    assert torch.equal(solve_goal(env.world, start, goal), found)
