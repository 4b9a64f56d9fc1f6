"""The simulator's promise: no limit is ever broken, and none costs more than it must."""

import dataclasses

import numpy as np
import pytest
import roboticstoolbox as rtb
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.kinematics import compile_ets
from envs.robots import make_robot
from envs.simulation import kinematic
from envs.simulation.engine import SimModel, SimState, compile_robot, make_rest_state
from envs.simulation.kinematic import compute_stopping_speed, step
from td3_robot.errors import ConfigError

EPS = 2.0**-23  # of float32


def model_of(qlim, qdlim, qddlim=None, dt=0.05, stroke=(0.0, 0.04), grip_speed=0.05) -> SimModel:
    """A model of joints without a body: limits are all that counts."""
    qdlim = torch.tensor(qdlim)
    dqd = torch.full_like(qdlim, torch.inf) if qddlim is None else torch.tensor(qddlim) * dt
    return SimModel(
        None, torch.tensor(qlim), qdlim, dqd, dt, stroke, grip_speed * dt, torch.ones(2), len(qdlim)
    )


@st.composite
def models(draw, limited: bool | None = None) -> SimModel:
    """1 to 4 joints from slow to fast, from weak to strong, at 100 to 5 Hz."""
    n = draw(st.integers(1, 4))

    def column(low, high):
        return draw(st.lists(st.floats(low, high, width=32), min_size=n, max_size=n))

    lower = column(-5, 0)
    span = column(0.125, 6)
    limited = draw(st.booleans()) if limited is None else limited
    qlim = [lower, [a + b for a, b in zip(lower, span)]]
    return model_of(
        qlim, column(0.0625, 5), column(0.125, 50) if limited else None, draw(st.floats(0.01, 0.2))
    )


def anywhere(model: SimModel, generator: torch.Generator, B: int = 40) -> SimState:
    """At rest at random positions, some of them at the limits themselves."""
    lower, upper = model.qlim
    unit = torch.rand(B, len(lower), generator=generator)
    unit = torch.where(torch.rand(unit.shape, generator=generator) < 0.1, unit.round(), unit)
    return make_rest_state(model, (lower + unit * (upper - lower)).clamp(lower, upper))


def wild_actions(shape, generator: torch.Generator) -> torch.Tensor:
    """Full speed one way, full speed the other, anything between, and more than is allowed."""
    kind = torch.randint(4, shape, generator=generator)
    value = 2 * torch.rand(shape, generator=generator) - 1
    return torch.where(
        kind == 0, value, torch.where(kind == 1, 1.0, torch.where(kind == 2, -1.0, 3 * value))
    )


def rounding(model: SimModel) -> torch.Tensor:
    """What float32 may add to a speed: positions are exact to their last digit, and are divided by
    dt.
    """
    return 4 * EPS * (model.qlim.abs().amax(0) / model.dt + model.qdlim)


@settings(max_examples=60)
@given(models(), st.integers(0, 2**31), st.integers(1, 30))
def test_no_sequence_of_actions_from_rest_breaks_a_limit(model, seed, hold):
    generator = torch.Generator().manual_seed(seed)
    state = anywhere(model, generator)
    lower, upper = model.qlim
    for t in range(80):
        if (
            t % hold == 0
        ):  # the same for a while, so that joints get up to speed before they must brake
            action = wild_actions(state.q.shape, generator)
        after = step(model, state, action)
        assert (after.q >= lower).all() and (after.q <= upper).all()
        assert (after.qd.abs() <= model.qdlim).all()
        assert ((after.qd - state.qd).abs() <= model.dqd + rounding(model)).all()
        mean = (state.qd + after.qd) / 2  # speed rises or falls evenly
        torch.testing.assert_close(after.q, state.q + mean * model.dt, atol=4 * EPS * 11, rtol=0)
        state = after


