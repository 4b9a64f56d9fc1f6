"""The reach_pose task: its goals, observation, reward and success as numbers."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

import envs
from envs.controllers.experts import FollowSolution, make_expert
from envs.planning.goal_solver import solve_goal
from envs.simulation.engine import SimState
from envs.tasks import reach_pose
from envs.tasks.registry import make_task
from envs.world import make_moment
from td3_robot.errors import ConfigError

TASK = dataclasses.replace(
    make_task("reach_pose"),
    metres_per_radian=0.5,
    distance_weight=2.0,
    precision_weight=3.0,
    precision_scale=0.1,
    action_weight=0.5,
    stillness_weight=4.0,
    stillness_scale=0.2,
)


@pytest.fixture(scope="module")
def env():
    return envs.make("panda", "reach_pose", num_envs=200, seed=3)


def at(env, q: torch.Tensor, goal: torch.Tensor):
    """A moment of arms at rest at q with these goals."""
    state = SimState(q, torch.zeros_like(q), torch.full((len(q),), 0.04))
    scene = {"goal": goal, "solution": torch.zeros_like(q)}
    return make_moment(env.world, state, scene, torch.zeros(len(q), dtype=torch.long))


def pose(env, q: torch.Tensor) -> torch.Tensor:
    """(B, 7) by scipy: the TCP's position and quaternion, wxyz with w >= 0."""
    T = env.fkine(q).double().numpy()
    xyzw = Rotation.from_matrix(T[:, :3, :3]).as_quat(canonical=True)
    return torch.tensor(
        np.concatenate((T[:, :3, 3], xyzw[:, 3:], xyzw[:, :3]), 1), dtype=torch.float32
    )


def test_reward_terms_are_what_a_hand_gets():
    """0.06 m and 0.16 rad, which is 0.08 m, are 0.1 m together."""
    # mean squares 1 and 0.18, roots 1 and 0.424264
    action = torch.tensor([[1.0, -1.0], [0.6, 0.0]])
    terms = reach_pose.compute_reward_terms(
        TASK, torch.tensor([0.0, 0.06]), torch.tensor([0.0, 0.16]), action
    )
    torch.testing.assert_close(terms["distance"], torch.tensor([0.0, -0.12]))
    torch.testing.assert_close(terms["rotation"], torch.tensor([0.0, -0.16]))
    torch.testing.assert_close(terms["precision"], torch.tensor([3.0, 3.0 / math.e]))
    torch.testing.assert_close(terms["action"], torch.tensor([-0.5, -0.09]))
    torch.testing.assert_close(
        terms["stillness"], torch.tensor([-4.0, -4.0 * 0.424264 / math.exp(0.5)])
    )


def test_goals_are_poses_in_the_workspace_that_the_solution_has(env):
    """Within 5 mm and 0.03 rad, inside the limits; the search finds one for nearly all."""
    solution = env.moment.scene["solution"]
    (lower, upper) = env.model.qlim
    assert ((solution >= lower) & (solution <= upper)).all()
    there = pose(env, solution)
    turned = (
        Rotation.from_quat(env.goal[:, [4, 5, 6, 3]].numpy())
        * Rotation.from_quat(there[:, [4, 5, 6, 3]]).inv()
    )
    near = ((env.goal - there)[:, :3].norm(dim=1) < 5e-3) & torch.tensor(turned.magnitude() < 0.03)
    assert near.float().mean() > 0.98
    assert env.world.in_workspace(env.goal[:, :3]).all() and (env.goal[:, 3] >= 0).all()


def test_the_solution_of_another_goal_is_of_that_goal(env):
    """Where an episode begins with it, it is looked for from everywhere; else it is near to where
    the arm is.
    """
    env.reset(7)
    moment = env.moment
    goal = env.goal.roll(1, 0)
    put = env.task.move_goal(env.world, moment, goal)
    assert torch.equal(put.scene["goal"], goal)
    found = env.task.plan_episode(env.world, moment.state, put.scene)
    assert torch.equal(found["solution"], solve_goal(env.world, moment.state.q, goal))
    mixed = torch.where(torch.arange(len(goal))[:, None] < 100, env.goal, goal)
    other = env.task.replace_goal(env.world, moment, mixed).scene["solution"]
    assert torch.equal(other[:100], moment.scene["solution"][:100])
    same = env.task.replace_goal(env.world, moment, pose(env, moment.state.q + 0.05)).scene[
        "solution"
    ]
    assert (same - moment.state.q).abs().amax(1).median() < 0.1


@pytest.mark.parametrize(
    ("distance", "degrees", "met"),
    [(0.0, 0.0, True), (0.0099, 4.9, True), (0.0101, 0.0, False), (0.0, 5.1, False)],
)
def test_success_is_a_centimetre_and_five_degrees(env, distance, degrees, met):
    q = env.state.q
    goal = pose(env, q).double()
    turn = Rotation.from_rotvec(math.radians(degrees) * np.array([0.6, 0.0, 0.8]))
    turned = (turn * Rotation.from_quat(goal[:, [4, 5, 6, 3]].numpy())).as_quat()
    shift = distance * torch.tensor([0.0, 1.0, 0.0])
    goal = torch.cat((goal[:, :3] + shift, torch.tensor(turned[:, [3, 0, 1, 2]])), 1).float()
    outcome = env.task.compute_outcome(env.world, at(env, q, goal), torch.zeros(len(q), 7))
    assert (outcome.success == met).all()
    torch.testing.assert_close(
        outcome.position_error, torch.full((200,), distance), atol=1e-5, rtol=0
    )
    angle = torch.full((200,), math.radians(degrees))
    torch.testing.assert_close(outcome.measures["rotation_error"], angle, atol=2e-3, rtol=0)
    assert (env.task.is_goal_met(pose(env, q), goal) == met).all()


