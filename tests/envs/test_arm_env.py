"""The environment as a whole: dm_control's checklist, automatic resets, reachable goals, refused actions.

The checklist is that of https://github.com/google-deepmind/dm_control/blob/main/dm_control/suite/tests/domains_test.py.
"""

import copy
import dataclasses

import numpy as np
import pytest
import roboticstoolbox as rtb
import torch
from scipy.optimize import least_squares

import envs
from envs.arm_env import ArmEnv
from envs.observation import o
from envs.robots import make_robot, shipped_robots
from td3_robot.errors import ConfigError, NotFiniteError
from td3_robot.vec_env import GoalVecEnv

everywhere = pytest.mark.parametrize("robot", shipped_robots())


def make(robot="panda", num_envs=4, seed=0):
    return envs.make(robot, "reach", num_envs=num_envs, seed=seed)


def actions(env, steps: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(steps, env.num_envs, env.a_dim, generator=generator) - 1


def play(env, steps: int, seed: int = 0) -> list:
    return [env.step(action) for action in actions(env, steps, seed)]


def tensors(step) -> dict[str, torch.Tensor]:
    """All that a step handed out, by name."""
    fields = step._asdict()
    return {name: value for name, value in (fields | fields.pop("info")).items() if value is not None}


def leaves(state: dict) -> dict:
    return {name: copy.deepcopy(value) for name, value in state.items()}


def same_state(left: dict, right: dict) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def to_goal(env, gain: float = 5.0) -> torch.Tensor:
    """Resolved-rate control by damped least squares: an action that brings the TCP nearer."""
    J = env.jacob0(env.state.q)[:, :3]
    damped = J @ J.transpose(1, 2) + 1e-3 * torch.eye(3)
    qd = J.transpose(1, 2) @ torch.linalg.solve(damped, gain * (env.goal - env.tcp)[:, :, None])
    return (qd[:, :, 0] / env.model.qdlim).clamp(-1, 1)


# The checklist ----------------------------------------------------------------------------------------------


@everywhere
def test_everything_is_finite_and_of_the_declared_shape(robot):
    env = make(robot)
    assert env.reset(0).shape == (4, env.o_dim) and env.o_dim == env.layout.size
    for step in play(env, 130):
        assert step.observation.shape == step.next_observation.shape == (4, env.o_dim)
        assert step.reward.shape == step.terminated.shape == step.truncated.shape == (4,)
        assert step.terminated.dtype == step.truncated.dtype == torch.bool
        for name, value in tensors(step).items():
            assert value.shape[0] == 4 and torch.isfinite(value).all(), name
        assert {value.dtype for value in tensors(step).values()} == {torch.float32, torch.bool}


@everywhere
def test_the_same_seed_gives_the_same_trajectory(robot):
    first, second = make(robot, seed=1), make(robot, seed=2)
    play(second, 7)
    assert torch.equal(first.reset(5), second.reset(5))
    for a, b in zip(play(first, 70), play(second, 70)):
        assert all(torch.equal(x, y) for x, y in zip(tensors(a).values(), tensors(b).values()))


@everywhere
def test_seeds_resets_and_environments_differ(robot):
    env = make(robot)
    starts = torch.cat([env.reset(1), env.reset(2), env.reset(), env.reset()])
    for name in ("q", "goal"):
        rows = starts[:, env.layout[name]]
        assert len(rows.unique(dim=0)) == len(rows) == 16
        assert all(len(column.unique()) == 16 for column in rows.T)


@everywhere
def test_what_was_handed_out_does_not_change_later(robot):
    env, handed = make(robot), []

    def keep(place: str, values: dict[str, torch.Tensor]) -> None:
        handed.extend((f"{name} of {place}", value, value.clone()) for name, value in values.items())

    keep("reset", {"observation": env.reset(0)})
    for t, action in enumerate(actions(env, 65)):  # over an automatic reset
        keep(f"step {t}", tensors(env.step(action)))
        keep(f"state {t}", env.state_dict())
    env.reset(), env.reset(3)
    assert [name for name, value, copy in handed if not torch.equal(value, copy)] == []


@everywhere
def test_writing_into_an_observation_or_reward_changes_nothing(robot):
    env, other = make(robot), make(robot)
    env.reset(0).fill_(9), other.reset(0)
    for action in actions(env, 62):
        step, expected = env.step(action), other.step(action)
        assert torch.equal(step.observation, expected.observation)
        for value in (step.next_observation, step.observation, step.reward):
            value.fill_(9)


@everywhere
def test_no_element_of_the_observation_is_constant(robot):
    """Over random episodes, and one that goes to the goals, where the gripper shuts."""
    env = make(robot, num_envs=50)
    seen = [env.reset(0), *(step.observation for step in play(env, 120))]
    seen += [env.step(to_goal(env)).next_observation for _ in range(60)]
    ranges = torch.cat(seen).amax(0) - torch.cat(seen).amin(0)
    assert [name for name in env.layout if (ranges[env.layout[name]] < 1e-3).any()] == []


# Observation, reward, success -------------------------------------------------------------------------------


@everywhere
def test_the_first_columns_are_o_of_the_robot(robot):
    env, body = make(robot), make_robot(robot)
    env.reset(0)
    for action in actions(env, 5):
        step = env.step(action)
        for row in range(4):
            body.q = env.state.q[row].numpy()
            if body._gripper is not None:
                body._gripper.q = body._gripper.mimic * env.state.gripper[row].item()
            expected = o(None, body)
            np.testing.assert_allclose(step.observation[row, : len(expected)], expected, rtol=1e-6)


def test_what_the_observation_says_is_so():
    env = make()
    env.reset(0)
    for step in play(env, 5):
        seen = {name: step.observation[:, env.layout[name]] for name in env.layout}
        assert torch.equal(seen["q"], step.info["q"]) and torch.equal(seen["qd"], step.info["qd"])
        assert torch.equal(seen["tcp"], env.fkine(seen["q"])[:, :3, 3]) and torch.equal(seen["tcp"], step.info["tcp"])
        assert torch.equal(seen["goal"], env.goal)
        distance = torch.linalg.vector_norm(seen["goal"] - seen["tcp"], dim=1)
        torch.testing.assert_close(step.info["position_error"], distance)


def test_reward_is_the_sum_of_its_named_terms():
    for step in play(make(), 5):
        terms = [value for name, value in step.info.items() if name.startswith("reward/")]
        assert len(terms) > 1
        torch.testing.assert_close(step.reward, sum(terms))


def test_success_is_the_tcp_within_a_centimetre_and_can_be_had():
    """A plain resolved-rate controller reaches most goals, and the gripper shuts there."""
    env = make(num_envs=100)
    env.reset(0)
    for t in range(60):
        assert env.steps.tolist() == [t] * 100
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


# Automatic reset --------------------------------------------------------------------------------------------


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
    torch.testing.assert_close(old["q"], before.q + old["qd"] * env.task.dt)
    assert torch.equal(step.info["q"], old["q"]) and torch.equal(step.info["tcp"], old["tcp"])
    error = torch.linalg.vector_norm(old_goal - old["tcp"], dim=1)
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
    torch.testing.assert_close(following.observation[:, env.layout["q"]], new["q"] + qd * env.task.dt)
    assert torch.equal(following.observation[:, env.layout["goal"]], new["goal"])


def test_only_the_environments_that_ended_start_anew():
    env = make()
    env.reset(0)
    state = env.state_dict()
    env.load_state_dict(state | {"steps": torch.tensor([59, 10, 59, 0])})
    step = env.step(actions(env, 1)[0])
    ended = torch.tensor([True, False, True, False])
    assert torch.equal(step.truncated, ended)
    assert torch.equal((step.observation == step.next_observation).all(1), ~ended)
    assert env.steps.tolist() == [0, 11, 0, 1]
    assert torch.equal((env.goal == state["goal"]).all(1), ~ended)


def test_a_state_dict_round_trip_goes_on_exactly():
    env, other = make(num_envs=20, seed=0), make(num_envs=20, seed=1)
    env.reset(0)
    for _ in range(57):
        env.step(to_goal(env))  # so that some grippers are shutting
    other.load_state_dict(leaves(env.state_dict()))
    assert (env.state.gripper < 0.04).any()
    for a, b in zip(play(env, 70, seed=3), play(other, 70, seed=3)):  # over two automatic resets
        assert all(torch.equal(x, y) for x, y in zip(tensors(a).values(), tensors(b).values()))
    assert torch.equal(env.reset(), other.reset())


# Goals and starts -------------------------------------------------------------------------------------------


@everywhere
def test_goals_lie_in_the_workspace_and_fill_it(robot):
    env = make(robot, num_envs=2000)
    lower, upper = torch.tensor(env.robot.workspace, dtype=torch.float32)
    assert ((env.goal > lower) & (env.goal < upper)).all()
    assert ((env.goal.amax(0) - env.goal.amin(0)) > 0.9 * (upper - lower)).all()


def test_a_workspace_out_of_reach_is_refused():
    robot = dataclasses.replace(make_robot("panda"), workspace=np.array([[5.0, 5.0, 5.0], [6.0, 6.0, 6.0]]))
    with pytest.raises(ConfigError, match="workspace .* holds none of"):
        ArmEnv(robot, make().task, 4, "cpu", seed=0)


def joints_at(goal: np.ndarray, ets: rtb.ETS, qlim: np.ndarray, home: np.ndarray) -> np.ndarray:
    """Joint positions within the limits whose TCP is nearest to a goal, by general least squares."""
    others, best = np.random.default_rng(0), None
    for start in (home, *others.uniform(*qlim, (20, len(home)))):
        found = least_squares(lambda q: ets.fkine(q).A[:3, 3] - goal, start, lambda q: ets.jacob0(q)[:3], bounds=qlim)
        best = found if best is None or found.cost < best.cost else best
        if best.cost < 1e-10:
            break
    return best.x


def test_every_goal_can_be_reached_inside_the_joint_limits():
    """By a solver and a model that know nothing of how the goals were drawn."""
    env, ets = make(num_envs=100), rtb.models.Panda().ets()
    for goal in env.goal.double().numpy():
        q = joints_at(goal, ets, env.robot.qlim, env.robot.home)
        np.testing.assert_allclose(ets.fkine(q).A[:3, 3], goal, atol=1e-4)


@everywhere
def test_episodes_start_at_rest_around_home(robot):
    env = make(robot, num_envs=2000)
    seen, layout = env.reset(0), env.layout
    home = torch.tensor(env.robot.home, dtype=torch.float32)
    lower, upper = torch.tensor(env.robot.qlim, dtype=torch.float32)
    offset = seen[:, layout["q"]] - home
    assert (offset.abs() <= 0.3 + 1e-6).all() and (seen[:, layout["qd"]] == 0).all()
    assert (seen[:, layout["q"]] >= lower).all() and (seen[:, layout["q"]] <= upper).all()
    room = torch.minimum(torch.tensor(0.3), torch.minimum(home - lower, upper - home))
    assert (offset.amax(0) > 0.95 * room).all() and (offset.amin(0) < -0.95 * room).all()


# Refused actions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_an_action_that_is_no_number_is_refused_before_anything_moves(poison):
    env = make()
    env.reset(0)
    play(env, 3)
    before, action = leaves(env.state_dict()), torch.zeros(4, 7)
    action[2, 5] = poison
    with pytest.raises(NotFiniteError, match="action"):
        env.step(action)
    assert same_state(before, env.state_dict())


@pytest.mark.parametrize("shape", [(4, 6), (3, 7), (7,), (1, 7), (4, 7, 1), ()])
def test_an_action_of_another_shape_is_refused_before_anything_moves(shape):
    env = make()
    before = leaves(env.state_dict())
    with pytest.raises(ConfigError, match=r"action must have shape \(4, 7\)"):
        env.step(torch.zeros(shape))
    assert same_state(before, env.state_dict())


def test_more_than_full_speed_is_full_speed():
    env, other = make(), make()
    for _ in range(5):
        step, expected = env.step(torch.full((4, 7), 3.0)), other.step(torch.ones(4, 7))
        assert torch.equal(step.observation, expected.observation)


# Goals that hindsight changes -------------------------------------------------------------------------------


def transitions(env, steps: int = 5) -> tuple[torch.Tensor, ...]:
    """The last of some steps: observation, action, successor and reward."""
    observation = env.reset(1)
    for action in actions(env, steps):
        state, step = observation, env.step(action)
        observation = step.observation
    return state, action, step.next_observation, step.reward


@everywhere
def test_relabelled_with_its_own_goal_a_transition_stays_as_it_is(robot):
    env = make(robot)
    assert isinstance(env, GoalVecEnv)
    state, action, next_state, reward = transitions(env)
    again = env.relabel(state, action, next_state, env.goal)
    for name, mine, other in zip(("state", "next_state", "reward"), again, (state, next_state, reward)):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5, msg=name)
    assert not again[3].any()
    assert torch.equal(env.achieved_goal(next_state), env.tcp)


@everywhere
def test_relabelled_with_another_goal_it_is_what_that_goal_would_have_given(robot):
    env, other = make(robot), make(robot)
    state, action, next_state, _ = transitions(env)
    other.reset(1)
    goal = other.goal = env.achieved_goal(next_state) + 0.004  # within the tolerance of 1 cm
    other._observe()
    for past in actions(other, 4):
        other.step(past)
    before = other._observe()
    step = other.step(actions(other, 5)[4])
    relabelled = env.relabel(state, action, next_state, goal)
    for name, mine, expected in zip(
        ("state", "next_state", "reward"), relabelled, (before, step.next_observation, step.reward)
    ):
        columns = slice(None) if name == "reward" else slice(other.layout["qd"].start, None)  # the fingers may differ
        mine, expected = mine[..., columns], expected[..., columns]
        torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-4, msg=name)
    assert step.info["success"].all()
