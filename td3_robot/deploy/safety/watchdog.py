"""A watchdog over the arm and the policy, which stops the arm where either cannot be trusted.

A watchdog that has tripped brakes by the safety filter's own plan, within every limit, says why in
words, and stays so until it is reset. Times are the caller's, in seconds of one clock that does not
jump (`time.monotonic`).
"""

import numpy as np

from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.numbers import UNREADABLE, read_number
from td3_robot.deploy.safety.safety_filter import SafetyFilter

# times its velocity limit that a joint may seem to move, since positions are measured and times are
# not
FASTER = 1.2
RESOLUTION = 0.005  # [rad or m] on top of it, for noise and for messages that come in bunches
AHEAD = 0.1  # [s] by which a time may be later than now, where a loop was held up in between
PERIODS = 1.5  # of commands, after which the next one is overdue
LEAST_COMMAND_AGE = 0.075  # [s] that commands of any rate may be late, by default
BEYOND = 0.02  # [rad or m] by which a measured position may be outside its limits


class Watchdog:
    """A watchdog for one run: give it states and commands, and call it in every tick.

    Args:
        safe: the filter, reset to where the arm is.
        state_age: the oldest that the newest state of the arm may be [s].
        command_age: the same for the policy's newest command [s]; by default one and a half periods
            of the filter's `command_rate`, at least 75 ms.
        following: how far the arm may be from where it was sent to, beside what it travels in
            `state_age` [rad or m].

    Attributes:
        reason: why it has tripped, in words; empty while all is well.
    """

    def __init__(
        self,
        safe: SafetyFilter,
        *,
        state_age: float = 0.05,
        command_age: float | None = None,
        following: float = 0.1,
    ):
        if not isinstance(safe, SafetyFilter):
            raise DeployError(f"safe must be a SafetyFilter, got {safe!r}")
        if command_age is None:
            command_age = max(LEAST_COMMAND_AGE, PERIODS / safe.command_rate)
        self.safe = safe
        self.state_age = _read_positive("state_age", state_age)
        self.command_age = _read_positive("command_age", command_age)
        self.following = _read_positive("following", following)
        self._fastest = safe.robot.limits.velocity
        self.reason = ""
        self._forget()

    def _forget(self) -> None:
        self._q = self._command = None
        self._seen = self._commanded = -np.inf

    def reset(self, q: np.ndarray, now: float) -> None:
        """Begin again, with the arm at rest at q (n,): the only way out once it has tripped.

        Raises:
            DeployError: the arm cannot start there, see `SafetyFilter.reset`.
        """
        self.safe.reset(q)
        self.reason = ""
        self._forget()
        self.see(q, np.zeros_like(self._fastest), now)
        self.command(np.zeros_like(self._fastest), now)

    def trip(self, reason: str) -> None:
        """Stop, and say why; the first reason stays."""
        self.reason = self.reason or reason or "stopped"

    def see(self, q: np.ndarray, qd: np.ndarray, stamp: float) -> None:
        """Take a state of the arm: positions and velocities (n,) measured at a time.

        Endless joints may be reported in any turn, see `count_turns`.
        """
        time = _read_time(stamp)
        if np.isnan(time):
            return self.trip(
                f"the arm reports a state whose time is no finite number, but {stamp!r}"
            )
        if why := self._find_fault(q, qd, time):
            return self.trip(why)
        if time > self._seen:
            self._q = self.count_turns(q)
            self._seen = time

    @property
    def measured(self) -> np.ndarray:
        """(n,) positions of the newest state that was taken, NaN before one [rad or m]."""
        return np.full_like(self._fastest, np.nan) if self._q is None else self._q

    def count_turns(self, q: np.ndarray) -> np.ndarray:
        """Return measured positions (n,) of endless joints in the turn of the newest state.

        Before one, in that which they were sent to; in a dry run only that moves on.
        """
        if not self._is_numeric(q):
            return q
        near = self.safe.state.q if self._q is None else self._q
        return self.safe.robot.limits.count_turns(np.array(q, float), near)

    def _find_fault(self, q: np.ndarray, qd: np.ndarray, time: float) -> str:
        """Return what cannot be true of a state, or an empty string."""
        limits = self.safe.robot.limits
        state = self.safe.state
        for name, value in (("position", q), ("velocity", qd)):
            if not self._is_numeric(value):
                return f"the arm reports a {name} that is no number for each of {limits.n} joints"
        reported = np.asarray(q, float)  # drivers return lists, or tensors of another library
        qd = np.asarray(qd, float)
        q = self.count_turns(q)
        for place in (reported, q):
            outside = np.maximum(limits.lower - place, place - limits.upper)
            if (outside > BEYOND).any():
                joint = int(outside.argmax())
                return (
                    f"the arm reports joint {joint + 1} at {place[joint]:.3f}, outside its limits"
                )
        if self._q is not None:
            most = FASTER * self._fastest
            passed = np.abs(q - self._q) - most * abs(time - self._seen) - RESOLUTION
            for beyond in (passed, np.abs(qd) - most - RESOLUTION):
                if (beyond > 0).any():
                    joint = int(beyond.argmax()) + 1
                    return f"the arm reports joint {joint} moving faster than it can"
        apart = np.abs(q - state.q) - self.following - np.abs(state.v) * self.state_age
        if (apart > 0).any():
            joint = int(apart.argmax()) + 1
            return f"joint {joint} is not where it was sent to, by more than {self.following:g}"
        return ""

    def _is_numeric(self, value: object) -> bool:
        """Return whether a value has a finite number for each joint."""
        try:
            numbers = np.asarray(value, float)
        except UNREADABLE:
            return False
        return numbers.shape == self._fastest.shape and bool(np.isfinite(numbers).all())

    def command(self, qd: np.ndarray, stamp: float) -> None:
        """Take a command (n,) of the policy [rad/s or m/s], made at a time."""
        if not self._is_numeric(qd):
            return self.trip(
                f"the policy's command is no number for each of {len(self._fastest)} joints"
            )
        time = _read_time(stamp)
        if np.isnan(time):
            return self.trip(
                f"the policy's command is of a time that is no finite number, but {stamp!r}"
            )
        if time >= self._commanded:
            self._command = np.array(qd, float)
            self._commanded = time

    def __call__(self, now: float) -> np.ndarray:
        """Return the velocities to send (n,) [rad/s or m/s]; once tripped, those of a stop."""
        time = _read_time(now)
        if np.isnan(time):  # no age would ever be too great
            self.trip(f"the time is no finite number, but {now}")
            return self.safe.brake()
        for who, what, age, most in (
            ("the arm", "state", time - self._seen, self.state_age),
            ("the policy", "command", time - self._commanded, self.command_age),
        ):
            if age > most:
                self.trip(f"{who} has sent no {what} for more than {most * 1e3:.0f} ms")
            if age < -AHEAD:
                self.trip(
                    f"{who} has sent a {what} whose time is {-age:.3g} s later than now: "
                    "its clock is another one, or this computer was held up"
                )
        # a state or command whose time is still to come would pass for new for as long
        self._seen = min(self._seen, time)
        self._commanded = min(self._commanded, time)
        return (
            self.safe.brake() if self.reason or self._command is None else self.safe(self._command)
        )

    @property
    def at_rest(self) -> bool:
        """True if all sent velocities are zero."""
        return not self.safe.state.v.any()


def _read_time(time: object) -> float:
    """Return a time as a plain number [s], which words can hold; NaN for one that is not finite."""
    try:
        number = read_number("time", time)
    except DeployError:
        return np.nan
    return number if np.isfinite(number) else np.nan


def _read_positive(name: str, value: object) -> float:
    number = read_number(name, value)
    if not 0 < number < np.inf:
        raise DeployError(f"{name} must be positive, got {number:g}")
    return number