def test_the_observation_holds_each_quantity_where_the_layout_says(env):
    env.reset(4)
    seen = env.task.observe(env.world, env.moment)
    shown = {name: seen[:, env.layout[name]] for name in env.layout}
    T = env.fkine(env.state.q)
    torch.testing.assert_close(shown["tcp"], T[:, :3, 3])
    torch.testing.assert_close(shown["axes"], torch.cat((T[:, :3, 0], T[:, :3, 1]), 1))
    R_goal = Rotation.from_quat(env.goal[:, [4, 5, 6, 3]].double().numpy())
    axes = torch.tensor(R_goal.as_matrix(), dtype=torch.float32)
    torch.testing.assert_close(
        shown["goal_axes"], torch.cat((axes[:, :, 0], axes[:, :, 1]), 1), atol=1e-5, rtol=0
    )
    error = (env.goal[:, :3] - T[:, :3, 3]) / env.task.error_unit
    torch.testing.assert_close(shown["error"], error)
    turn = R_goal * Rotation.from_matrix(T[:, :3, :3].double().numpy()).inv()
    seen_turn = Rotation.from_rotvec(
        env.task.rotation_unit * shown["rotation_error"].double().numpy()
    )
    assert (turn * seen_turn.inv()).magnitude().max() < 1e-3


def test_near_the_goal_the_joint_error_leads_there(env):
    """To first order; q' = q + joint_error leaves a tenth of a small error or less, away from
    singularities.
    """
    generator = torch.Generator().manual_seed(0)
    q = env.state.q
    goal = pose(env, q + 0.02 * torch.randn(q.shape, generator=generator))
    seen = env.task.observe(env.world, at(env, q, goal))
    after = at(env, q + seen[:, env.layout["joint_error"]], goal)
    before = at(env, q, goal)
    for error_before, error_after in zip(
        reach_pose.compute_errors(before), reach_pose.compute_errors(after)
    ):
        assert error_after.median() < 0.1 * error_before.median()


def test_beyond_is_what_the_limits_cut_off(env):
    env.reset(4)
    seen = env.task.observe(env.world, env.moment)
    there = env.state.q + seen[:, env.layout["joint_error"]]
    lower, upper = env.model.qlim
    beyond = seen[:, env.layout["beyond"]]
    torch.testing.assert_close(there - beyond, there.clamp(lower, upper))
    assert (beyond > 0.1).any() and (beyond < -0.1).any() and (beyond == 0).float().mean() > 0.5


def test_within_makes_up_for_joints_that_limits_stop(env):
    """To first order: it is joint_error where that ends inside, else it leaves less than
    joint_error cut off there.
    """
    env.reset(4)
    moment = env.moment
    (lower, upper) = env.model.qlim
    seen = env.task.observe(env.world, moment)
    motion, beyond, within = (
        seen[:, env.layout[name]] for name in ("joint_error", "beyond", "within")
    )
    there = moment.state.q + within
    assert (there >= lower - 1e-5).all() and (there <= upper + 1e-5).all()
    free = (beyond == 0).all(1)
    assert free.any() and not free.all()
    torch.testing.assert_close(within[free], motion[free])
    wanted = torch.cat((moment.scene["goal"][:, :3] - moment.tcp, moment.rotation_error), 1)

    def left(motion):
        return torch.linalg.vector_norm(wanted - (moment.J @ motion[:, :, None])[:, :, 0], dim=1)

    cut = left(motion - beyond)[~free]
    made_up = left(within)[~free]
    assert made_up.median() < 0.6 * cut.median() and (made_up < cut).float().mean() > 0.9


def test_room_says_which_limit_is_near(env):
    lower, upper = env.model.qlim
    q = torch.stack((lower, upper, (lower + upper) / 2))
    room = env.task.observe(env.world, at(env, q, env.goal[:3]))[:, env.layout["room"]]
    torch.testing.assert_close(room[0], -torch.ones(7), atol=1e-4, rtol=0)
    torch.testing.assert_close(room[1], torch.ones(7), atol=1e-4, rtol=0)
    torch.testing.assert_close(room[2], torch.zeros(7), atol=1e-3, rtol=0)


def test_whoever_is_told_the_solution_gets_there(env):
    """So every goal can be reached within the limits and in time."""
    env.reset(5)
    expert = make_expert("solution", env)
    assert isinstance(expert, FollowSolution)
    for _ in range(env.task.horizon):
        step = env.step(expert(None))
    # a straight way may touch something
    assert step.info["success_with_contact"].float().mean() > 0.99


def test_a_teacher_that_is_unknown_or_has_nothing_to_tell_is_refused(env):
    with pytest.raises(
        ConfigError, match="unknown exploration.expert 'solutoin'; did you mean 'solution'"
    ):
        make_expert("solutoin", env)
    with pytest.raises(ConfigError, match="solution needs a task whose scenes hold one"):
        make_expert("solution", envs.make("panda", "reach"))


def test_what_was_achieved_is_the_pose_of_the_tcp(env):
    env.reset(6)
    achieved = env.achieved_goal(env.memory())
    torch.testing.assert_close(achieved, pose(env, env.state.q), atol=2e-4, rtol=0)
    assert env.task.is_goal_met(achieved, achieved).all()
