"""The guard: it leaves alone what is safe, changes the rest as little as it must, and arms do not
run into things.
"""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import envs
from envs.arm_env.arm_env import ArmEnv
from envs.collision import Nearest, Obstacles, compute_nearest, pairs
from envs.controllers.guard import DEFAULTS, GuardConstants, guard_action, iter_stop, keep_stop
from envs.controllers.halfspaces import make_brakes
from envs.robots import make_robot
from envs.simulation.engine import SimState, make_rest_state
from envs.simulation.kinematic import find_reachable_velocities, predict_half_period_state, step
from envs.tasks.episodes import OneEpisode
from envs.tasks.registry import make_task
from td3_robot.errors import ConfigError

DATA = Path(__file__).parents[1] / "data"
PANDA = make_robot("panda")
TASK = make_task("reach_avoid")


def test_a_pair_that_is_left_out_as_never_close_never_stops_an_arm():
    """Capsules are fitted closer where they bar motions at that distance, too."""
    assert DEFAULTS.stop <= pairs.MARGIN


@pytest.fixture(scope="module")
def world():
    return TASK.make_world(PANDA, "cpu")


def random_actions(count, seed):
    return 2 * torch.rand(count, 7, generator=torch.Generator().manual_seed(seed)) - 1


def state_of(world, count, seed=0):
    """Arms that move at up to a third of their speed limits."""
    generator = torch.Generator().manual_seed(seed)
    q = world.random_q(count, generator)
    return SimState(
        q,
        world.model.qdlim * (torch.rand(q.shape, generator=generator) - 0.5) * 0.67,
        torch.zeros(count),
    )


def nothing(q, seconds=0.0):
    """What is near to arms (B, n) in empty space."""
    return Nearest(torch.full((len(q), 1), 10.0), torch.zeros(len(q), 1, 7))


def test_far_from_everything_an_arm_moves_as_it_is_told(world):
    state = state_of(world, 50)
    action = random_actions(50, 1)
    told = step(world.model, state, action)
    ahead = predict_half_period_state(world.model, state)
    told_safely = step(
        world.model, state, guard_action(world.model, ahead, action, nothing(ahead.q), nothing)
    )
    assert_close(told_safely.qd, told.qd, rtol=1e-6, atol=1e-6)


def test_one_distance_is_held_by_the_least_change_of_velocity(world):
    """By hand: beyond the bound, the point of the half-space g . x >= -rate nearest to x, in units
    of what each joint can change its speed by in a period, is x + (-rate - g . x) W g / (g . W
    g)."""
    # so that nothing else bounds the speed
    model = dataclasses.replace(world.model, dqd=world.model.dqd * 100.0)
    state = make_rest_state(model, world.home.expand(40, -1))
    generator = torch.Generator().manual_seed(2)
    gradient = torch.randn(40, 1, 7, generator=generator)
    near = Nearest(torch.full((40, 1), 0.011), gradient)
    action = 0.1 * random_actions(40, 3)
    rate = make_brakes(model, near, DEFAULTS.stop, DEFAULTS.share).h[:, 0]

    x = (action * model.qdlim).double()
    g = gradient[:, 0].double()
    W = model.dqd.double() ** 2
    beyond = (-rate.double() - (g * x).sum(1)).clamp(min=0)
    expected = x + (beyond / (g * W * g).sum(1))[:, None] * W * g
    assert 5 < (beyond > 0).sum() < 35
    changed = (guard_action(model, state, action, near, nothing) * model.qdlim).double()
    assert_close(changed, expected, rtol=0, atol=1e-5)
    assert ((g * changed).sum(1) >= -rate.double() - 1e-5).all()


def test_what_it_gives_is_within_reach_whatever_is_near(world):
    state = state_of(world, 200)
    generator = torch.Generator().manual_seed(4)
    near, later = (
        Nearest(
            0.1 * torch.randn(200, 9, generator=generator),
            torch.randn(200, 9, 7, generator=generator),
        )
        for _ in range(2)
    )
    qd = (
        guard_action(world.model, state, random_actions(200, 5), near, lambda q, seconds: later)
        * world.model.qdlim
    )
    lower, upper = find_reachable_velocities(world.model, state)
    assert (qd >= lower - 1e-6).all() and (qd <= upper + 1e-6).all()