@settings(max_examples=30)
@given(models(), st.integers(0, 2**31))
def test_a_joint_sent_to_its_limit_arrives_there_and_as_soon_as_can_be(model, seed):
    """Braking begins no earlier than it must: time-optimal but for one control step."""
    state = anywhere(model, torch.Generator().manual_seed(seed), B=10)
    lower, upper = model.qlim
    way = upper - state.q
    a = model.dqd / model.dt
    v = model.qdlim
    short = way < v * v / a
    seconds = torch.where(
        short, 2 * torch.sqrt(way / a), way / v + torch.where(torch.isinf(a), 0.0, v / a)
    )
    steps = torch.ceil(seconds / model.dt) + 1
    for t in range(int(steps.max())):
        arrived = t >= steps
        assert ((upper - state.q) <= 1e-4 * (upper - lower))[arrived].all()
        state = step(model, state, torch.ones_like(state.q))
    assert (upper - state.q <= 1e-4 * (upper - lower)).all()


@settings(max_examples=30)
@given(models(), st.integers(0, 2**31))
def test_a_joint_at_its_limit_is_free_to_leave_it(model, seed):
    lower, upper = model.qlim
    state = step(model, make_rest_state(model, upper[None]), -torch.ones(1, len(upper)))
    stopping = compute_stopping_speed((upper - lower)[None], model.dqd, model.dt)[0]
    expected = torch.minimum(torch.minimum(model.dqd, model.qdlim), stopping)
    torch.testing.assert_close(state.qd[0], -expected)


@given(models(), st.integers(0, 2**31))
def test_far_from_every_limit_a_command_is_obeyed_exactly(model, seed):
    generator = torch.Generator().manual_seed(seed)
    wide = dataclasses.replace(
        model, qlim=torch.tensor([-1e4, 1e4])[:, None].expand(2, len(model.qdlim))
    )
    fraction = 2 * torch.rand(10, len(model.qdlim), generator=generator) - 1
    state = SimState(torch.zeros_like(fraction), fraction * model.qdlim, torch.zeros(10))
    torch.testing.assert_close(step(wide, state, fraction).qd, fraction * model.qdlim)


def test_a_hand_worked_start_and_stop():
    # dt 0.5 s, 2 rad/s at most, 1 rad/s2, so 0.5 rad/s more or less each step. From 0 to a limit at
    # 1.25 rad: up to 0.5 and 1.0 rad/s it comes to 0.125 and 0.5. Another step to 1.0 would leave
    # too little to brake in; down to 0.75, 0.25 and 0 it covers 0.4375, 0.25 and 0.0625, and is
    # there.
    model = model_of([[-9.0], [1.25]], [2.0], [1.0], dt=0.5)
    state = make_rest_state(model, torch.zeros(1, 1))
    speeds = []
    places = []
    for _ in range(6):
        state = step(model, state, torch.ones(1, 1))
        speeds.append(round(state.qd.item(), 6))
        places.append(round(state.q.item(), 6))
    assert speeds == [0.5, 1.0, 0.75, 0.25, 0.0, 0.0]
    assert places == [0.125, 0.5, 0.9375, 1.1875, 1.25, 1.25]


def test_stopping_speeds_are_what_a_hand_gets():
    # dt 1, dqd 1: 1 stops within 1; 2 + 1 = 3; 3 + 2 + 1 = 6; 1.5 + 0.5 = 2; 0.25 alone
    model = model_of([[-9.0], [9.0]], [100.0], [1.0], dt=1.0)
    distance = torch.tensor([[0.0], [0.25], [1.0], [2.0], [3.0], [6.0]])
    speed = compute_stopping_speed(distance, model.dqd, model.dt)[:, 0]
    torch.testing.assert_close(speed, torch.tensor([0.0, 0.25, 1.0, 1.5, 2.0, 3.0]))


