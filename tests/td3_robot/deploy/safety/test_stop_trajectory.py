"""The law of the safety filter: from a state with a plan no sequence of commands leads out of any
limit.
"""

import numpy as np
import pytest

from td3_robot.deploy.robot.description import Robot
from td3_robot.deploy.robot.limits import FR3, Limits
from td3_robot.deploy.safety.joint_limiter import (
    choose_plans,
    continue_plan,
    plan_joint_stop,
    steer,
)
from td3_robot.deploy.safety.stop_trajectory import (
    State,
    evaluate_plan,
    find_stopping_speed,
    is_within_limits,
    plan_stop,
)

H = 1e-3
ROBOTS = {"panda": Robot.load("panda").limits, "ur5e": Robot.load("ur5e").limits, "fr3": FR3}
# a limit or two, reached in a few ticks
COARSE = Limits(*np.array([[-1.0], [1.0], [2.0], [5.0], [100.0]]))


def anywhere(limits: Limits, count: int, rng: np.random.Generator) -> State:
    """States all over the limits, admissible or not."""
    shape = (count, limits.n)
    q = rng.uniform(limits.lower, limits.upper, shape)
    return State(
        q,
        rng.uniform(-1, 1, shape) * limits.velocity,
        rng.uniform(-1, 1, shape) * limits.acceleration,
    )


def walked(plan, ticks: int) -> list[State]:
    """A plan summed up tick by tick, from its accelerations alone."""
    states = []
    (q, v, _) = plan.start
    for tick in range(1, ticks + 1):
        a = evaluate_plan(plan, tick, H).a
        v = v + H * a
        q = q + H * v
        states.append(State(q, v, a))
    return states


@pytest.mark.parametrize("limits", [*ROBOTS.values(), COARSE], ids=[*ROBOTS, "coarse"])
def test_a_plan_ends_at_rest_and_its_closed_form_is_its_sum(limits):
    plan = plan_stop(anywhere(limits, 300, np.random.default_rng(0)), H, limits)
    for tick, state in enumerate(walked(plan, int(plan.ticks.max())), 1):
        assert np.allclose(state.q, evaluate_plan(plan, tick, H).q, atol=1e-9)
        going = tick < plan.ticks
        assert np.allclose(state.v[going], evaluate_plan(plan, tick, H).v[going], atol=1e-9)
    assert np.abs(state.v).max() < 1e-9 and not state.a.any()


@pytest.mark.parametrize("limits", [*ROBOTS.values(), COARSE], ids=[*ROBOTS, "coarse"])
def test_a_plan_that_holds_holds_at_every_tick(limits):
    plan = plan_stop(anywhere(limits, 300, np.random.default_rng(1)), H, limits)
    good = is_within_limits(plan, H, limits)
    assert 0.3 < good.mean() < 1.0  # both kinds are there
    before = plan.start.a
    for state in walked(plan, int(plan.ticks.max())):
        lower, upper = limits.find_velocity_range(state.q)
        kept = (state.q >= limits.lower - 1e-9) & (state.q <= limits.upper + 1e-9)
        kept &= (state.v >= lower - 1e-9) & (state.v <= upper + 1e-9)
        kept &= np.abs(state.a) <= limits.acceleration + 1e-9
        kept &= np.abs(state.a - before) <= H * limits.jerk + 1e-9
        assert kept[good].all()
        before = state.a


def test_stopping_from_speed_takes_as_long_as_by_hand():
    limits = Limits(*np.array([[-9.0], [9.0], [2.0], [10.0], [1000.0]]))
    plan = plan_stop(State(*np.array([[0.0], [1.0], [0.0]])), H, limits)
    # a trapezium: v / A + A / J = 0.1 + 0.01 s, over v / 2 of it: 55 mm, and a tick or two
    assert 110 <= plan.ticks[0] <= 112
    assert evaluate_plan(plan, plan.ticks, H).q[0] == pytest.approx(0.055, abs=2e-3)


def test_stopping_speed_is_what_it_says():
    step = np.array(0.3)
    h = 0.01
    for distance in (0.001, 0.02, 0.5):
        u = find_stopping_speed(np.array(distance), step, h)
        covered = 0.0
        while u > 1e-12:
            covered = covered + h * u
            u = u - step
        assert covered == pytest.approx(distance)


def adversary(rng: np.random.Generator, shape: tuple[int, int], velocity: np.ndarray) -> np.ndarray:
    """Commands (B, n): within the limits, far beyond them, none at all, or a creep."""
    kind = rng.integers(0, 4, (shape[0], 1))
    anything = rng.uniform(-1, 1, shape)
    options = [anything * velocity, np.sign(anything) * 1e30, 0.0 * anything, 0.02 * anything]
    return np.choose(np.broadcast_to(kind, shape), options)


