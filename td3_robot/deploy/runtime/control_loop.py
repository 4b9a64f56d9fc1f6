"""The control loop: reads the arm, asks the policy, and sends and logs what watchdog and filter let
through.
"""

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from td3_robot.deploy.arm import Arm, Reading, read_state
from td3_robot.deploy.errors import DeployError, summarize
from td3_robot.deploy.legacy import find_moved
from td3_robot.deploy.numbers import read_number
from td3_robot.deploy.runtime.latency_compensation import LatencyCompensator
from td3_robot.deploy.runtime.latency_estimator import LatencyEstimator
from td3_robot.deploy.runtime.motion_log import Log
from td3_robot.deploy.safety.watchdog import Watchdog

LATE = 0.1  # [s] after which a loop that was held up does not catch up any more
TIME_UP = "the time is up"  # reasons to end a run that are no failures
OPERATOR = "stopped by the operator"
_PRINT_PERIOD = 0.5  # [s] between lines of a loop that sends nothing

__getattr__ = functools.partial(find_moved, __name__)  # of names that were here


class AnsweringPolicy(Protocol):
    """A policy that is asked and answers later, so that the loop never waits; `PolicyProcess`.

    Attributes:
        failure: why the policy answers no more, in words; empty while it does.
    """

    failure: str

    def ask(self, reading: Reading, scene: Mapping[str, np.ndarray]) -> None:
        """Ask for the velocities in a state of the arm."""

    def answer(self) -> tuple[float, np.ndarray] | None:
        """Return the newest answer, or None: when it was asked for [s], and velocities (n,)."""


def run_control_loop(
    arm: Arm,
    policy: AnsweringPolicy,
    watch: Watchdog,
    scene: Mapping[str, np.ndarray],
    *,
    policy_rate: float,
    speed: float,
    seconds: float,
    log: Log,
    latency: float = 0.0,
    estimate: Callable[[float], None] | None = None,
    pressed: Callable[[], bool] = lambda: False,
    send: bool = True,
) -> str:
    """Run until the time is up or something is wrong, and then until the arm is at rest.

    Forces and torques that the arm feels are zeroed at its first state, in which it must touch
    nothing.

    Args:
        policy: answers with velocities for a state.
        watch: the watchdog, reset to where the arm is.
        scene: the goal and what else the policy is told.
        policy_rate: how often the policy is asked [Hz].
        seconds: when to stop the arm.
        log: gets a line in every tick.
        speed: share of the policy's velocities that is commanded.
        latency: from sending a velocity to a state that shows its effect [s]; the policy is asked
            about the state that its answer will meet, which follows from what was sent.
        estimate: called at the end with the latency that was estimated from the arm's motion [s].
            The loop compensates it, beginning with `latency`. None: `latency` is known.
        pressed: whether the operator wants it to stop.
        send: whether velocities really go to the arm.

    Returns:
        Why it ended, in one line.

    Raises:
        DeployError: an argument is out of its range; the arm is stopped as well.
    """
    newest = None  # reading
    felt_at_rest = None
    printed_at = -np.inf
    with _Stop(arm) as stopping:
        tick = 1.0 / arm.rate
        _require_positive(policy_rate=policy_rate, speed=speed, seconds=seconds)
        compensator = LatencyCompensator(watch.safe.robot, latency, arm.rate)
        estimator = LatencyEstimator(compensator, speed) if estimate else None
        started = received_at = next_tick = next_question = time.monotonic()
        while not (watch.reason and watch.at_rest):
            now = time.monotonic()
            if now - next_tick > LATE:
                watch.trip(f"the control loop was held up for {1e3 * (now - next_tick):.0f} ms")
                next_tick = now - tick
            reading = _take_reading(arm, watch)
            if reading is not None:
                felt_at_rest = reading.felt if felt_at_rest is None else felt_at_rest
                newest = reading.subtract(felt_at_rest)
                received_at = now
                if estimator and not watch.reason:
                    estimator.see(reading.q, reading.qd, now)
            if newest is not None and now >= next_question and not watch.reason:
                policy.ask(_predict_reading(compensator, newest, now, now - received_at), scene)
                next_question = max(next_question + 1.0 / policy_rate, now)
            if answer := policy.answer():
                asked_at, command = answer
                watch.command(speed * command, asked_at)
            if end := _find_end(policy, pressed, now - started > seconds):
                watch.trip(end)
            now = time.monotonic()  # what was stamped since the tick began is not ahead of it
            while next_tick <= now:  # as many ticks as have passed: what is sent belongs to now
                qd = watch(now)
                next_tick += tick
                why = watch.reason or watch.safe.refused
                log.step(next_tick - started, watch.safe.state.q, qd, watch.measured, why)
            if send:
                _call_or_trip("take a velocity", watch, arm.send, qd)
                compensator.record_command(qd, now)
            elif now - printed_at > _PRINT_PERIOD:
                printed_at = now
                print("would send", np.array2string(qd, precision=4, suppress_small=True))
            time.sleep(max(0.0, next_tick - time.monotonic()))
    if estimate:
        estimate(compensator.latency)
    return "; ".join(filter(None, (watch.reason, stopping.failure)))


def _require_positive(**given: float) -> None:
    for name, value in given.items():
        if not read_number(name, value) > 0.0:
            raise DeployError(f"{name} must be positive, got {value}")


class _Stop:
    """A block that stops the arm however it ends; an error that ended it is raised all the same.

    Attributes:
        failure: why the arm could not be stopped, in words; empty where it was.
    """

    def __init__(self, arm: Arm):
        self._arm = arm
        self.failure = ""

    def __enter__(self) -> "_Stop":
        return self

    def __exit__(self, *_) -> None:
        try:
            self._arm.stop()
        except Exception as error:  # a maker's own code
            self.failure = f"the arm did not confirm its stop: {summarize(error)}"


def _find_end(policy: AnsweringPolicy, pressed: Callable[[], bool], is_over: bool) -> str:
    """Return the reason to end the run, empty while there is none."""
    if policy.failure:
        return policy.failure
    if pressed():
        return OPERATOR
    return TIME_UP if is_over else ""


def _take_reading(arm: Arm, watch: Watchdog) -> Reading | None:
    """Return a new state of the arm, its turns counted, or None; the watchdog has seen it."""
    reading = _call_or_trip("be read", watch, read_state, arm)
    if reading is None:
        return None
    watch.see(reading.q, reading.qd, reading.stamp)
    return reading._replace(q=watch.count_turns(reading.q))


def _call_or_trip(action: str, watch: Watchdog, call: Callable[..., Any], *values) -> Any:
    """Call the arm; one that cannot answer is braked, as one that is silent."""
    try:
        return call(*values)
    except DeployError as error:
        watch.trip(str(error))
    except Exception as error:  # a maker's own code
        watch.trip(f"the arm cannot {action}: {summarize(error)}")
    return None


def _predict_reading(
    compensator: LatencyCompensator, reading: Reading, now: float, age: float
) -> Reading:
    """Predict from a state of this age [s] the state when a command sent now begins to act."""
    q, qd, gripper = compensator(reading.q, reading.qd, reading.gripper, now, age)
    return reading._replace(q=q, qd=qd, gripper=gripper)
