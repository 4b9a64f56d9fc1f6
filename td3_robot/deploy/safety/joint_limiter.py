"""The joint-space half of the safety filter: velocities that follow a target and never leave the
limits.

The law is one sentence: a joint takes a step only if from where the step leads it can still stop
within all limits, by a plan that is then kept; where it cannot, it takes the next step of the plan
it has. The plan it has was checked when it was made, so the joint is always on one, whatever it is
asked for: the states with a plan are invariant by construction, and no property of the command is
used.

What makes the motion smooth is where the steps aim; that is a matter of comfort, not of safety.
"""

from typing import NamedTuple

import numpy as np

from td3_robot.deploy.robot.limits import Limits
from td3_robot.deploy.safety.stop_trajectory import (
    Plan,
    State,
    evaluate_plan,
    find_held_limits,
    find_stopping_speed,
    plan_stop,
)

# of the way from the plan's step to the wanted one that are tried
SHARES = np.array([0.7, 0.4, 0.2, 0.1])
APPROACH = 0.8  # of the acceleration with which a joint means to brake before a position limit
LOOK_AHEAD = 0.02  # [s] by which it sees the velocity limits that depend on positions coming
BELOW_CURVE = 0.97  # of those limits that it means to use


class JointPlanState(NamedTuple):
    """The plan that each joint follows, its age in ticks, and the state it has led to."""

    plan: Plan
    age: np.ndarray
    now: State


def plan_joint_stop(state: State, h: float, limits: Limits) -> tuple[JointPlanState, np.ndarray]:
    """Plan a stop that begins now, and return whether it holds every limit of each joint."""
    plans = _start_stop(state, h, limits)
    return plans, find_held_limits(plans.plan, h, limits)


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
    found, kept = _try_step(now, wanted, h, limits)
    if kept.all():
        return found
    planned = continue_plan(plans, h)
    tried = planned.now.a + SHARES.reshape(-1, *[1] * target.ndim) * (wanted - planned.now.a)
    held = _try_step(now, tried, h, limits)[1]
    less = np.take_along_axis(tried, held.argmax(0)[None], 0)[0]
    sure = kept | np.logical_or.reduce(held)
    found = _start_stop(_move(now, np.where(kept, wanted, less), h), h, limits)
    return found if sure.all() else choose_plans(sure, found, planned)


def choose_plans(which: np.ndarray, plans: JointPlanState, other: JointPlanState) -> JointPlanState:
    """Choose between two plans, joint by joint."""

    def pick(a, b):
        return np.where(which, a, b)

    start = State(*map(pick, plans.plan.start, other.plan.start))
    plan = Plan(start, *map(pick, plans.plan[1:], other.plan[1:]))
    return JointPlanState(plan, pick(plans.age, other.age), State(*map(pick, plans.now, other.now)))


def _try_step(
    now: State, a: np.ndarray, h: float, limits: Limits
) -> tuple[JointPlanState, np.ndarray]:
    """Advance by a tick with accelerations a, and plan a stop from there."""
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
        slowest, soon = limits.find_velocity_range(now.q + LOOK_AHEAD * now.v)
        low = np.maximum(low, BELOW_CURVE * slowest)
        high = np.minimum(high, BELOW_CURVE * soon)
    return np.minimum(np.maximum(target, low), high)


def _find_acceleration(now: State, target: np.ndarray, h: float, limits: Limits) -> np.ndarray:
    """Return the next acceleration on the fastest way to a velocity that arrives there with none:
    a stop, one order up.
    """
    missing = target - now.v
    step = h * limits.jerk
    a = np.copysign(
        np.minimum(find_stopping_speed(np.abs(missing), step, h), limits.acceleration), missing
    )
    return np.minimum(np.maximum(a, now.a - step), now.a + step)
