"""The track task: loops that the arm can follow, what an episode counts, reward and observation as
numbers.
"""

import dataclasses
import math

import pytest
import torch

from envs import kinematics
from envs.arm_env.arm_env import ArmEnv
from envs.robots import make_robot
from envs.simulation.engine import SimState
from envs.simulation.kinematic import predict_half_period_state
from envs.tasks import track
from envs.tasks.registry import find_task_class, make_task
from td3_robot.errors import ConfigError

TASK = make_task("track")
DT = 0.05
HORIZON = 160


@pytest.fixture(scope="module")
def panda():
    return make_robot("panda")


@pytest.fixture(scope="module")
def loops(panda):
    """Joint motions and TCP positions of some hundred loops, and their world."""
    world = TASK.make_world(panda, "cpu")
    return *track.sample_trajectories(TASK, world, 4096, torch.Generator().manual_seed(0)), world


@pytest.fixture
def env(panda):
    return ArmEnv(panda, TASK, 6, "cpu", seed=0)


def act(env) -> torch.Tensor:
    """A small random action."""
    return 0.2 * torch.randn(
        env.num_envs, env.a_dim, generator=torch.Generator().manual_seed(int(env.moment.steps[0]))
    )


# Loops


def test_the_goal_moves_at_the_speed_of_the_file(loops):
    """Straight from one step's goal to the next it is a little less where the loop is bent, and
    never more.
    """
    _, path, _ = loops
    speed = torch.linalg.vector_norm(path.diff(dim=1), dim=2) / DT
    assert path.shape[1:] == (HORIZON + 2, 3) and len(path) > 100
    assert speed.max() < 0.202 and speed.mean() == pytest.approx(0.2, rel=2e-3)
    assert (speed > 0.19).float().mean() > 0.999


def test_half_the_speed_is_the_same_loop_at_half_the_speed(panda):
    """Of the loops drawn for 0.2 m/s; slower, nothing that can be followed is lost."""
    world = TASK.make_world(panda, "cpu")
    slow = dataclasses.replace(TASK, speed=0.1, horizon=2 * HORIZON)
    fast_path, slow_path = (
        track.sample_trajectories(task, world, 4096, torch.Generator().manual_seed(3))[1]
        for task in (TASK, slow)
    )
    assert len(slow_path) >= len(fast_path) > 50
    starts = torch.cdist(fast_path[:, 0], slow_path[:, 0]).argmin(1)
    torch.testing.assert_close(
        slow_path[starts, ::2][:, : HORIZON + 1], fast_path[:, :-1], rtol=0, atol=1e-4
    )


def test_loops_stay_in_the_workspace_and_fill_it(loops):
    _, path, world = loops
    lower, upper = world.workspace
    assert ((path > lower) & (path < upper)).all()
    assert (path.amax((0, 1)) - path.amin((0, 1)) > 0.9 * (upper - lower)).all()


def test_loops_close_and_are_gone_round_again(loops):
    """All but a few, which are longer than the way of an episode, come back to where they began,
    and go on alike.
    """
    _, path, _ = loops
    back = torch.linalg.vector_norm(path[:, 20:] - path[:, :1], dim=2)  # from 1 s on
    lap = back.argmin(1) + 20
    near = back.amin(1) < 0.006  # half a step of 1 cm, and a bit
    assert near.float().mean() > 0.95
    for row in (near & (lap < 150)).nonzero().flatten().tolist():
        again = path[row, lap[row] : lap[row] + 10]
        assert torch.linalg.vector_norm(again - path[row, : len(again)], dim=1).max() < 0.007


def test_the_arm_can_follow_every_loop(loops, panda):
    """Started on the loop at the joint speeds of the motion it was drawn from, and sent along it by
    the simulator.

    Told the mean of the speeds of two steps, (q[k+2] - q[k]) / 2 dt, an arm whose speed ramps comes
    to (q[k] + 2 q[k+1] + q[k+2]) / 4: off the loop by a quarter of a second difference.
    """
    q, path, world = loops
    model = world.model
    assert ((q >= model.qlim[0]) & (q <= model.qlim[1])).all()
    torch.testing.assert_close(kinematics.fkine(model.chain, q[:, -1])[:, :3, 3], path[:, -1])
    env = ArmEnv(panda, TASK, len(q), "cpu", seed=0)
    qd = q.diff(dim=1) / DT
    start = SimState(q[:, 0], qd[:, 0], torch.zeros(len(q)))
    scene = {
        **env.moment.scene,
        "path": path,
        "goal": path[:, 0],
        "goal_velocity": (path[:, 1] - path[:, 0]) / DT,
    }
    env.load_state_dict(env.state_dict() | vars(start) | {"scene": scene})
    effort = 0.0
    for k in range(HORIZON):
        told = (qd[:, k] + qd[:, k + 1]) / 2
        action = told / model.qdlim
        effort = max(effort, action.abs().max().item())
        step = env.step(action)
        torch.testing.assert_close(
            step.info["q"], (q[:, k] + 2 * q[:, k + 1] + q[:, k + 2]) / 4, rtol=0, atol=1e-4
        )
        # no limit was in the way
        torch.testing.assert_close(step.info["qd"], told, rtol=0, atol=1e-4)
    assert step.truncated.all() and step.info["success"].all()
    assert 0.4 < effort <= TASK.effort + 1e-5


