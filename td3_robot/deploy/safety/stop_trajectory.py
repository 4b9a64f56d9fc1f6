"""Stops of joints: the plan by which a joint comes to rest, and whether it holds all limits.

Time runs in ticks of h seconds. In a tick the acceleration changes by at most h J, then the
velocity by h a, then the position by h v; so accelerations and jerks are the differences that a
robot's own controller takes of the velocities it is sent (libfranka checks them so,
https://frankarobotics.github.io/docs/control_parameters.html).

A plan ramps the acceleration to a peak in n1 ticks, holds it for n2 and ramps it to zero in n3: the
shape of the fastest stop under a jerk limit (Kroeger & Wahl, "Online trajectory generation", IEEE
Trans. Robotics 26(1), 2010, here for whole ticks). With a_1 .. a_N its accelerations, the stop is
exact where h sum(a_i) = -v, which fixes the peak once the n are chosen. All of it is in closed
form, so a plan is checked without stepping through it.

All arrays are elementwise over joints, (..., n).
"""

from typing import NamedTuple

import numpy as np

from td3_robot.deploy.robot.limits import Limits

TINY = 1e-12
PHASE_SAMPLES = np.linspace(0.0, 1.0, 5)[1:]  # of each phase, where speeds depend on positions
_ENDLESS = 1e9  # [ticks] a hold that is longer comes from a peak of almost zero


class State(NamedTuple):
    """Position [rad], velocity [rad/s] and acceleration [rad/s2] after a tick; for joints that
    slide in metres.
    """

    q: np.ndarray
    v: np.ndarray
    a: np.ndarray


class Plan(NamedTuple):
    """From a state to rest. `ramp`, `hold` and `release` are n1, n2 and n3 above, whole numbers;
    `peak` [rad/s2].
    """

    start: State
    ramp: np.ndarray
    hold: np.ndarray
    release: np.ndarray
    peak: np.ndarray

    @property
    def ticks(self) -> np.ndarray:
        """Duration of the stop in ticks."""
        return self.ramp + self.hold + self.release


def plan_stop(start: State, h: float, limits: Limits) -> Plan:
    """Plan the fastest stop from a state, rounded up to whole ticks."""
    step = h * limits.jerk  # [rad/s2] by which the acceleration may change in a tick
    # ticks in which the acceleration alone is taken back
    coasting = np.ceil(np.abs(start.a) / step - 1e-9)
    # the velocity that would be left
    drift = start.v + h * start.a * np.maximum(coasting - 1.0, 0.0) / 2.0
    sign = np.where(drift < 0.0, -1.0, 1.0)
    v = sign * start.v
    a = sign * start.a
    # of continuous time, without a hold
    peak = np.sqrt(np.maximum(limits.jerk * v + a * a / 2.0, 0.0))
    peak = np.minimum(peak, limits.acceleration)
    ramp = np.maximum(np.ceil((a + peak) / step - 1e-9), 1.0)
    release = np.ceil(peak / step - 1e-9)
    needed = 2.0 * v / h + a * (ramp - 1.0)  # the peak times (n1 + 2 n2 + n3)
    hold = np.maximum(np.ceil((needed / np.maximum(peak, TINY) - ramp - release) / 2.0 - 1e-9), 0.0)
    # the peak is almost zero: next to rest one ramp is enough
    hold = np.where(hold > _ENDLESS, 0.0, hold)
    return Plan(start, ramp, hold, release, -sign * needed / (ramp + 2.0 * hold + release))


def evaluate_plan(plan: Plan, tick: np.ndarray | float, h: float) -> State:
    """Return the state of a plan after some ticks (whole numbers, at least 0)."""
    i, slopes, since = _find_kinks(plan, tick)
    v = plan.start.v + h * (i * plan.start.a + _sum_velocities(slopes, since))
    a = plan.start.a + np.add.reduce(slopes * since)
    moving = tick < plan.ticks
    return State(
        _sum_positions(plan, i, slopes, since, h),
        np.where(moving, v, 0.0),
        np.where(moving, a, 0.0),
    )


def evaluate_positions(plan: Plan, tick: np.ndarray | float, h: float) -> np.ndarray:
    """Return the positions of a plan after some ticks."""
    return _sum_positions(plan, *_find_kinks(plan, tick), h)


