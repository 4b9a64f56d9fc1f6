"""The latency of an arm: from sending a velocity to a state that shows its effect."""

import contextlib
import time

import numpy as np

from td3_robot.deploy.arm import Arm, Reading, read_state
from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.numbers import read_number
from td3_robot.deploy.robot.description import Robot
from td3_robot.deploy.safety.safety_filter import SafetyFilter
from td3_robot.deploy.safety.watchdog import Watchdog

SILENCE = 0.1  # [s] without a state after which the arm is braked
FIRST = 5.0  # [s] for the first state, which ROS 2 takes a while to find
SETTLED = 0.6  # of the time, after which the arm counts as moving steadily
STEADY = 0.01  # of the speed, by which what is sent may differ from it then
# share of the commanded way that a joint has to have made in the end; one with more latency needs
# more time
FOLLOWED = 0.5


def measure_latency(
    arm: Arm, robot: Robot, joint: int = 0, speed: float = 0.1, seconds: float = 1.0
) -> float:
    """Measure delays and servo lag together: move one joint, at rest before, at a constant speed.

    The arm is watched as in `run_control_loop`, and is braked to rest whatever ends this, Ctrl-C
    included.

    Args:
        joint: number of the joint, from 0; there has to be room for `speed` times `seconds` above
            where it is.
        speed: of the joint, above 0 [rad/s or m/s].
        seconds: how long it moves.

    Returns:
        The latency, 0 or more; the median over the steady part [s].

    Raises:
        DeployError: an argument cannot be, no state comes or one that cannot be, the arm cannot
            start where it is, the speed cannot be held there, or the joint does not follow.
    """
    joint_number = read_number("joint", joint)
    if joint_number not in range(robot.limits.n):
        raise DeployError(f"joint must be one of 0 to {robot.limits.n - 1}, got {joint}")
    joint = int(joint_number)
    speed = read_number("speed", speed)
    seconds = read_number("seconds", seconds)
    if not 0 < speed < np.inf:
        raise DeployError(f"speed must be above 0, since the joint is moved up, got {speed:g}")
    if not 0 < seconds < np.inf:
        raise DeployError(f"seconds must be above 0, got {seconds:g}")
    watch = Watchdog(
        SafetyFilter(robot, arm.rate, arm.rate), state_age=SILENCE, command_age=SILENCE
    )
    start = _wait_for_state(arm)
    watch.reset(start.q, time.monotonic())
    try:
        lags, commanded, travelled = _move_joint(arm, watch, joint, speed, seconds)
    except BaseException:
        with contextlib.suppress(Exception):  # what went wrong first is what counts
            _brake(arm, watch)
        raise
    _brake(arm, watch)
    if watch.reason:
        raise DeployError(watch.reason)
    if not lags or not commanded > 0 or not travelled >= FOLLOWED * commanded:
        raise DeployError(
            f"joint {joint + 1} was sent {commanded:.3f} far and went {travelled:.3f}: "
            f"it does not follow, or later than after {(1 - FOLLOWED) * seconds:g} s"
        )
    # clocks of two processes that differ by a fraction of a millisecond may show less than none
    return max(0.0, float(np.median(lags)) / speed)


def _wait_for_state(arm: Arm) -> Reading:
    started = time.monotonic()
    while time.monotonic() < started + FIRST:
        if reading := read_state(arm):
            return reading
        time.sleep(0.001)
    raise DeployError("the arm sends no states")


def _move_joint(
    arm: Arm, watch: Watchdog, joint: int, speed: float, seconds: float
) -> tuple[list[float], float, float]:
    """Move a joint at a constant speed.

    Returns:
        How far the joint was behind its commands at each state of the steady part, how far it was
        commanded to go, and how far it went [rad or m].
    """
    velocities = np.zeros(watch.safe.limits.n)
    velocities[joint] = speed
    start = watch.safe.state.q[joint]
    commanded = travelled = 0.0
    lags: list[float] = []
    started = sent_at = time.monotonic()
    while sent_at < started + seconds and not watch.reason:
        watch.command(velocities, sent_at)
        arm.send(qd := watch(sent_at))
        time.sleep(1.0 / arm.rate)
        now = time.monotonic()
        commanded = commanded + (now - sent_at) * qd[joint]
        sent_at = now
        steady = now > started + SETTLED * seconds
        if steady and abs(qd[joint] - speed) > STEADY * abs(speed):
            why = watch.safe.refused or "a limit is near"
            watch.trip(f"joint {joint + 1} is slowed down to {qd[joint]:.3g} of {speed:g}: {why}")
        if reading := read_state(arm):
            watch.see(reading.q, reading.qd, now)
            travelled = watch.count_turns(reading.q)[joint] - start
            lags += [commanded - travelled] if steady else []
    return lags, commanded, travelled


def _brake(arm: Arm, watch: Watchdog) -> None:
    while not watch.at_rest:
        arm.send(watch.safe.brake())
        time.sleep(1.0 / arm.rate)
