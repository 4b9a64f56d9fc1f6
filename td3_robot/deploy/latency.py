"""How late an arm is: what passes from sending a velocity to a state that shows its effect."""

import time

import numpy as np

from td3_robot.deploy.arm import Arm
from td3_robot.deploy.description import Robot
from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.safety_filter import SafetyFilter

SILENCE = 0.1  # [s] without a state after which the arm is braked
SETTLED = 0.6  # of the time, after which the arm counts as moving steadily


def measured_latency(arm: Arm, robot: Robot, joint: int = 0, speed: float = 0.1, seconds: float = 1.0) -> float:
    """Move one joint, at rest before, at a constant speed, and see how far it is behind: delays and servo lag together.

    Args:
        joint: which, from 0; there has to be room for `speed` times `seconds` above where it is.
        speed: [rad/s or m/s]; seconds: for how long.

    Returns:
        [s]; the median over the steady part.

    Raises:
        DeployError: no state comes, or the arm cannot start where it is.
    """
    safe, wanted = SafetyFilter(robot, arm.rate, arm.rate), np.zeros(robot.limits.n)
    wanted[joint] = speed
    start, begun = None, time.monotonic()
    while start is None and time.monotonic() < begun + SILENCE:
        start = arm.read()
        time.sleep(0.001)
    if start is None:
        raise DeployError("the arm sends no states")
    safe.reset(start.q)
    gone, qd, behind = 0.0, wanted * 0.0, []
    begun = then = heard = time.monotonic()
    while not (stopping := then > min(begun + seconds, heard + SILENCE)) or not _at_rest(safe):
        arm.send(qd := safe.brake() if stopping else safe(wanted))
        time.sleep(1.0 / arm.rate)
        now = time.monotonic()
        gone, then = gone + (now - then) * qd[joint], now
        if reading := arm.read():
            heard = now
            if begun + SETTLED * seconds < now < begun + seconds:
                behind.append(gone - (reading.q[joint] - start.q[joint]))
    if heard + SILENCE < then:
        raise DeployError(f"the arm has sent no state for more than {1e3 * SILENCE:.0f} ms")
    return float(np.median(behind)) / speed


def _at_rest(safe: SafetyFilter) -> bool:
    return not safe.state.v.any()
