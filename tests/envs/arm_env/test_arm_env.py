"""An arm that reaches, in figures: success, automatic resets, reachable goals, starts, other goals
in hindsight.

What holds for every task is in test_checklist.py.
"""

import dataclasses

import numpy as np
import pytest
import roboticstoolbox as rtb
import torch
from scipy.optimize import least_squares

import envs
from envs.arm_env.arm_env import ArmEnv
from envs.robots import make_robot, shipped_robots
from td3_robot.errors import ConfigError
from tests.envs.playing import actions, play, to_goal

everywhere = pytest.mark.parametrize("robot", shipped_robots())


def make(robot="panda", num_envs=4, seed=0):
    return envs.make(robot, "reach", num_envs=num_envs, seed=seed)


# Observation and success


def test_what_the_observation_says_is_so():
    env = make()
    env.reset(0)
    for step in play(env, 5):
        seen = {name: step.observation[:, env.layout[name]] for name in env.layout}
        # an arm is seen where it is bound for
        on = step.info["q"] + 0.5 * env.task.dt * step.info["qd"]
        torch.testing.assert_close(seen["q"], on.clamp(*env.model.qlim))
        assert torch.equal(seen["qd"], step.info["qd"]) and torch.equal(seen["goal"], env.goal)
        assert torch.equal(seen["tcp"], env.fkine(seen["q"])[:, :3, 3])
        tcp = env.fkine(step.info["q"])[:, :3, 3]
        assert torch.equal(tcp, step.info["tcp"])
        torch.testing.assert_close(
            step.info["position_error"], torch.linalg.vector_norm(env.goal - tcp, dim=1)
        )


def test_an_action_may_be_an_array():
    action = np.random.default_rng(0).uniform(-1.0, 1.0, (4, make().a_dim))
    of_array = make().step(action)
    of_tensor = make().step(torch.from_numpy(action))
    assert torch.equal(of_array.observation, of_tensor.observation)


def test_joint_positions_may_be_arrays_of_double_precision():
    """As those of a `Robot` are."""
    env = make()
    q = np.random.default_rng(0).uniform(*env.robot.qlim, (5, env.robot.n))
    as_tensor = torch.from_numpy(q).float()
    assert torch.equal(env.fkine(q), env.fkine(as_tensor))
    assert torch.equal(env.jacob0(q.tolist()), env.jacob0(as_tensor))
    with pytest.raises(ConfigError, match=r"q must have shape \(B, 7\), got \(7,\)"):
        env.fkine(env.robot.q)
    with pytest.raises(ConfigError, match=r"q must have shape \(B, 7\), got \(5, 6\)"):
        env.jacob0(q[:, :6])


def test_a_step_is_no_part_of_a_networks_gradient():
    """As in the MuJoCo engine: a loop of one's own may take an actor's output as it is."""
    env = make()
    action = torch.zeros(4, env.a_dim, requires_grad=True)
    step = env.step(action)
    assert not step.reward.requires_grad and not step.next_observation.requires_grad
    assert not env.step(action).observation.requires_grad


def test_success_is_the_tcp_within_a_centimetre_and_can_be_had():
    """A plain resolved-rate controller reaches most goals, and the gripper shuts there."""
    env = make(num_envs=100)
    env.reset(0)
    for t in range(60):
        assert env.moment.steps.tolist() == [t] * 100
        step = env.step(to_goal(env))
        assert torch.equal(step.info["success"], step.info["position_error"] < 0.01)
        assert not step.terminated.any() and step.truncated.all() == (t == 59)
    assert step.info["success"].float().mean() > 0.9
    drivers = step.next_observation[:, env.layout["drivers"]]
    assert (drivers[step.info["success"]] < 0.04).all()


def test_actions_are_fractions_of_each_joints_speed():
    env = make()
    env.reset(0)
    speeds = [env.step(torch.full((4, 7), 0.1)).info["qd"] for _ in range(5)][-1]
    torch.testing.assert_close(speeds, (0.1 * env.model.qdlim).expand(4, 7))


# Automatic reset


def test_after_the_last_step_both_observations_are_right():
    """`next_observation` is where the old episode ended, `observation` where the new one begins."""
    env = make()
    env.reset(0)
    for step in play(env, 59):
        assert not step.truncated.any()
        assert torch.equal(step.observation, step.next_observation)
    old_goal = env.goal
    before = env.state
    action = actions(env, 1, seed=9)[0]
    step = env.step(action)
    assert step.truncated.all() and not step.terminated.any()
    old = {name: step.next_observation[:, env.layout[name]] for name in env.layout}
    new = {name: step.observation[:, env.layout[name]] for name in env.layout}

    assert torch.equal(old["goal"], old_goal)
    torch.testing.assert_close(
        step.info["q"], before.q + 0.5 * env.task.dt * (before.qd + old["qd"])
    )
    assert torch.equal(step.info["qd"], old["qd"]) and torch.equal(
        env.arrived.state.q, step.info["q"]
    )
    error = torch.linalg.vector_norm(old_goal - step.info["tcp"], dim=1)
    torch.testing.assert_close(step.info["position_error"], error)

    assert (new["goal"] != old_goal).all()
    assert (new["qd"] == 0).all() and (new["drivers"] == 0.04).all()
    home = torch.tensor(env.robot.home, dtype=torch.float32)
    assert ((new["q"] - home).abs() <= 0.3 + 1e-6).all()
    torch.testing.assert_close(new["tcp"], env.fkine(new["q"])[:, :3, 3])

    # and the new episode goes on from there
    following = env.step(torch.full((4, 7), 0.01))
    qd = following.observation[:, env.layout["qd"]]
    torch.testing.assert_close(qd, (0.01 * env.model.qdlim).expand(4, 7))
    torch.testing.assert_close(
        following.observation[:, env.layout["q"]], new["q"] + qd * env.task.dt
    )
    assert torch.equal(following.observation[:, env.layout["goal"]], new["goal"])