def test_without_an_acceleration_limit_a_joint_stops_dead_at_its_limit():
    model = model_of([[-1.0, -1.0], [1.0, 1.0]], [2.0, 4.0], None, dt=0.1)
    state = make_rest_state(model, torch.tensor([[0.0, 0.9]]))
    state = step(model, state, torch.ones(1, 2))
    torch.testing.assert_close(state.qd, torch.tensor([[2.0, 1.0]]))
    torch.testing.assert_close(state.q, torch.tensor([[0.1, 0.95]]))
    state = step(model, state, torch.ones(1, 2))
    torch.testing.assert_close(state.qd, torch.tensor([[2.0, 0.0]]))
    torch.testing.assert_close(state.q, torch.tensor([[0.3, 1.0]]))


def test_each_joint_has_its_own_limits():
    model = compile_robot(make_robot("panda"), dt=0.05)
    state = make_rest_state(
        model, torch.tensor(make_robot("panda").home, dtype=torch.float32)[None]
    )
    first = step(model, state, torch.ones(1, 7))
    # the first step is what qddlim allows in 0.05 s
    torch.testing.assert_close(
        first.qd[0], 0.05 * torch.tensor([15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0])
    )


@given(models(), st.integers(0, 2**31))
def test_batched_equals_looped(model, seed):
    generator = torch.Generator().manual_seed(seed)
    state = anywhere(model, generator, B=7)
    for _ in range(5):
        action = wild_actions(state.q.shape, generator)
        grip = torch.rand(7, generator=generator)
        alone = [
            step(model, SimState(q[None], qd[None], g[None]), a[None], w[None])
            for q, qd, g, a, w in zip(state.q, state.qd, state.gripper, action, grip)
        ]
        state = step(model, state, action, grip)
        for name in ("q", "qd", "gripper"):
            torch.testing.assert_close(
                getattr(state, name), torch.cat([getattr(s, name) for s in alone])
            )


def test_a_step_writes_into_nothing_it_was_given():
    model = compile_robot(make_robot("panda"), dt=0.05)
    state = make_rest_state(model, torch.zeros(3, 7))
    action = torch.full((3, 7), 2.0)
    grip = torch.zeros(3)
    before = [
        x.clone()
        for x in (
            state.q,
            state.qd,
            state.gripper,
            action,
            grip,
            model.qlim,
            model.qdlim,
            model.dqd,
        )
    ]
    step(model, state, action, grip)
    after = (state.q, state.qd, state.gripper, action, grip, model.qlim, model.qdlim, model.dqd)
    assert all(torch.equal(a, b) for a, b in zip(before, after))


# The gripper


def test_the_gripper_opens_and_closes_at_its_speed_and_stops_at_its_ends():
    model = compile_robot(make_robot("panda"), dt=0.05)  # 40 mm at 50 mm/s: 2.5 mm a step, 16 steps
    state = make_rest_state(model, torch.zeros(3, 7))
    action = torch.zeros(3, 7)
    torch.testing.assert_close(state.gripper, torch.full((3,), 0.04))
    state = step(model, state, action, torch.tensor([0.0, 0.5, 1.0]))
    torch.testing.assert_close(state.gripper, torch.tensor([0.0375, 0.0375, 0.04]))
    for _ in range(14):
        state = step(model, state, action, torch.tensor([0.0, 0.5, 1.0]))
    torch.testing.assert_close(state.gripper, torch.tensor([0.0025, 0.02, 0.04]))
    for _ in range(3):
        # more than shut, more than open
        state = step(model, state, action, torch.tensor([-5.0, 0.5, 5.0]))
    torch.testing.assert_close(state.gripper, torch.tensor([0.0, 0.02, 0.04]))


def test_without_a_command_the_gripper_stays():
    model = compile_robot(make_robot("panda"), dt=0.05)
    state = SimState(torch.zeros(1, 7), torch.zeros(1, 7), torch.tensor([0.013]))
    assert step(model, state, torch.ones(1, 7)).gripper.item() == pytest.approx(0.013)