def _find_kinks(plan: Plan, tick: np.ndarray | float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how many ticks of the plan are over; and (3, ..., n) by how much the slope of the
    acceleration changes at the start of each phase [rad/s2 a tick], and how many ticks ago that
    was.
    """
    i = np.minimum(tick, plan.ticks)
    slopes = np.empty((3, *plan.ramp.shape))
    since = np.empty((3, *i.shape))
    slopes[0] = (plan.peak - plan.start.a) / plan.ramp
    slopes[1] = -slopes[0]
    slopes[2] = -plan.peak / np.maximum(plan.release, 1.0)
    since[0] = i
    since[1] = i - plan.ramp
    since[2] = since[1] - plan.hold
    return (
        i,
        slopes.reshape(3, *[1] * (i.ndim - plan.ramp.ndim), *plan.ramp.shape),
        np.maximum(since, 0.0),
    )


def _sum_velocities(slopes: np.ndarray, since: np.ndarray) -> np.ndarray:
    """Return the velocity that the slope changes have added, per h (..., n).

    The acceleration gains `slope` a tick, so after i ticks its sum is slope * i (i + 1) / 2.
    """
    return np.add.reduce(slopes * (since * (since + 1.0))) / 2.0


def _sum_positions(
    plan: Plan, i: np.ndarray, slopes: np.ndarray, since: np.ndarray, h: float
) -> np.ndarray:
    """Return the positions (..., n) after i ticks.

    The sum of the sums in `_sum_velocities` is slope * i (i + 1) (i + 2) / 6.
    """
    added = np.add.reduce(slopes * (since * (since + 1.0) * (since + 2.0))) / 6.0
    return plan.start.q + h * (i * plan.start.v + h * (i * (i + 1.0) / 2.0 * plan.start.a + added))


def is_within_limits(plan: Plan, h: float, limits: Limits) -> np.ndarray:
    """Return whether each joint keeps within all limits from the start of its plan to the end,
    (..., n) bool.
    """
    q, v, a = plan.start
    step = h * limits.jerk
    peak = np.abs(plan.peak)
    kept = np.maximum(np.abs(a), peak) <= limits.acceleration
    kept &= (np.abs(plan.peak - a) <= plan.ramp * step) & (peak <= plan.release * step + TINY)
    kept &= np.maximum(np.abs(v), _find_peak_speed(plan, h)) <= limits.velocity
    end = evaluate_positions(plan, plan.ticks, h)
    # how far at most beyond start and end, where the velocity changes its sign
    overshoot = h * v * plan.ramp * (v * plan.peak > 0.0)
    kept &= np.minimum(q, end) + np.minimum(overshoot, 0.0) >= limits.lower
    kept &= np.maximum(q, end) + np.maximum(overshoot, 0.0) <= limits.upper
    return kept if limits.curve is None else kept & _is_below_curve(plan, h, limits.curve)


def _count_rising_ticks(plan: Plan) -> np.ndarray:
    """Return for how many ticks of the ramp the acceleration keeps the sign that it starts with."""
    a = plan.start.a
    slope = (plan.peak - a) / plan.ramp
    rising = np.where(
        a * plan.peak < 0.0, np.floor(np.abs(a) / np.maximum(np.abs(slope), TINY)), 0.0
    )
    return np.minimum(rising, plan.ramp)


def _find_peak_speed(plan: Plan, h: float) -> np.ndarray:
    """Return the greatest speed after a start whose acceleration still raises it."""
    _, v, a = plan.start
    slope = (plan.peak - a) / plan.ramp
    rising = _count_rising_ticks(plan)
    return np.abs(v + h * (rising * a + rising * (rising + 1.0) / 2.0 * slope))


def _is_below_curve(plan: Plan, h: float, curve: np.ndarray) -> np.ndarray:
    """Return whether a plan keeps to the velocities that depend on the position.

    A joint that moves towards a limit keeps to them where c (limit - q) - (v + offset)^2 is not
    negative. Between two samples, T apart, it is less than at both by at most T^2 / 8 times its
    greatest second derivative, c |a| + 2 (v + offset) |jerk|.
    """
    share = PHASE_SAMPLES.reshape(-1, *[1] * plan.ramp.ndim)
    phases = (
        share * plan.ramp,
        plan.ramp + share * plan.hold,
        plan.ramp + plan.hold + share * plan.release,
    )
    peak = _count_rising_ticks(plan)[None]  # so that the speed has no peak between samples
    ticks = np.sort(np.round(np.concatenate((np.zeros_like(peak), peak, *phases))), axis=0)
    q, v, a = evaluate_plan(plan, ticks, h)
    apart = np.diff(ticks, axis=0)
    T = h * np.where(apart > 1.0, apart, 0.0)  # no tick is between neighbours
    strongest = np.maximum(np.abs(a[1:]), np.abs(a[:-1]))
    kept = np.ones(plan.ramp.shape, bool)
    for sign, (limit, c, offset) in zip((-1.0, 1.0), curve):
        speed = sign * v
        room = c * sign * (limit - q) - (speed + offset) ** 2
        fastest = np.maximum(speed[1:], speed[:-1])
        between = (
            T / 8.0 * (T * c * strongest + 2.0 * (fastest + offset) * np.abs(np.diff(a, axis=0)))
        )
        least = np.minimum(room[1:], room[:-1]) - between
        kept &= np.logical_and.reduce((least >= 0.0) | (fastest <= TINY))
    return kept


def find_stopping_speed(distance: np.ndarray, step: np.ndarray, h: float) -> np.ndarray:
    """Return the greatest rate from which something can still stop within `distance`, lowered by
    `step` in every tick.

    Held for one tick, a rate u step (m - 1 < u <= m) covers u + (u - 1) + ... = m u - m (m - 1) / 2
    times h step.
    """
    D = distance / (h * step)
    m = np.maximum(np.ceil((np.sqrt(1.0 + 8.0 * D) - 1.0) / 2.0), 1.0)
    return step * (D / m + (m - 1.0) / 2.0)