# Goals and starts


@everywhere
def test_goals_lie_in_the_workspace_and_fill_it(robot):
    env = make(robot, num_envs=2000)
    lower, upper = torch.tensor(env.robot.workspace, dtype=torch.float32)
    assert ((env.goal > lower) & (env.goal < upper)).all()
    assert ((env.goal.amax(0) - env.goal.amin(0)) > 0.9 * (upper - lower)).all()


def test_a_workspace_out_of_reach_is_refused():
    robot = dataclasses.replace(
        make_robot("panda"), workspace=np.array([[5.1, 5.0, 5.0], [6.0, 6.0, 6.0]])
    )
    said = (
        r"^task 'reach': 10 calls of sample_scenes returned no scene; .* "
        r"workspace \[\[5.1, 5.0, 5.0\], \[6.0, 6.0, 6.0\]\] has no goal that .*: enlarge it, or give .* base$"
    )
    with pytest.raises(ConfigError, match=said):
        ArmEnv(robot, make().task, 4, "cpu", seed=0)


def joints_at(goal: np.ndarray, ets: rtb.ETS, qlim: np.ndarray, home: np.ndarray) -> np.ndarray:
    """Joint positions within the limits whose TCP is nearest to a goal, by general least
    squares.
    """
    others = np.random.default_rng(0)
    best = None
    for start in (home, *others.uniform(*qlim, (20, len(home)))):
        found = least_squares(
            lambda q: ets.fkine(q).A[:3, 3] - goal, start, lambda q: ets.jacob0(q)[:3], bounds=qlim
        )
        best = found if best is None or found.cost < best.cost else best
        if best.cost < 1e-10:
            break
    return best.x


def test_every_goal_can_be_reached_inside_the_joint_limits():
    """By a solver and a model that know nothing of how the goals were drawn."""
    env = make(num_envs=100)
    ets = rtb.models.Panda().ets()
    for goal in env.goal.double().numpy():
        q = joints_at(goal, ets, env.robot.qlim, env.robot.home)
        np.testing.assert_allclose(ets.fkine(q).A[:3, 3], goal, atol=1e-4)


@everywhere
def test_episodes_start_at_rest_around_home(robot):
    env = make(robot, num_envs=2000)
    seen = env.reset(0)
    layout = env.layout
    home = torch.tensor(env.robot.home, dtype=torch.float32)
    lower, upper = torch.tensor(env.robot.qlim, dtype=torch.float32)
    offset = seen[:, layout["q"]] - home
    assert (offset.abs() <= 0.3 + 1e-6).all() and (seen[:, layout["qd"]] == 0).all()
    assert (seen[:, layout["q"]] >= lower).all() and (seen[:, layout["q"]] <= upper).all()
    room = torch.minimum(torch.tensor(0.3), torch.minimum(home - lower, upper - home))
    assert (offset.amax(0) > 0.95 * room).all() and (offset.amin(0) < -0.95 * room).all()


# Goals that hindsight changes


@everywhere
def test_relabelled_with_another_goal_it_is_what_that_goal_would_have_given(robot):
    env = make(robot)
    other = make(robot)
    env.reset(1)
    past = actions(env, 5)
    for action in past[:4]:
        env.step(action)
    kept = env.memory()
    env.step(past[4])
    arrived = env.memory(arrived=True)
    goal = env.achieved_goal(arrived) + 0.004  # within the tolerance of 1 cm

    other.reset(1)
    other.moment = other.task.replace_goal(other.world, other.moment, goal)
    for action in past[:4]:
        before = other.step(action).observation
    step = other.step(past[4])
    relabelled = env.relabel(kept, past[4], arrived, goal)
    for name, mine, expected in zip(
        ("state", "next_state", "reward"), relabelled, (before, step.next_observation, step.reward)
    ):
        # the fingers may differ
        columns = slice(None) if name == "reward" else slice(other.layout["qd"].start, None)
        mine = mine[..., columns]
        expected = expected[..., columns]
        torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-4, msg=name)
    sparse = envs.make(robot, "reach", num_envs=4, sparse=True)
    assert (sparse.relabel(kept, past[4], arrived, goal)[2] == 0).all()
    assert (
        sparse.relabel(kept, past[4], arrived, goal + 0.004)[2] == -1
    ).all()  # 8 mm along each axis


def test_jacobians_are_of_the_arms_as_they_are_after_resets():
    env = envs.make("panda", "reach", 8, seed=2, training=True, latency=0.05, noise=1e-3)
    for _ in range(env.horizon):  # each arm begins anew once
        env.step(torch.rand(8, env.a_dim) * 2 - 1)
        for moment in (env.now, env.moment, env.arrived):
            torch.testing.assert_close(moment.J, env.jacob0(moment.state.q), rtol=0, atol=1e-6)
            assert moment.J is moment.J


@pytest.mark.parametrize(
    "robot, number, lost, message",
    [
        ("panda", 3, None, r"J is \(3, 6, 7\) there, \(4, 6, 7\) here"),
        ("ur5e", 4, None, r"J is \(4, 6, 6\) there"),
        ("panda", 4, "clearance", r"clearance is missing there, \(4,\) here"),
    ],
)
def test_a_state_of_other_arms_is_refused_and_nothing_changes(robot, number, lost, message):
    env = make()
    before = env.reset(3)
    state = make(robot, number).state_dict()
    state["scene"].pop(lost, None)
    with pytest.raises(ConfigError, match=message):
        env.load_state_dict(state)
    assert torch.equal(env.load_state_dict(env.state_dict()), before)
