"""Laws of NEO, and roboticstoolbox's parts of it as an independent reference."""

import dataclasses
import sys

import numpy as np
import pytest
import qpsolvers
import roboticstoolbox as rtb
import torch
from spatialmath import SE3

import envs
from envs.collision import compile_collision, compute_nearest
from envs.controllers import Neo, make_baseline
from envs.controllers.halfspaces import HalfSpaces, compute_damped_speed
from envs.controllers.neo import NeoConstants
from envs.controllers.quadratic import QuadraticSolver
from envs.kinematics import jacob0
from envs.kinematics.manipulability import (
    kinematic_hessian,
    manipulability,
    manipulability_gradient,
)
from envs.kinematics.rotations import to_matrix
from td3_robot.errors import ConfigError

OFF = (-20.0, -10.0, 1.0)  # a damper of what is metres deep
PAPER = NeoConstants(
    gain=2.0,
    manipulability=1.0,
    joint_damper=(0.05, 0.9, 1.0),
    obstacle_damper=OFF,
    self_damper=OFF,
)


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def speeds(env, constants=None):
    """(B, n) [rad/s] that NEO commands now."""
    return Neo(env, constants)(None) * env.model.qdlim


# Manipulability


@pytest.fixture(scope="module", params=["panda", "gantry"])
def chain_q(request):
    """A chain in float64, all revolute and with sliding joints, and configurations of it."""
    name = "panda" if request.param == "panda" else "tests/envs/data/gantry.urdf"
    robot = envs.make_robot(name)
    lower, upper = torch.as_tensor(robot.qlim)
    share = torch.rand(20, robot.n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return robot.chain.to(dtype=torch.float64), lower + share * (upper - lower)


def by_differences(f, q, step=1e-6):
    """Central differences of f by every joint, the joint's axis put in place 1."""
    moved = step * torch.eye(q.shape[1], dtype=q.dtype)
    return torch.stack([(f(q + d) - f(q - d)) / (2 * step) for d in moved], 1)


def test_the_hessian_is_the_derivative_of_the_jacobian(chain_q):
    chain, q = chain_q
    by_joint = by_differences(lambda q: jacob0(chain, q), q)  # (B, i, 6, j)
    torch.testing.assert_close(
        kinematic_hessian(jacob0(chain, q)), by_joint.transpose(1, 2), atol=1e-7, rtol=0
    )


@pytest.mark.parametrize("moving", [7, 6, 5, 4, 2])
@pytest.mark.parametrize("rows", [3, 6])
def test_the_gradient_is_that_of_the_manipulability(rows, moving):
    """Of the arm whose last joints are locked, too: it has fewer joints than rows."""
    robot = envs.make_robot("panda")
    chain = robot.chain.to(dtype=torch.float64)
    (lower, upper) = torch.as_tensor(robot.qlim)
    share = torch.rand(50, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    q = lower + share * (upper - lower)
    wanted = by_differences(lambda q: manipulability(jacob0(chain, q)[:, :rows, :moving]), q)[
        :, :moving
    ]
    J = jacob0(chain, q)[:, :, :moving]
    # elsewhere the differences of a root are those of rounding
    regular = manipulability(J[:, :rows]) > 1e-3
    assert regular.sum() > 40
    torch.testing.assert_close(
        manipulability_gradient(J, rows)[regular], wanted[regular], atol=1e-7, rtol=1e-5
    )


def test_a_singular_arm_has_no_manipulability_and_a_finite_gradient():
    chain = envs.make_robot("panda").chain.to(dtype=torch.float64)
    J = jacob0(chain, torch.zeros(1, 7, dtype=torch.float64))  # stretched out upwards
    assert manipulability(J) < 1e-6
    assert manipulability_gradient(J, 6).abs().max() < 10.0


# The programme


def test_the_solution_meets_the_conditions_of_optimality():
    """Karush, Kuhn and Tucker: what is left of the cost's slope is pushed back by limits that are
    reached.
    """
    B = 200
    n = 7
    k = 5
    root = draw(B, n, n)
    P = root @ root.mT + torch.eye(n)
    c = draw(B, n, seed=1)
    A = draw(B, k, n, seed=2)
    b = draw(B, k, seed=3).abs()
    upper = 0.3 + draw(B, n, seed=4).abs()
    b[:, 0] = torch.inf
    lower = -upper
    x = QuadraticSolver().solve(P, c, HalfSpaces(A, b), (lower, upper))
    Ax = (A @ x[:, :, None])[:, :, 0]
    assert (Ax <= b + 1e-9).all() and (x <= upper + 1e-9).all() and (x >= lower - 1e-9).all()
    G = torch.cat((A, torch.eye(n).expand(B, n, n), -torch.eye(n).expand(B, n, n)), 1)
    room = torch.cat((b - Ax, upper - x, x - lower), 1)
    slope = (P @ x[:, :, None])[:, :, 0] + c
    reached = 0
    for row in range(B):
        active = G[row, room[row] < 1e-7]
        if not len(active):
            assert slope[row].abs().max() < 1e-8
            continue
        reached += 1
        force = torch.linalg.lstsq(active.T, -slope[row]).solution
        assert (active.T @ force + slope[row]).abs().max() < 1e-7 and (force > -1e-7).all()
    assert 50 < reached < B


def test_contradicting_conditions_stop_the_arm():
    P = torch.eye(2).double()[None]
    c = torch.ones(1, 2).double()
    A = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]]).double()
    limit = torch.ones(1, 2).double()
    impossible = torch.tensor([[-0.5, -0.5]]).double()  # x <= -0.5 and x >= 0.5
    assert (QuadraticSolver().solve(P, c, HalfSpaces(A, impossible), (-limit, limit)) == 0).all()