def test_ellipses_have_the_half_axes_of_the_file():
    task = dataclasses.replace(TASK, radius_min=0.1, radius_max=0.3, bend=0.2)
    drawn = track.sample_ellipses(task, 2000, torch.Generator().manual_seed(0))
    long, short = torch.linalg.vector_norm(drawn[:, :2], dim=2).unbind(1)
    assert drawn.shape == (2000, 4, 3)
    assert 0.1 <= long.min() < 0.102 and 0.298 < long.max() <= 0.3
    ratio = short / long
    assert 0.5 <= ratio.min() < 0.51 and 0.99 < ratio.max() <= 1.0 + 1e-6
    assert (drawn[:, 0] * drawn[:, 1]).sum(1).abs().max() < 1e-6  # at right angles
    assert 0.19 < (drawn[:, 2:] / long[:, None, None]).abs().max() <= 0.2 + 1e-6
    assert drawn[:, 0].mean(0).abs().max() < 0.01  # in no direction rather than another


@pytest.mark.parametrize("robot", ["ur5e", "wx250s"])
def test_other_arms_have_loops(robot):
    env = ArmEnv(make_robot(robot), TASK, 20, "cpu", seed=0)
    path = env.moment.scene["path"]
    across = torch.linalg.vector_norm(path - path[:, :1], dim=2).amax(1)
    assert (across > TASK.radius_min).all() and env.world.in_workspace(path).all()


# Time


def test_the_error_is_to_where_the_goal_is_at_the_same_time(env):
    path = env.moment.scene["path"]
    assert torch.equal(env.goal, path[:, 0])
    for k in range(1, HORIZON):
        step = env.step(act(env))
        scene = env.moment.scene
        seen = step.next_observation
        assert torch.equal(env.goal, path[:, k])
        on = (
            path[:, k] + path[:, k + 1]
        ) / 2  # seen where it will be in half a step, as the arm is
        torch.testing.assert_close(seen[:, env.layout["goal"]], on)
        expected = torch.linalg.vector_norm(path[:, k] - env.fkine(step.info["q"])[:, :3, 3], dim=1)
        torch.testing.assert_close(step.info["position_error"], expected)
        # and where it goes
        torch.testing.assert_close(scene["goal_velocity"] * DT, path[:, k + 1] - path[:, k])
    last = env.step(act(env))
    on = (path[:, HORIZON] + path[:, HORIZON + 1]) / 2
    assert last.truncated.all()
    torch.testing.assert_close(last.next_observation[:, env.layout["goal"]], on)
    velocity = last.next_observation[:, env.layout["goal_velocity"]] * TASK.error_unit
    torch.testing.assert_close(velocity * DT, path[:, HORIZON + 1] - path[:, HORIZON])


def test_what_counts_is_the_mean_error_after_the_settling_time(env):
    """Step 20 is the end of the first second: from 21 on the mean of all errors so far, by the
    errors themselves.
    """
    errors = []
    for k in range(1, HORIZON + 1):
        step = env.step(act(env))
        errors.append(step.info["position_error"])
        mean = torch.stack(errors[20:]).mean(0) if k > 20 else torch.zeros(6)
        torch.testing.assert_close(step.info["tracking_error_mean"], mean)
        assert not step.info["success"].any()  # nobody follows by chance
    # the new episodes begin with none
    assert torch.equal(env.moment.scene["error_sum"], torch.zeros(6))


@pytest.mark.parametrize(
    ("steps", "error_sum", "error", "success"),
    [
        (20, 0.0, 0.0, False),  # not yet
        (21, 0.0, 0.0099, True),
        (21, 0.0, 0.0101, False),
        (30, 0.09, 0.0099, True),  # ten errors with a mean of 9.99 mm
        (30, 0.09, 0.0101, False),
        (160, 1.0, 0.39, True),  # 140 errors that add up to 1.39 m
        (160, 1.0, 0.41, False),
    ],
)
def test_success_is_a_mean_of_a_centimetre(env, steps, error_sum, error, success):
    goal = env.tcp + error * torch.tensor([0.6, 0.0, -0.8])
    scene = {**env.moment.scene, "goal": goal, "error_sum": torch.full((6,), error_sum)}
    moment = dataclasses.replace(env.moment, scene=scene, steps=torch.full((6,), steps))
    assert (
        env.task.compute_outcome(env.world, moment, torch.zeros(6, 7)).success.tolist()
        == [success] * 6
    )


def test_arms_at_different_times_of_their_episodes_have_their_own_goals(env):
    state = env.state_dict()
    steps = torch.tensor([0, 7, 159, 158, 40, 20])
    env.load_state_dict(state | {"steps": steps})
    step = env.step(act(env))
    rows = torch.arange(6)
    path = state["scene"]["path"]
    on = (path[rows, steps + 1] + path[rows, steps + 2]) / 2
    torch.testing.assert_close(step.next_observation[:, env.layout["goal"]], on)
    assert step.truncated.tolist() == [False, False, True, False, False, False]


