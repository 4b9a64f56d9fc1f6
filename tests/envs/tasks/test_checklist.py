"""What holds for every task: dm_control's checklist, automatic resets, resuming, hindsight, the
sparse reward.

The checklist is that of
https://github.com/google-deepmind/dm_control/blob/main/dm_control/suite/tests/domains_test.py.
Every task is played by the Panda; reach by all robots where it may hang on the robot, elsewhere by
three.
"""

import copy
import functools

import numpy as np
import pytest
import torch

from envs.arm_env.arm_env import ArmEnv
from envs.controllers.experts import make_expert
from envs.robots import make_robot, shipped_robots
from envs.robots.observation import o
from envs.simulation.disturbances import Disturbances
from envs.simulation.kinematic import predict_half_period_state
from envs.tasks.episodes import ScenePool
from envs.tasks.registry import list_tasks, make_task
from td3_robot.config.run import Config, ReplayConfig
from td3_robot.errors import ConfigError, NotFiniteError
from td3_robot.replay.factory import make_replay
from td3_robot.vec_env import GoalVecEnv
from tests.envs.playing import actions, leaves, play, same, tensors, to_goal
from tests.support import each_task, mark_slow

CASES = [*((robot, "reach") for robot in shipped_robots())]
CASES += [("panda", task) for task in list_tasks("kinematic") if task != "reach"]
everywhere = pytest.mark.parametrize(
    ("robot", "task"), [mark_slow(case[1], case) for case in CASES]
)
three_robots = pytest.mark.parametrize(
    ("robot", "task"),
    [mark_slow(case[1], case) for case in CASES if case[0] in ("panda", "ur5e", "wx250s")],
)
# A link that turns in place comes near to nothing by that, and only one scene in a hundred has a
# ceiling; goals on the table have its height, and a joint with a level axis does not turn the hand
# about the vertical.
RARELY_CHANGING = {
    "reach_avoid": {"push", "walls"},
    "reach_moving": {"push", "walls"},
    "track": {"resolved_rate"},  # 0 for a joint that does not move the TCP
    "push": {"goal", "joint_turn"},
    "stack": {"goal"},
}
every_task = pytest.mark.parametrize("task", each_task())


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Episodes drawn ahead are few, for speed."""
    monkeypatch.setattr(ScenePool, "BLOCK", 1024)


@functools.cache
def robot_named(name: str):
    """Loading takes far longer than all that is asked of it here, and no environment changes it."""
    return make_robot(name)


def make(robot="panda", task="reach", num_envs=4, seed=0, sparse=False):
    return ArmEnv(robot_named(robot), make_task(task), num_envs, "cpu", seed, sparse)


@functools.cache
def recorded(robot: str, task: str) -> tuple[list[torch.Tensor], list]:
    """The first observation of random play of 20 arms over an automatic reset, and its steps.

    Several tests look at them; none changes them.
    """
    env = make(robot, task, num_envs=20, seed=1)
    return [env.reset(0)], play(env, env.task.horizon + 5)


def skip_to_end(env, left: int = 6) -> None:
    """Let all episodes be at `left` steps before their time limit."""
    state = env.state_dict()
    env.load_state_dict(state | {"steps": torch.full_like(state["steps"], env.task.horizon - left)})


def demonstrated(env) -> list[torch.Tensor]:
    """Observations of episodes that get somewhere: of a expert told the way, or of the task's
    first controller.
    """
    told = "solution" if "solution" in env.moment.scene else env.task.controllers[0]
    policy = make_expert(told, env)
    seen = [env.reset(0)]
    for _ in range(env.task.horizon):
        seen.append(env.step(policy(seen[-1])).next_observation)
    return seen


# The checklist


@everywhere
def test_everything_is_finite_and_of_the_declared_shape(robot, task):
    env = make(robot, task)
    ((first,), steps) = recorded(robot, task)
    assert first.shape == (20, env.o_dim) and env.o_dim == env.layout.size
    for step in steps:
        assert step.observation.shape == step.next_observation.shape == (20, env.o_dim)
        assert step.reward.shape == step.terminated.shape == step.truncated.shape == (20,)
        assert step.terminated.dtype == step.truncated.dtype == torch.bool
        for name, value in tensors(step).items():
            assert value.shape[0] == 20 and torch.isfinite(value).all(), name
        assert {value.dtype for value in tensors(step).values()} == {torch.float32, torch.bool}


@three_robots
def test_the_same_seed_gives_the_same_trajectory(robot, task):
    (first,), steps = recorded(robot, task)
    env = make(robot, task, num_envs=20, seed=2)
    play(env, 7)
    assert torch.equal(env.reset(0), first)
    again = play(env, len(steps))
    assert all(same(tensors(a), tensors(b)) for a, b in zip(again, steps, strict=True))


@three_robots
def test_seeds_resets_and_environments_differ(robot, task):
    env = make(robot, task)
    starts = torch.cat([env.reset(1), env.reset(2), env.reset(), env.reset()])
    for name in ("q", "goal"):
        rows = starts[:, env.layout[name]]
        assert len(rows.unique(dim=0)) == len(rows) == 16
        flat = name == "goal" and task in ("push", "stack")
        # some lie on the table
        assert all(len(column.unique()) > 4 for column in rows.T[: 2 if flat else None])


@three_robots
def test_what_was_handed_out_does_not_change_later(robot, task):
    env = make(robot, task)
    handed = []

    def keep(place: str, values: dict[str, torch.Tensor]) -> None:
        handed.extend(
            (f"{name} of {place}", value, value.clone()) for name, value in values.items()
        )

    keep("reset", {"observation": env.reset(0)})
    for t, action in enumerate(actions(env, 20)):
        if t == 10:
            skip_to_end(env)  # the rest is over an automatic reset
        keep(f"step {t}", tensors(env.step(action)))
        state = env.state_dict()
        known = state.pop("known")
        keep(f"scene {t}", state.pop("scene"))
        keep(f"seen scene {t}", known.pop("scene"))
        keep(f"seen {t}", known)
        keep(
            f"pool {t}",
            {name: value[:8] for name, value in state.pop("episodes").pop("pool").items()},
        )
        assert state.pop("begun") == {}  # only where arms are learnt with
        keep(f"state {t}", state)
    env.reset()
    env.reset(3)
    assert [name for name, value, copy in handed if not torch.equal(value, copy)] == []


@three_robots
def test_writing_into_an_observation_or_reward_changes_nothing(robot, task):
    env = make(robot, task)
    other = make(robot, task)
    env.reset(0).fill_(9)
    other.reset(0)
    for t, action in enumerate(actions(env, 20)):
        if t == 10:
            # the rest is over an automatic reset
            skip_to_end(env)
            skip_to_end(other)
        step = env.step(action)
        expected = other.step(action)
        assert torch.equal(step.observation, expected.observation)
        for value in (step.next_observation, step.observation, step.reward):
            value.fill_(9)


@everywhere
def test_no_element_of_the_observation_is_constant(robot, task):
    """Over random episodes, and some that get somewhere."""
    env = make(robot, task, num_envs=20)
    (first, steps) = recorded(robot, task)
    seen = [*first, *(step.observation for step in steps), *demonstrated(env)]
    ranges = torch.cat(seen).amax(0) - torch.cat(seen).amin(0)
    constant = {name for name in env.layout if (ranges[env.layout[name]] < 1e-3).any()}
    assert constant - RARELY_CHANGING.get(task, set()) == set()


# Observation and reward


@everywhere
def test_the_first_columns_are_o_of_the_robot(robot, task):
    env = make(robot, task)
    body = robot_named(robot)
    for step in play(env, 5):
        for row in range(4):
            body.q = (
                (step.info["q"] + 0.5 * env.task.dt * step.info["qd"])
                .clamp(*env.model.qlim)[row]
                .numpy()
            )
            if body.gripper is not None:
                body.gripper.q = body.gripper.mimic * step.info["gripper"][row].item()
            expected = o(None, body)
            np.testing.assert_allclose(
                step.next_observation[row, : len(expected)], expected, rtol=1e-6
            )


@every_task
def test_what_the_observation_says_is_so(task):
    env = make(task=task)
    for action in actions(env, 5):
        step = env.step(action)
        seen = {name: step.next_observation[:, env.layout[name]] for name in env.layout}
        ahead = predict_half_period_state(env.model, env.arrived.state)
        assert torch.equal(seen["q"], ahead.q) and torch.equal(seen["qd"], step.info["qd"])
        goal = env.task.predict(env.arrived, 0.5 * env.task.dt).scene["goal"]
        assert torch.equal(seen["goal"], goal)
        torch.testing.assert_close(step.info["tcp"], env.fkine(step.info["q"])[:, :3, 3])


@every_task
def test_reward_is_the_sum_of_its_named_terms(task):
    for step in play(make(task=task), 5):
        terms = [value for name, value in step.info.items() if name.startswith("reward/")]
        assert len(terms) > 1
        torch.testing.assert_close(step.reward, sum(terms))


@functools.cache
def approached(task: str) -> tuple[list, dict]:
    """Actions and steps of six arms that go for their goals over an episode, and the state three
    steps before its end, when grippers are shutting, or something is touched.
    """
    env = make(task=task, num_envs=6)
    played = []
    state = {}
    env.reset(0)
    for left in range(env.task.horizon, 0, -1):
        if left == 3:
            state = copy.deepcopy(env.state_dict())
        action = to_goal(env)
        played.append((action, env.step(action)))
    return played, state


@every_task
def test_the_sparse_reward_is_minus_one_short_of_success_and_nothing_else_differs(task):
    env = make(task=task, num_envs=6, sparse=True)
    env.reset(0)
    for action, expected in approached(task)[0]:
        step = env.step(action)
        assert torch.equal(step.reward, torch.where(step.info["success"], 0.0, -1.0))
        assert torch.equal(step.next_observation, expected.next_observation)
        assert [name for name in step.info if name.startswith("reward/")] == ["reward/sparse"]
        assert torch.equal(step.info["reward/sparse"], step.reward)


# Episodes


@every_task
def test_episodes_start_at_rest_around_home(task):
    env = make(task=task, num_envs=50)
    seen = env.reset(0)
    layout = env.layout
    home = torch.tensor(env.robot.home, dtype=torch.float32)
    lower, upper = torch.tensor(env.robot.qlim, dtype=torch.float32)
    q = seen[:, layout["q"]]
    assert ((q - home).abs() <= 0.3 + 1e-6).all() and (seen[:, layout["qd"]] == 0).all()
    assert (q >= lower).all() and (q <= upper).all()


@every_task
def test_only_the_environments_that_ended_start_anew(task):
    env = make(task=task)
    state = env.state_dict()
    last = env.task.horizon - 1
    env.load_state_dict(state | {"steps": torch.tensor([last, 10, last, 0])})
    step = env.step(actions(env, 1)[0])
    ended = torch.tensor([True, False, True, False])
    assert torch.equal(step.truncated | step.terminated, ended)
    assert torch.equal((step.observation == step.next_observation).all(1), ~ended)
    assert env.moment.steps.tolist() == [0, 11, 0, 1]
    assert env.arrived.steps.tolist() == [last + 1, 11, last + 1, 1]
    assert torch.equal((env.goal == env.arrived.scene["goal"]).all(1), ~ended)


@every_task
def test_a_state_dict_round_trip_goes_on_exactly(task):
    env = make(task=task, num_envs=6, seed=0)
    other = make(task=task, num_envs=6, seed=1)
    state = approached(task)[1]
    env.load_state_dict(state)
    other.load_state_dict(state)
    for _ in range(2):  # each time over an automatic reset
        assert all(
            same(tensors(a), tensors(b)) for a, b in zip(play(env, 20, 3), play(other, 20, 3))
        )
        skip_to_end(env)
        skip_to_end(other)
    assert torch.equal(env.reset(), other.reset())


# Refused actions


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_an_action_that_is_no_number_is_refused_before_anything_moves(poison):
    env = make()
    play(env, 3)
    before = leaves(env)
    action = torch.zeros(4, 7)
    action[2, 5] = poison
    with pytest.raises(NotFiniteError, match="action"):
        env.step(action)
    assert same(before, leaves(env))


@every_task
def test_an_action_of_another_shape_is_refused_before_anything_moves(task):
    env = make(task=task)
    before = leaves(env)
    n = env.a_dim
    for shape in [(4, n - 1), (4, n + 1), (3, n), (n,), (1, n), (4, n, 1), ()]:
        with pytest.raises(ConfigError, match=rf"action must have shape \(4, {n}\)"):
            env.step(torch.zeros(shape))
    assert same(before, leaves(env))


@every_task
def test_more_than_full_speed_is_full_speed(task):
    env = make(task=task)
    other = make(task=task)
    n = env.robot.n
    for action in actions(env, 5):
        action[:, :n] = 1.0
        faster = action.clone()
        faster[:, :n] = 3.0
        assert same(tensors(env.step(faster)), tensors(other.step(action)))  # and it costs no more


# Goals that hindsight changes


def transitions(env, steps: int = 5) -> tuple[torch.Tensor, ...]:
    """The last of some steps: memory, observation, action, memory and observation of the successor,
    reward.
    """
    observation = env.reset(1)
    for action in actions(env, steps):
        before = env.memory()
        state = observation
        step = env.step(action)
        observation = step.observation
    return before, state, action, env.memory(arrived=True), step.next_observation, step.reward


@three_robots
def test_what_is_remembered_is_observed_as_it_was(robot, task):
    env = make(robot, task)
    assert isinstance(env, GoalVecEnv)
    before, state, _, after, next_state, _ = transitions(env)
    for memory, observation in ((before, state), (after, next_state)):
        assert memory.shape == (4, env.memory_dim)
        torch.testing.assert_close(env.observe(memory), observation, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(env.observe(memory[2:3]), observation[2:3], rtol=1e-4, atol=1e-5)


@three_robots
def test_relabelled_with_its_own_goal_a_transition_stays_as_it_is(robot, task):
    env = make(robot, task)
    observation = env.reset(1)
    for action in actions(env, 5):
        before = env.memory()
        step = env.step(action)
        goal = step.next_observation[:, env.layout["goal"]]
        again = env.relabel(before, action, env.memory(arrived=True), goal)
        for mine, given in zip(again, (observation, step.next_observation, step.reward)):
            torch.testing.assert_close(mine, given, rtol=1e-4, atol=1e-5)
        assert torch.equal(again[3], step.terminated)
        observation = step.observation


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("disturbances", [None, Disturbances(latency=0.05, noise=0.002)])
def test_with_hindsight_a_reward_is_the_one_that_relabelling_with_the_same_goal_gives(
    disturbances, sparse
):
    """Near the goal, where the arm as it is and as it is observed differ in success."""
    env = ArmEnv(
        robot_named("panda"), make_task("reach"), 64, "cpu", 0, sparse, disturbances=disturbances
    )
    hindsight = Config(replay=ReplayConfig(capacity=64, batch_size=64, hindsight="future"))
    make_replay((64, env.o_dim, env.a_dim), hindsight, torch.Generator(), env)
    controller = make_expert("rrmc", env)
    observation = env.reset(1)
    met = []
    for _ in range(30):
        before = env.memory()
        action = controller(observation)
        step = env.step(action)
        goal = step.next_observation[:, env.layout["goal"]]
        again = env.relabel(before, action, env.memory(arrived=True), goal)[2]
        torch.testing.assert_close(again, step.reward, rtol=1e-4, atol=1e-5)
        observation = step.observation
        met.append(step.info["success"])
    assert 0.1 < torch.stack(met).float().mean() < 0.9


@every_task
def test_what_was_achieved_meets_itself_and_nothing_far_away(task):
    env = make(task=task)
    *_, after, _, _ = transitions(env)
    achieved = env.achieved_goal(after)
    assert achieved.shape == env.goal.shape
    assert env.task.is_goal_met(achieved, achieved).all()
    away = achieved.clone()
    away[:, 0] += 1.5 * env.task.tolerance
    assert not env.task.is_goal_met(achieved, away).any()
    away[:, 0] -= 0.7 * env.task.tolerance
    assert env.task.is_goal_met(achieved, away).all()


@every_task
def test_relabelled_with_what_it_achieved_a_transition_sees_that_goal(task):
    env = make(task=task, sparse=True)
    env.reset(1)
    for action in actions(env, 5):
        earlier = env.moment
        before = env.memory()
        step = env.step(action)
        state = env.observe(before)
        next_state = step.next_observation
    after = env.memory(arrived=True)
    goal = env.achieved_goal(after)
    seen_before, seen_after, reward, _ = env.relabel(before, action, after, goal)
    goal_before = env.task.compute_previous_goal(earlier, env.moment, goal)
    for seen, original, wanted in (
        (seen_before, state, goal_before),
        (seen_after, next_state, goal),
    ):
        torch.testing.assert_close(seen[:, env.layout["goal"]], wanted)
        for name in ("q", "drivers", "qd"):
            assert torch.equal(seen[:, env.layout[name]], original[:, env.layout[name]])
    assert ((reward == 0) | (reward == -1)).all()
    if (
        task in ("reach", "reach_pose") and not step.info["touched"].any()
    ):  # else the episode's past counts as well
        assert (reward == 0).all() and (
            env.relabel(before, action, after, goal + 0.1)[2] == -1
        ).all()
