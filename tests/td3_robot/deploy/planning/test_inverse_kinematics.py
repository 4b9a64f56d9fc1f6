"""The goal in joint space beside the simulator's."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import envs
from envs.export.robot_description import describe
from envs.planning.goal_solver import solve_goal as simulated
from td3_robot.deploy import Robot
from td3_robot.deploy.planning.inverse_kinematics import GoalSolver, solve_goal
from tests.double_precision import double, exact_shape


@pytest.mark.parametrize("name", ["panda", "ur5e"])
def test_it_is_the_simulators(name):
    """In double precision and from the same numbers: a search that begins a 1e-7 beside may end
    elsewhere.
    """
    env = envs.make(name, "reach_pose", num_envs=60, seed=0)
    robot = Robot.from_dict(describe(env.robot))

    def single(x):
        return x.astype(np.float32).astype(float)

    limits = {name: single(getattr(robot.limits, name)) for name in ("lower", "upper", "velocity")}
    robot = replace(robot, limits=replace(robot.limits, **limits))
    chain = env.model.chain.to(dtype=torch.float64)
    collision = exact_shape(env.world.collision)
    world = replace(env.world, model=replace(double(env.model), chain=chain), collision=collision)
    q = env.state.q.double()
    goal = env.goal.double()
    found = np.array([solve_goal(robot, *row) for row in zip(q.numpy(), goal.numpy())])
    alike = np.abs(found - simulated(world, q, goal).numpy()).max(1) < 1e-6
    assert alike.mean() > 0.95


def test_a_goal_is_solved_once_and_another_one_anew():
    env = envs.make("panda", "reach_pose", num_envs=2, seed=0)
    solved = GoalSolver(Robot.load("panda"))
    goal = env.goal.double().numpy()
    q, other = env.state.q.double().numpy()
    first = solved(q, {"goal": goal[0]})["solution"]
    assert np.array_equal(solved(other, {"goal": goal[0]})["solution"], first)
    found = solved(other, {"goal": goal[1]})["solution"]
    assert np.allclose(found, simulated(env.world, env.state.q, env.goal)[1], atol=0.02)
    assert torch.equal(env.scene["solution"], simulated(env.world, env.state.q, env.goal))