def test_settling_has_to_end_before_the_episode():
    with pytest.raises(ConfigError, match="settle must be shorter than the episode of 8 s, got 8"):
        dataclasses.replace(TASK, settle=8.0)


# Observation, reward


def test_the_observation_holds_each_quantity_where_the_layout_says(env):
    step = env.step(act(env))
    seen = {name: step.observation[:, env.layout[name]] for name in env.layout}
    scene = env.moment.scene
    assert step.observation.shape == (6, 7 + 2 + 7 + 4 * 3 + 7 + 6 + 7) and env.o_dim == 48
    ahead = predict_half_period_state(env.model, env.state)
    assert torch.equal(seen["q"], ahead.q) and torch.equal(seen["qd"], step.info["qd"])
    tcp = env.fkine(ahead.q)[:, :3, 3]
    goal = env.goal + 0.5 * DT * scene["goal_velocity"]
    torch.testing.assert_close(seen["tcp"], tcp)
    torch.testing.assert_close(seen["goal"], goal)
    torch.testing.assert_close(seen["error"], 8 * (goal - tcp))  # in units of an eighth of a metre
    torch.testing.assert_close(seen["goal_velocity"], 8 * scene["goal_velocity"])
    J_v = env.jacob0(ahead.q)[:, :3, :6]  # joint 7 only turns the hand
    # damped by 0.02
    inverse = torch.linalg.pinv(torch.cat((J_v, 0.02 * torch.eye(6).expand(6, 6, 6)), 1))[:, :, :3]
    motion, along = (
        torch.einsum("bij,bj->bi", inverse, v) for v in (goal - tcp, scene["goal_velocity"])
    )
    resolved = (8 * motion + along) / env.model.qdlim[:6]
    torch.testing.assert_close(
        seen["resolved_rate"][:, :6], resolved.clamp(-1, 1), rtol=1e-3, atol=1e-4
    )
    assert (seen["resolved_rate"][:, 6] == 0).all()
    torch.testing.assert_close(seen["joint_error"], (motion / 0.01).tanh(), rtol=1e-3, atol=1e-4)


def test_reward_terms_are_what_a_hand_gets():
    task = dataclasses.replace(
        TASK, distance_weight=2.0, precision_weight=3.0, precision_scale=0.1, action_weight=0.5
    )
    action = torch.tensor([[1.0, -1.0], [0.6, 0.0]])  # mean squares 1 and 0.18
    terms = track.compute_reward_terms(task, torch.tensor([0.0, 0.1]), action)
    assert terms.keys() == {"distance", "precision", "action"}
    torch.testing.assert_close(terms["distance"], torch.tensor([0.0, -0.2]))
    torch.testing.assert_close(terms["precision"], torch.tensor([3.0, 3.0 / math.e]))
    torch.testing.assert_close(terms["action"], torch.tensor([-0.5, -0.09]))


def test_the_gripper_shuts_on_the_goal_and_only_there(env):
    for away, grip in ((0.0099, 0.0), (0.0101, 1.0)):
        goal = env.tcp + away * torch.tensor([0.0, 1.0, 0.0])
        moment = env.task.replace_goal(env.world, env.moment, goal)
        assert (
            env.task.make_command(env.world, moment, torch.zeros(6, 7)).grip.tolist() == [grip] * 6
        )


# Hindsight


def test_relabelled_with_its_own_goal_a_transition_looks_and_pays_as_it_did(env):
    """The goal moves in the step, and the earlier observation holds where it was."""
    for _ in range(24):
        before = env.step(act(env)).observation
    kept = env.memory()
    action = act(env)
    step = env.step(action)
    first, again, reward, _ = env.relabel(
        kept, action, env.memory(arrived=True), env.moment.scene["goal"]
    )
    torch.testing.assert_close(first, before, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(again, step.next_observation, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(reward, step.reward, rtol=1e-4, atol=1e-5)


def test_a_relabelled_goal_keeps_its_velocity_and_is_judged_by_this_step_alone(panda):
    env = ArmEnv(panda, TASK, 6, "cpu", seed=0, sparse=True)
    for _ in range(30):
        before = env.memory()
        action = act(env)
        step = env.step(action)
    arrived = env.memory(arrived=True)
    achieved = env.achieved_goal(arrived)
    assert torch.equal(achieved, env.moment.tcp)
    for away, paid in ((0.0099, 0.0), (0.0101, -1.0)):
        goal = achieved + away * torch.tensor([0.0, 0.0, 1.0])
        _, after, reward, terminated = env.relabel(before, action, arrived, goal)
        assert torch.equal(after[:, env.layout["goal"]], goal) and not terminated.any()
        assert reward.tolist() == [paid] * 6 and step.reward.tolist() == [-1.0] * 6
        columns = env.layout["goal_velocity"]
        torch.testing.assert_close(after[:, columns], step.next_observation[:, columns])


def test_it_is_registered():
    assert find_task_class("track") is track.Track