def reference(panda, q, T_goal, k):
    """The velocities of the authors' example, its programme in speeds and slack, by roboticstoolbox
    in its own words: https://github.com/petercorke/robotics-toolbox-python, examples/neo.py.
    """
    n = 7
    T_be = panda.fkine(q).A
    v, _ = rtb.p_servo(T_be, T_goal, k.gain, method="angle-axis")
    e = np.abs(v / k.gain).sum()
    Q = np.diag([k.effort] * n + [1 / e] * 6)
    stop, influence, gain = k.joint_damper
    A = np.zeros((n, n + 6))
    b = np.zeros(n)
    A[:, :n], b = panda.joint_velocity_damper(q, ps=stop, pi=influence, n=n, gain=gain)
    c = np.r_[-k.manipulability * panda.jacobm(q).ravel(), np.zeros(6)]
    bound = np.r_[panda.qdlim[:n], 100 * np.ones(6)]
    x = qpsolvers.solve_qp(
        Q, c, A, b, np.c_[panda.jacob0(q), np.eye(6)], v, -bound, bound, solver="quadprog"
    )
    return x[:n]


def test_it_is_the_programme_of_its_authors():
    env = envs.make("panda", "reach_pose", num_envs=40, seed=5)
    for _ in range(20):  # somewhere on the way, joint limits near
        env.step(make_baseline("neo", env)(None))
    found = speeds(env, PAPER).double().numpy()
    panda = env.robot.rtb
    limited = 0
    for row, q in enumerate(env.moment.state.q.double().numpy()):
        R = to_matrix(env.goal[row : row + 1, 3:])[0].double().numpy()
        t = env.goal[row, :3].double().numpy()
        wanted = reference(panda, q, SE3.Rt(R, t, check=False).A, PAPER)
        np.testing.assert_allclose(found[row], wanted, atol=2e-4)
        lower, upper = env.model.qlim.double().numpy()
        limited += (np.minimum(q - lower, upper - q) < 0.9).any()
    assert limited > 5


# What it does


def test_it_goes_more_often_than_resolved_rate_where_joint_limits_are_in_the_way():
    reached = {}
    for name in ("rrmc", "neo"):
        env = envs.make("panda", "reach_pose", num_envs=150, seed=3)
        policy = make_baseline(name, env)
        for _ in range(env.task.horizon):
            step = env.step(policy(None))
        reached[name] = step.info["success"].float().mean().item()
    assert reached["neo"] > reached["rrmc"] > 0.7


def test_joints_keep_their_distance_to_the_limits():
    env = envs.make("panda", "reach_pose", num_envs=100, seed=3)
    policy = make_baseline("neo", env)
    (stop, _, _) = NeoConstants().joint_damper
    lower, upper = env.model.qlim
    for _ in range(60):
        env.step(policy(None))
        assert (torch.minimum(env.state.q - lower, upper - env.state.q) > stop - 0.01).all()


def test_positions_are_reached():
    env = envs.make("panda", "reach", num_envs=100, seed=3)
    policy = make_baseline("neo", env)
    for _ in range(env.task.horizon):
        step = env.step(policy(None))
    assert step.info["success"].float().mean() > 0.95


@pytest.mark.parametrize("task", ["reach_avoid", "reach"])
def test_links_approach_no_faster_than_the_dampers_let_them(task):
    """Obstacles, the ground and the arm itself: also in a task that looks for none of them, sent
    under the ground.
    """
    env = envs.make("panda", task, num_envs=50, seed=3)
    if task == "reach":
        env.moment.scene["goal"][:] = torch.tensor([0.5, 0.0, -0.3])
    collision = compile_collision(env.robot)
    policy = make_baseline("neo", env)
    k = NeoConstants()
    seen = 0
    for _ in range(15):
        near = compute_nearest(collision, env.moment.state.q, env.moment.obstacles, 0.0)
        qd = policy(None) * env.model.qdlim
        approach = -(near.gradient @ qd[:, :, None])[:, :, 0]
        around = compute_damped_speed(near.distance, *k.obstacle_damper)
        own = compute_damped_speed(near.distance, *k.self_damper)
        allowed = torch.cat((around[:, :-1], own[:, -1:]), 1)
        moving = (qd != 0).any(1)  # a programme without solution stops the arm
        assert (approach <= allowed + 1e-4)[moving].all()
        seen += (approach > allowed - 1e-4)[moving].sum()
        env.step(qd / env.model.qdlim)
    assert seen > 20 and moving.float().mean() > 0.5


def test_what_is_far_away_changes_nothing():
    env = envs.make("panda", "reach", num_envs=50, seed=3)
    alone = Neo(env, dataclasses.replace(NeoConstants(), obstacle_damper=OFF, self_damper=OFF))(
        None
    )
    env.world = dataclasses.replace(env.world, collision=None)  # an arm of no known shape
    torch.testing.assert_close(alone, Neo(env)(None))


@pytest.mark.parametrize("name", ["neo", "reactive"])
def test_it_is_one_thing_with_and_without_a_guard(name):
    """What the environment has no need of, the controller looks at by itself."""
    actions = []
    for guard in (False, True):
        env = envs.make("panda", "reach", num_envs=20, seed=3, guard=guard)
        env.moment.scene["goal"][:] = torch.tensor([0.5, 0.0, -0.3])
        actions.append(make_baseline(name, env)(None))
    torch.testing.assert_close(*actions)


def test_without_qpsolvers_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "qpsolvers", None)
    env = envs.make("panda", "reach")
    with pytest.raises(ConfigError, match=r"neo needs qpsolvers, .*'td3-robot\[neo\]'"):
        make_baseline("neo", env)