def test_a_gripper_whose_driver_closes_upwards_moves_the_right_way():
    """A Robotiq 2F-85's driver joint is 0 when open and 0.8 rad when shut."""
    model = model_of([[-1.0], [1.0]], [1.0], None, 0.1, stroke=(0.8, 0.0), grip_speed=2.0)
    state = make_rest_state(model, torch.zeros(1, 1))
    assert state.gripper.item() == 0.0
    for expected in (0.2, 0.4, 0.6, 0.8, 0.8):
        state = step(model, state, torch.zeros(1, 1), torch.zeros(1))
        assert state.gripper.item() == pytest.approx(expected)


# Compiling


def test_compiling_takes_over_the_robots_values():
    robot = make_robot("panda")
    model = compile_robot(robot, dt=0.1)
    np.testing.assert_allclose(model.qlim, robot.qlim, rtol=1e-6)
    np.testing.assert_allclose(model.qdlim, robot.qdlim, rtol=1e-6)
    np.testing.assert_allclose(model.dqd, 0.1 * robot.qddlim, rtol=1e-6)
    assert all(
        x.dtype == torch.float32
        for x in (model.qlim, model.qdlim, model.dqd, model.chain.constants)
    )


def test_joints_that_only_turn_the_hand_are_known():
    """Those at the end of an arm whose axes pass through its TCP: the Panda's seventh."""
    robot = make_robot("panda")
    assert compile_robot(robot, dt=0.05).position_joints == 6
    tool = robot.rtb.ets() * rtb.ET.tx(0.05)  # a TCP beside the axis
    assert (
        compile_robot(dataclasses.replace(robot, chain=compile_ets(tool)), dt=0.05).position_joints
        == 7
    )


def test_an_arm_may_have_no_gripper_and_no_acceleration_limit():
    robot = dataclasses.replace(make_robot("panda"), gripper=None, qddlim=None, qdddlim=None)
    model = compile_robot(robot, dt=0.05)
    assert model.driver_mimic.shape == (0,) and torch.isinf(model.dqd).all()
    state = step(
        model,
        make_rest_state(model, torch.tensor(robot.home, dtype=torch.float32)[None]),
        torch.ones(1, 7),
        torch.ones(1),
    )
    torch.testing.assert_close(state.qd[0], model.qdlim)
    assert state.gripper.tolist() == [0.0]


def test_the_module_keeps_nothing():
    state = {
        name
        for name, value in vars(kinematic).items()
        if isinstance(value, (torch.Tensor, dict, list))
    }
    assert state <= {"__builtins__", "__annotations__", "__path__"}


def test_jerk_limits_hold_by_themselves_over_a_long_enough_period():
    """2 qddlim / dt is the greatest jerk; the Panda's limits allow it for periods of 4 ms or
    more.
    """
    panda = make_robot("panda")
    shortest = 2 * panda.qddlim / panda.qdddlim
    np.testing.assert_allclose(shortest, 0.004)
    assert compile_robot(panda, 0.0041).qdddlim.tolist() == panda.qdddlim.tolist()
    with pytest.raises(
        ConfigError, match="dt must be at least 0.004 s for robot 'panda', got 0.0039"
    ) as caught:
        compile_robot(panda, 0.0039)
    assert "\n" not in str(caught.value)
    panda.qdddlim = None
    assert compile_robot(panda, 0.001).qdddlim is None


@settings(max_examples=15)
@given(models(limited=True), st.integers(0, 2**31))
def test_no_sequence_of_actions_has_more_jerk_than_twice_the_acceleration_limit(model, seed):
    generator = torch.Generator().manual_seed(seed)
    state = anywhere(model, generator)
    change = torch.zeros_like(state.q)
    for _ in range(40):
        after = step(model, state, wild_actions(state.q.shape, generator))
        before = change
        change = after.qd - state.qd
        assert ((change - before).abs() <= 2 * model.dqd + 2 * rounding(model)).all()
        state = after
