"""The loop: states in, commands of the policy, watchdog and filter, velocities out, every step
logged.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

import numpy as np

from td3_robot.deploy.arm import Arm, Reading, read_state
from td3_robot.deploy.errors import DeployError, summarize
from td3_robot.deploy.runtime.latency_compensation import LatencyCompensator
from td3_robot.deploy.runtime.latency_estimator import LatencyEstimator
from td3_robot.deploy.safety.watchdog import FASTER, RESOLUTION, Watchdog

CALM = 1.0  # [s] for which the arm has to be plausible and at rest before anything moves
AT_REST = 0.02  # [rad/s] below which a measured velocity is none
LATE = 0.1  # [s] after which a loop that was held up does not catch up any more
PATIENCE = 5.0  # [s] without a single state
TIME_UP = "the time is up"  # reasons to end a run that are no failures
OPERATOR = "stopped by the operator"
LOGGED = ("q", "sent", "measured")  # what a log has of each joint, see `Log.step`


class AnsweringPolicy(Protocol):
    """A policy that is asked and answers later, so that the loop never waits; `PolicyProcess`.

    Attributes:
        failure: why it answers no more, in words; empty while it does.
    """

    failure: str

    def ask(self, reading: Reading, scene: Mapping[str, np.ndarray]) -> None:
        """Put a question: what to do in this state."""

    def answer(self) -> tuple[float, np.ndarray] | None:
        """Return the newest answer, (when it was asked for [s], velocities (n,)), or None."""


def wait_for_calm_start(
    arm: Arm,
    watch: Watchdog,
    home: np.ndarray,
    region: float,
    patience: float = PATIENCE,
    calm: float = CALM,
) -> Reading:
    """Wait until the arm has been plausible, at rest and near the policy's start for a while.

    Args:
        home: (n,) where the policy starts; region: how far from there it may be, each joint [rad or
            m].
        patience: with silence [s]; calm: how long it has to be so [s].

    Raises:
        DeployError: it is not, in words.
    """
    begun = heard = time.monotonic()
    first = newest = None
    while newest is None or first is None or newest.stamp - first.stamp < calm:
        reading = read_state(arm)
        now = time.monotonic()
        if reading is not None and now - reading.stamp <= watch.state_age:
            reading = _count_turns(reading, watch, home if newest is None else newest.q)
            _require_rest(reading, newest, watch)
            if newest is None or reading.stamp - newest.stamp > watch.state_age:
                first = reading  # after a gap, in which nobody knows what the arm did, begin anew
            newest = reading
            heard = now
        elif now - heard > watch.state_age:
            first = newest = None  # a gap that lasts
        if now - heard > patience or now - begun > 10 * patience:
            raise DeployError(
                f"the arm has sent no state for {now - heard:.2f} s, "
                "or states with gaps all the time"
            )
        if reading is None:
            time.sleep(0.001)
    _require_near(newest.q, home, region)
    return newest


def _require_near(q: np.ndarray, home: np.ndarray, region: float) -> None:
    """Refuse to start from joint positions (n,) farther than `region` from home [rad or m]."""
    far = np.abs(q - home) - region
    if (far > 0).any():
        joint = int(far.argmax())
        raise DeployError(
            f"joint {joint + 1} is at {q[joint]:.3f} and the policy starts within {region:g} of "
            f"{home[joint]:.3f}: move the arm there by hand or with its own tools"
        )


def _count_turns(reading: Reading, watch: Watchdog, near: np.ndarray) -> Reading:
    """Return a state with its endless joints in the turn nearest to others (n,)."""
    limits = watch.safe.robot.limits  # without the filter's margin, which takes range from all
    if np.shape(reading.q) != np.shape(near) or not np.isfinite(reading.q).all():
        return reading  # refused later
    return reading._replace(q=limits.count_turns(reading.q, near))


def _require_rest(reading: Reading, before: Reading | None, watch: Watchdog) -> None:
    """Refuse a state of an arm that is not at rest, or cannot be."""
    limits = watch.safe.limits
    for name, value in (("position", reading.q), ("velocity", reading.qd)):
        if value.shape != limits.lower.shape or not np.isfinite(value).all():
            raise DeployError(
                f"the arm reports a {name} that is no number for each of {limits.n} joints"
            )
    if (np.abs(reading.qd) > AT_REST).any():
        raise DeployError(
            f"joint {int(np.abs(reading.qd).argmax()) + 1} moves already; "
            "start with the arm at rest"
        )
    if before is not None:
        passed = (
            np.abs(reading.q - before.q)
            - FASTER * limits.velocity * (reading.stamp - before.stamp)
            - RESOLUTION
        )
        if (passed > 0).any():
            raise DeployError(f"joint {int(passed.argmax()) + 1} jumps between states")


class Log:
    """A line of CSV for every velocity that is sent: time, positions that the arm is sent to,
    velocities sent, positions that the arm last reported, reason.

    A disk that is full stops no arm: what cannot be written is told once on stderr, and the log
    ends there.

    Raises:
        DeployError: the file cannot be begun.
    """

    def __init__(self, path: Path | None, joints: tuple[str, ...]):
        try:
            self._file: TextIO | None = (
                path.open("w", buffering=1, encoding="utf-8") if path else None
            )
        except OSError as error:
            raise DeployError(f"log {str(path)!r} cannot be written: {error.strerror}") from None
        names = [f"{kind}_{name}" for kind in LOGGED for name in joints]
        self._write(["time", *names, "reason"])

    def step(
        self, now: float, q: np.ndarray, qd: np.ndarray, measured: np.ndarray, reason: str
    ) -> None:
        """Write the line of one tick.

        Args:
            now: since the run began [s].
            q, qd: (n,) where the arm is sent to, and how fast [rad or m, rad/s or m/s].
            measured: (n,) positions that it last reported [rad or m].
            reason: why it is stopped or slowed; empty where it is not.
        """
        numbers = (f"{x:.9g}" for x in (*q, *qd, *measured))
        self._write([f"{now:.6f}", *numbers, reason.replace(",", ";")])

    def _write(self, cells: list[str]) -> None:
        if self._file:
            try:
                self._file.write(",".join(cells) + "\n")
            except OSError as error:
                why = f"the log ends here, it cannot be written: {error.strerror}"
                with contextlib.suppress(OSError):  # stderr may be on the same disk
                    print(why, file=sys.stderr)
                self.close()

    def close(self) -> None:
        """Finish the file."""
        file = self._file
        self._file = None
        if file:
            with contextlib.suppress(OSError):  # of what is still to be written: told already
                file.close()


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

    What the arm feels is zeroed at its first state: it is to touch nothing then.

    Args:
        policy: answers what to do in a state.
        watch: reset to where the arm is.
        scene: the goal and what else the policy is told.
        speed: share of the policy's velocities that is commanded.
        latency: from sending a velocity to a state that shows its effect [s]; the policy is asked
            about the state that its answer will meet, which follows from what was sent.
        estimate: called at the end with the latency that the arm's motion has shown; the policy is
            asked by that one, and `latency` is its first guess. None: the latency is known.
        pressed: whether the operator wants it to stop.
        send: whether velocities really go to the arm.

    Returns:
        Why it ended, in one line.
    """
    tick = 1.0 / arm.rate
    newest = None
    compensator = LatencyCompensator(watch.safe.robot, latency, arm.rate)
    estimator = LatencyEstimator(compensator, speed) if estimate else None
    zero = None  # what is felt at rest
    begun = came = due = ask_at = time.monotonic()
    said = -np.inf
    stopped = _Stop(arm)
    with stopped:
        while not (watch.reason and watch.at_rest):
            now = time.monotonic()
            if now - due > LATE:
                watch.trip(f"the control loop was held up for {1e3 * (now - due):.0f} ms")
                due = now - tick
            reading = _take_reading(arm, watch)
            if reading is not None:
                zero = reading.felt if zero is None else zero
                newest = reading.subtract(zero)
                came = now
                if estimator and not watch.reason:
                    estimator.see(reading.q, reading.qd, now)
            if newest is not None and now >= ask_at and not watch.reason:
                policy.ask(_predict_reading(compensator, newest, now, now - came), scene)
                ask_at = max(ask_at + 1.0 / policy_rate, now)
            if answer := policy.answer():
                watch.command(speed * answer[1], answer[0])
            if end := _find_end(policy, pressed, now - begun > seconds):
                watch.trip(end)
            now = time.monotonic()  # what was stamped since the tick began is not ahead of it
            while due <= now:  # as many ticks as have passed: what is sent belongs to now
                qd = watch(now)
                due += tick
                why = watch.reason or watch.safe.refused
                log.step(due - begun, watch.safe.state.q, qd, watch.measured, why)
            if send:
                _call_or_trip("take a velocity", watch, arm.send, qd)
                compensator.record_command(qd, now)
            elif now - said > 0.5:
                said = now
                print("would send", np.array2string(qd, precision=4, suppress_small=True))
            time.sleep(max(0.0, due - time.monotonic()))
    if estimate:
        estimate(compensator.latency)
    return "; ".join(filter(None, (watch.reason, stopped.failure)))


class _Stop:
    """Stop the arm however the block ends; the error that ended it is the one that is raised.

    Attributes:
        failure: why the arm could not be stopped, in words; empty where it was.
    """

    def __init__(self, arm: Arm):
        self._arm = arm
        self.failure = ""

    def __enter__(self) -> None:
        pass

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
