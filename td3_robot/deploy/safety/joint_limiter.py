"""The joint-space half of the safety filter: velocities that follow a target and never leave the
limits.

A joint takes a step only if it can still stop within all limits from where the step leads. The plan
of that stop is kept. A joint that could not stop takes the next step of the plan that it has, which
was checked when it was made. So every joint is always on a checked plan, whatever is commanded.

Where the steps aim makes the motion smooth; safety does not depend on it.
"""

from typing import NamedTuple

import numpy as np

from td3_robot.deploy.robot.limits import Limits
from td3_robot.deploy.safety.stop_trajectory import (
    Plan,
    State,
    evaluate_plan,
    find_stopping_speed,
    is_within_limits,
    plan_stop,
)

# shares of the way from the planned to the wanted acceleration, tried in this order
SHARES = np.array([0.7, 0.4, 0.2, 0.1])
APPROACH = (
    0.8  # share of the acceleration limit that is aimed at in braking before a position limit
)
LOOK_AHEAD = 0.02  # [s] ahead, where velocity limits that depend on positions are looked up
BELOW_CURVE = 0.97  # share of those velocity limits that is aimed at


class JointPlanState(NamedTuple):
    """The plan that each joint follows, its age in ticks, and the state it has led to."""

    plan: Plan
    age: np.ndarray
    now: State


def plan_joint_stop(state: State, h: float, limits: Limits) -> tuple[JointPlanState, np.ndarray]:
    """Plan a stop that begins now.

    Returns:
        The plans, and whether that of each joint keeps within all limits (..., n).
    """
    plans = _start_stop(state, h, limits)
    return plans, is_within_limits(plans.plan, h, limits)


def _start_stop(state: State, h: float, limits: Limits) -> JointPlanState:
    plan = plan_stop(state, h, limits)
    return JointPlanState(plan, np.zeros(plan.ramp.shape), state)


def continue_plan(plans: JointPlanState, h: float) -> JointPlanState:
    """Advance by a tick on the same plans."""
    age = plans.age + 1.0
    return JointPlanState(plans.plan, age, evaluate_plan(plans.plan, age, h))


def steer(plans: JointPlanState, target: np.ndarray, h: float, limits: Limits) -> JointPlanState:
    """Advance by a tick towards wanted velocities, as far as the limits allow.

    Args:
        target: (..., n) finite velocities [rad/s]; anything beyond the limits is cut off.
    """
    now = plans.now
    wanted = _find_acceleration(now, _limit_target(now, target, h, limits), h, limits)
    stops, can_stop = _try_step(now, wanted, h, limits)
    if can_stop.all():
        return stops
    planned = continue_plan(plans, h)
    reduced = planned.now.a + SHARES.reshape(-1, *[1] * target.ndim) * (wanted - planned.now.a)
    _, can_stop_reduced = _try_step(now, reduced, h, limits)
    greatest = np.take_along_axis(reduced, can_stop_reduced.argmax(0)[None], 0)[0]
    stops = _start_stop(_move(now, np.where(can_stop, wanted, greatest), h), h, limits)
    can_stop = can_stop | np.logical_or.reduce(can_stop_reduced)
    return stops if can_stop.all() else choose_plans(can_stop, stops, planned)


def choose_plans(where: np.ndarray, plans: JointPlanState, other: JointPlanState) -> JointPlanState:
    """Return `plans` where true (..., n), and `other` elsewhere."""

    def pick(a, b):
        return np.where(where, a, b)

    start = State(*map(pick, plans.plan.start, other.plan.start))
    plan = Plan(start, *map(pick, plans.plan[1:], other.plan[1:]))
    return JointPlanState(plan, pick(plans.age, other.age), State(*map(pick, plans.now, other.now)))


def _try_step(
    now: State, a: np.ndarray, h: float, limits: Limits
) -> tuple[JointPlanState, np.ndarray]:
    """Advance by a tick with accelerations a, and plan a stop from there, see `plan_joint_stop`."""
    return plan_joint_stop(_move(now, a, h), h, limits)


def _move(now: State, a: np.ndarray, h: float) -> State:
    v = now.v + h * a
    return State(now.q + h * v, v, a)


def _limit_target(now: State, target: np.ndarray, h: float, limits: Limits) -> np.ndarray:
    """Return the target, lowered so that each joint can brake gently before its limits."""
    # [1/s] at which it closes in on a limit in the end
    ease = limits.jerk / (8.0 * limits.acceleration)
    room = np.empty((2, *now.q.shape))
    room[0] = now.q - limits.lower
    room[1] = limits.upper - now.q
    room = np.maximum(room, 0.0)
    braking = find_stopping_speed(room, APPROACH * h * limits.acceleration, h)
    low, high = np.minimum(np.minimum(braking, ease * room), limits.velocity)
    low = -low
    if limits.curve is not None:
        slowest, fastest = limits.find_velocity_range(now.q + LOOK_AHEAD * now.v)
        low = np.maximum(low, BELOW_CURVE * slowest)
        high = np.minimum(high, BELOW_CURVE * fastest)
    return np.minimum(np.maximum(target, low), high)


def _find_acceleration(now: State, target: np.ndarray, h: float, limits: Limits) -> np.ndarray:
    """Return the next acceleration on the fastest way to a velocity at which the acceleration is
    zero: as a stop, with velocities for positions.
    """
    missing = target - now.v
    step = h * limits.jerk
    a = np.copysign(
        np.minimum(find_stopping_speed(np.abs(missing), step, h), limits.acceleration), missing
    )
    return np.minimum(np.maximum(a, now.a - step), now.a + step)