@pytest.mark.parametrize("factor", [1.0, 4.0, torch.inf])
def test_a_joint_that_turns_towards_a_wall_stops_before_it(world, factor):
    """Joint 1 at full speed for 0.9 s: the arm comes near to the wall and does not meet it."""
    model = dataclasses.replace(world.model, dqd=world.model.dqd * factor)
    world = dataclasses.replace(world, model=model)
    # everything with y > 0.4 is wall
    wall = Obstacles(walls=torch.tensor([[[0.0, -1.0, 0.0, -0.4]]]))
    action = torch.tensor([[1.0, 0, 0, 0, 0, 0, 0]])
    state = make_rest_state(model, world.home[None])
    least = []
    for _ in range(18):
        ahead = predict_half_period_state(model, state)
        near = compute_nearest(world.collision, ahead.q, wall)
        state = step(
            model,
            state,
            guard_action(
                model,
                ahead,
                action,
                near,
                lambda q, seconds: compute_nearest(world.collision, q, wall),
            ),
        )
        least.append(float(compute_nearest(world.collision, state.q, wall).distance.min()))
    assert 0.0 < min(least) < 0.02
    free = make_rest_state(model, world.home[None])
    for _ in range(18):
        free = step(model, free, action)
    assert compute_nearest(world.collision, free.q, wall).distance.min() < -0.1


def test_below_the_distance_to_keep_the_arm_is_told_to_back_off(world):
    near = Nearest(torch.tensor([[-0.01]]), torch.tensor([[[1.0, 0, 0, 0, 0, 0, 0]]]))
    constants = GuardConstants(stop=0.005)
    rate = make_brakes(world.model, near, constants.stop, constants.share).h
    assert_close(rate, torch.tensor([[-0.3]]))  # 15 mm in 50 ms
    action = guard_action(
        world.model,
        make_rest_state(world.model, world.home[None]),
        torch.zeros(1, 7),
        near,
        nothing,
        constants,
    )
    assert_close(action[0, 0] * world.model.qdlim[0], torch.tensor(0.3))
    assert_close(action[0, 1:], torch.zeros(6))


def test_the_end_of_the_period_counts_too(world):
    """What is far now and would be 1 cm deep at its end is kept at `least`: 15 mm in 50 ms, 0.3 m/s
    less.
    """
    ahead = Nearest(torch.tensor([[-0.01]]), torch.tensor([[[-1.0, 0, 0, 0, 0, 0, 0]]]))
    model = dataclasses.replace(world.model, dqd=world.model.dqd * 100.0)
    action = torch.tensor([[0.5, 0, 0, 0, 0, 0, 0]])
    state = make_rest_state(model, world.home[None])
    safe = guard_action(
        model,
        state,
        action,
        nothing(state.q),
        lambda q, seconds: ahead,
        GuardConstants(least=0.005),
    )
    assert_close((action - safe)[0, 0] * model.qdlim[0], torch.tensor(0.3))
    assert_close(safe[0, 1:], torch.zeros(6))


def test_arms_that_are_told_to_go_anywhere_seldom_touch_anything():
    """Full speed in a direction that is drawn for each episode, among obstacles."""
    touched = {}
    for guard in (False, True):
        env = envs.make("panda", "reach_avoid", 60, seed=6, guard=guard)
        env.reset(6)
        action = torch.sign(random_actions(60, 7))
        hit = torch.zeros(60, dtype=torch.bool)
        going = ~hit
        for _ in range(env.task.horizon):
            step = env.step(action)
            hit |= going & step.terminated
            going &= ~(step.terminated | step.truncated)
            if not going.any():
                break
        touched[guard] = float(hit.float().mean())
    assert touched[False] > 0.85
    assert touched[True] < 0.58 * touched[False]


@pytest.mark.parametrize(
    "robot, task, count", [("panda", "reach_avoid", 50), ("ur5e", "reach", 80)]
)
def test_arms_that_keep_a_stop_touch_nothing_even_at_full_speed(robot, task, count):
    """Many of them do without, see above; the UR5e takes 13 periods to brake."""
    env = envs.make(robot, task, count, seed=6, guard=True, guard_stops=True)
    env.reset(6)
    generator = torch.Generator().manual_seed(7)
    action = torch.sign(torch.rand(count, env.a_dim, generator=generator) - 0.5)
    least = torch.stack([env.step(action).info["clearance"] for _ in range(env.task.horizon - 1)])
    assert least.min() > 0
    assert least.amin(0).median() < 0.1  # they do drive at things