def torture(limits: Limits, arms: int, ticks: int, seed: int) -> None:
    """Hold what comes out to the limits as an arm's controller would: by differences of
    velocities.
    """
    rng = np.random.default_rng(seed)
    inner = limits.narrow()
    state = anywhere(inner, arms, rng)
    plans, good = plan_joint_stop(state, H, inner)
    at_rest, fine = plan_joint_stop(State(state.q, 0 * state.q, 0 * state.q), H, inner)
    assert fine.all() and good.mean() > 0.5
    plans = choose_plans(good, plans, at_rest)
    q, v, a = plans.now
    left = np.zeros((arms, 1))
    command = np.zeros_like(q)
    for _ in range(ticks):
        left -= 1
        command = np.where(left <= 0, adversary(rng, q.shape, inner.velocity), command)
        left = np.where(left <= 0, rng.choice([1, 2, 20, 50, 200], (arms, 1)), left)
        plans = steer(plans, command, H, inner)
        new = plans.now
        # libfranka looks at where the arm is when the command comes
        slowest, fastest = limits.find_velocity_range(q)
        assert (new.v >= slowest).all() and (new.v <= fastest).all()
        acceleration = (new.v - v) / H
        assert (np.abs(acceleration) <= limits.acceleration).all()
        assert (np.abs(acceleration - a) / H <= limits.jerk).all()
        assert np.allclose(new.q, q + H * new.v, atol=1e-12, rtol=0)
        assert (new.q >= limits.lower).all() and (new.q <= limits.upper).all()
        q = new.q
        v = new.v
        a = acceleration


@pytest.mark.parametrize("name", ROBOTS)
def test_no_commands_lead_out_of_the_limits(name):
    torture(ROBOTS[name], arms=60, ticks=300, seed=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ROBOTS)
def test_a_million_commands_do_not_either(name):
    torture(ROBOTS[name], arms=500, ticks=2000, seed=3)


def test_the_same_with_a_coarse_law():
    torture(COARSE, arms=300, ticks=500, seed=4)


def test_speeds_that_depend_on_positions_are_kept_at_every_tick_however_steep_they_are():
    """Joints whose acceleration builds up slowly, sent to and fro between two ends."""
    rng = np.random.default_rng(0)
    n = 500
    h = 4e-3
    acceleration = 10.0 ** rng.uniform(0.0, 2.0, n)
    ends = rng.uniform(0.2, 3.0, (2, 1, n)) * np.array([-1.0, 1.0])[:, None, None]
    c = 10.0 ** rng.uniform(-1.0, 3.5, (2, 1, n))
    curve = np.concatenate((ends, c, rng.uniform(0.0, 0.5, (2, 1, n))), 1)
    jerk = acceleration * 10.0 ** rng.uniform(0.5, 3.5, n)
    velocity = rng.uniform(0.5, 8.0, n)
    limits = Limits(ends[0, 0], ends[1, 0], velocity, acceleration, jerk, curve)
    plans, good = plan_joint_stop(State(*np.zeros((3, n))), h, limits)
    target = np.zeros(n)
    for _ in range(300):
        other = rng.uniform(-1.2, 1.2, n) * limits.velocity
        target = np.where(rng.random(n) < 0.01, other, target)
        plans = steer(plans, target, h, limits)
        slowest, fastest = limits.find_velocity_range(plans.now.q)
        kept = (plans.now.v >= slowest - 1e-9) & (plans.now.v <= fastest + 1e-9)
        assert kept[good].all()
    assert good.mean() > 0.9


@pytest.mark.parametrize("name", ROBOTS)
def test_a_command_is_reached_and_a_limit_approached(name):
    limits = ROBOTS[name].narrow()
    middle = (limits.lower + limits.upper) / 2
    rest = State(middle[None], np.zeros((1, limits.n)), np.zeros((1, limits.n)))
    plans = plan_joint_stop(rest, H, limits)[0]
    target = np.full((1, limits.n), 0.3)
    for _ in range(
        int(1000 * (0.3 / limits.acceleration + limits.acceleration / limits.jerk).max()) + 2
    ):
        plans = steer(plans, target, H, limits)
    assert np.allclose(plans.now.v, 0.3, atol=1e-9)  # as fast as acceleration and jerk let it
    for _ in range(6000):
        plans = steer(plans, np.full((1, limits.n), 1e30), H, limits)
    assert not np.allclose(plans.now.q, middle) and np.abs(plans.now.v).max() < 1e-3
    assert (limits.upper - plans.now.q).max() < 0.03  # FR3 may not move any more from there on


def test_batched_equals_looped():
    limits = ROBOTS["panda"].narrow()
    rng = np.random.default_rng(5)
    state = anywhere(limits, 20, rng)
    plans, good = plan_joint_stop(state, H, limits)
    single = [plan_joint_stop(State(*(x[i] for x in state)), H, limits)[0] for i in range(20)]
    for _ in range(50):
        target = rng.uniform(-1, 1, state.q.shape)
        plans = steer(plans, target, H, limits)
        single = [steer(one, target[i], H, limits) for i, one in enumerate(single)]
    assert np.allclose(plans.now.q, [one.now.q for one in single], atol=1e-12)


def test_a_course_goes_on_as_its_plan_says():
    limits = ROBOTS["panda"].narrow()
    plans = plan_joint_stop(anywhere(limits, 1, np.random.default_rng(6)), H, limits)[0]
    for tick in range(1, 30):
        plans = continue_plan(plans, H)
        assert np.array_equal(plans.now.q, evaluate_plan(plans.plan, tick, H).q)