def test_the_stop_that_is_checked_is_the_one_that_the_engine_makes():
    env = envs.make("panda", "reach", 30, seed=1)
    env.reset(1)
    env.step(torch.sign(random_actions(30, 2)))
    env.step(torch.sign(random_actions(30, 2)))
    model = env.model
    qd = env.moment.state.qd
    for q in iter_stop(model, env.moment.state, qd):
        assert_close(env.step(qd / model.qdlim).info["q"], q, atol=1e-5, rtol=0)
        qd = qd - qd.clamp(-model.dqd, model.dqd)
    assert not qd.any()


@pytest.mark.parametrize("touches_now", [False, True])
def test_only_an_arm_that_touches_something_now_may_move_where_no_stop_is_clear(world, touches_now):
    """Half a period ahead is not now: an arm that will touch something there has to brake."""
    model = world.model
    q = world.home[None]
    qd = 0.2 * model.qdlim[None]
    ahead = SimState(q + 0.5 * model.dt * qd, qd, torch.zeros(1))

    def nearest_at(q_there, seconds):
        inside = (q_there - q).abs().amax(1, keepdim=True) > 1e-6
        return Nearest(torch.where(inside | touches_now, -0.01, 0.1), torch.zeros(1, 1, 7))

    action = torch.full((1, 7), 0.5)
    braked = (qd - qd.clamp(max=model.dqd)) / model.qdlim
    assert_close(
        keep_stop(model, ahead, action, nearest_at, 0.005), action if touches_now else braked
    )


def test_rewards_are_those_of_the_action_that_was_asked_for():
    env = envs.make("panda", "reach_avoid", 20, seed=8, guard=True)
    step = env.step(torch.ones(20, 7))
    assert_close(step.info["reward/action"], torch.full((20,), -env.task.action_weight))


@pytest.mark.parametrize("task", ["reach", "reach_pose", "track", "pick_place"])
def test_every_task_can_have_a_guard_that_knows_the_ground_and_the_arm(task):
    """Told to reach down, the hand stops above the ground."""
    least = {}
    for guard in (False, True):
        env = envs.make("panda", task, 4, seed=0, guard=guard)
        action = torch.zeros(4, env.a_dim)
        action[:, 1] = 1.0  # joint 2 leans the arm forward
        least[guard] = min(float(env.step(action).info["clearance"].min()) for _ in range(40))
    assert least[False] < -0.05
    assert least[True] > 0.0


def test_a_replayed_episode_has_the_guard_too():
    env = envs.make("panda", "reach_avoid", 2, seed=9, guard=True)
    env.reset(9)
    again = ArmEnv(
        env.robot, env.task, 1, "cpu", 0, guard=env.guard, episodes=OneEpisode(env.arrived, 0)
    )
    action = torch.ones(2, 7)
    assert_close(again.step(action[:1]).info["q"], env.step(action).info["q"][:1])


def test_a_guard_for_an_arm_whose_shape_is_not_known_is_refused():
    with pytest.raises(
        ConfigError,
        match="--guard false leaves out, needs capsules: 'gantry' has no collision geometry; "
        "write .* with: python -m envs.collision.fitting",
    ):
        envs.make(str(DATA / "gantry.urdf"), "reach", guard=True)


def test_an_arm_makes_way_for_what_comes_if_the_guard_knows_its_speed(world):
    """A ball comes to the hand of a resting arm at 0.2 m/s: a guard that takes it to stand lets it
    touch, one that knows its velocity keeps away from it.
    """
    model = world.model
    tcp = envs.kinematics.fkine(model.chain, world.home[None])[0, :3, 3]
    ball = torch.cat((tcp + torch.tensor([0.25, 0.0, 0.0]), torch.tensor([0.05])))[None, None]
    velocity = torch.tensor([[[-0.2, 0.0, 0.0]]])

    def find_least(known):
        state = make_rest_state(model, world.home[None])
        least = 10.0
        for number in range(20):
            there = Obstacles(ball, sphere_velocities=velocity).move(number * model.dt)
            true = compute_nearest(world.collision, state.q, there)
            least = min(least, float(true.distance[:, :-1].min()))
            seen = there.move(0.5 * model.dt)
            seen = seen if known else Obstacles(seen.spheres)
            ahead = predict_half_period_state(model, state)

            def nearest_at(q, seconds, seen=seen):
                return compute_nearest(world.collision, q, seen.move(seconds))

            near = compute_nearest(world.collision, ahead.q, seen)
            action = guard_action(model, ahead, torch.zeros(1, 7), near, nearest_at)
            state = step(model, state, action)
        return least

    assert find_least(known=True) > 0.004 > find_least(known=False)
