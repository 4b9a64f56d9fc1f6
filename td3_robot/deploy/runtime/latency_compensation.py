"""Prediction of the state in which the next command begins to act, from the commands that are still
on their way to the arm.

The measured state is rolled over the velocities that were sent in the last `latency` seconds, by
the step of the simulator's kinematic engine (envs/simulation/kinematic.py);
docs/explanation/latency-compensation.md explains the method. Times are the caller's, in seconds of
one clock that does not jump (`time.monotonic`).
"""

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.legacy import keep_old_names
from td3_robot.deploy.numbers import read_number, read_numbers
from td3_robot.deploy.robot.description import Robot
from td3_robot.deploy.robot.limits import clamp
from td3_robot.deploy.safety.stop_trajectory import find_stopping_speed

LONGEST = 0.5  # [s] of latency
# [s] beyond the latency for which velocities are remembered, for states that are not the newest
KEPT = 0.1
BEFORE = 10.0  # [s] for which an arm has been at rest when it is sent its first velocity

# What the fingers do in a step: (q before, driver coordinate before, q after, driver coordinate
# after with nothing between the fingers) -> driver coordinate after.
GripperModel = Callable[[np.ndarray, float, np.ndarray, float], float]


def close_freely(q: np.ndarray, gripper: float, q_after: np.ndarray, free: float) -> float:
    """Return the driver coordinate of a gripper with nothing between its fingers."""
    return free


# What is told of a step: (q before, q after the whole step, share of the step that is made).
StepObserver = Callable[[np.ndarray, np.ndarray, float], None]


def ignore_step(q: np.ndarray, q_after: np.ndarray, share: float) -> None:
    """Do nothing after a step."""


def check_latency(seconds: float) -> float:
    """Check a latency [s], and return it.

    Raises:
        DeployError: it is not from 0 to `LONGEST`.
    """
    try:
        number = read_number("latency", seconds)
    except DeployError:
        number = np.nan
    if not 0.0 <= number <= LONGEST:
        raise DeployError(f"latency must be from 0 to {LONGEST:g} s, got {seconds}")
    return number


@keep_old_names(sent="record_command")
class LatencyCompensator:
    """A predictor of one motion of an arm, from the commands that the arm is sent.

    Args:
        robot: the arm.
        latency: from sending a velocity to a state that shows its effect [s].
        rate: of the steps of the prediction [Hz]; that of the commands.

    Attributes:
        memory: how long commands are kept [s].

    Raises:
        DeployError: the latency is not from 0 to `LONGEST`, or the rate is not positive.
    """

    def __init__(self, robot: Robot, latency: float, rate: float):
        self.robot = robot
        self.latency = check_latency(latency)
        self.rate = read_number("rate", rate)
        if not 0.0 < self.rate < np.inf:
            raise DeployError(f"rate must be positive, got {self.rate:g}")
        self.memory = self.latency + KEPT
        self.reset()

    def reset(self) -> None:
        """Begin a motion: the arm is at rest, and nothing is on its way."""
        self._sent: deque[tuple[float, np.ndarray]] = deque()

    @property
    def has_sent(self) -> bool:
        """True once a command was recorded."""
        return bool(self._sent)

    def record_command(self, command: np.ndarray, now: float) -> None:
        """Record the command that the arm is sent now, in force until the next.

        It replaces a command of this time, or of a later one.

        Args:
            command: (n,) velocities [rad/s or m/s]; or (n + 1,), and the gripper's opening after
                them, 1 is open.

        Raises:
            DeployError: the command is no such numbers, or the time is none.
        """
        n = self.robot.limits.n
        size = n + 1 if np.shape(command) == (n + 1,) else n
        command = read_numbers("what was sent", command, (size,)).copy()
        now = read_numbers("now", now, (1,)).item()
        while self._sent and self._sent[-1][0] >= now:
            self._sent.pop()
        if not self._sent:
            self._sent.append((now - BEFORE, np.where(np.arange(len(command)) < n, 0.0, 1.0)))
        self._sent.append((now, command))
        while self._sent[1][0] <= now - self.memory:
            self._sent.popleft()

    def __call__(
        self,
        q: np.ndarray,
        qd: np.ndarray,
        gripper: float | None,
        now: float,
        age: float = 0.0,
        grip: GripperModel = close_freely,
        see_step: StepObserver = ignore_step,
    ) -> tuple[np.ndarray, np.ndarray, float | None]:
        """Predict the state in which a velocity that is sent now begins to act.

        Args:
            q, qd: (n,) measured joint positions [rad or m] and velocities [rad/s or m/s].
            gripper: the gripper's driver coordinate [rad or m]; None where it is not known.
            now: the time [s].
            age: how long ago the measured state came in [s].
            grip: returns the driver coordinate after each step.
            see_step: called after each step.

        Returns:
            q, qd and gripper at that time.

        Raises:
            DeployError: the state is no such numbers, or a time is none.
        """
        n = self.robot.limits.n
        q = read_numbers("q", q, (n,))
        qd = read_numbers("qd", qd, (n,))
        now = read_numbers("now", now, (1,)).item()
        age = read_numbers("age", age, (1,)).item()
        if self._sent and self.latency + age > 0.0:
            for command, share in self._iter_pending(now, self.latency + age):
                q_before = q
                (q_after, qd_after, gripper_after) = self.step(q, qd, gripper, command)
                q = self._interpolate_step(q, qd, q_after, qd_after, share)
                qd = qd_after
                if gripper is not None and gripper_after is not None:
                    free = gripper + share * (gripper_after - gripper)
                    gripper = grip(q_before, gripper, q, free)
                see_step(q_before, q_after, share)
        return q, qd, gripper

    def _interpolate_step(
        self, q: np.ndarray, qd: np.ndarray, q_after: np.ndarray, qd_after: np.ndarray, share: float
    ) -> np.ndarray:
        """Return q after a share of a step, as `ArmEnv` interpolates it."""
        limits = self.robot.limits
        half = 0.5 / self.rate

        def clamp_to_limits(x):
            return clamp(x, limits.lower, limits.upper)

        if share == 1.0:
            return q_after
        ahead = clamp_to_limits(q + half * qd)  # half a period ahead, as the simulator observes
        ahead_after = clamp_to_limits(q_after + half * qd_after)
        return clamp_to_limits(ahead + share * (ahead_after - ahead) - half * qd_after)

    def _iter_pending(self, now: float, ahead: float) -> Iterator[tuple[np.ndarray, float]]:
        """Yield the mean command (n,) or (n + 1,) of each step of the next `ahead` seconds, and the
        share of a step that it lasts, which is below 1 in the last one alone.

        What acts in the next `ahead` seconds was sent in the last `ahead` seconds.
        """
        steps = round(ahead * self.rate, 6)
        bounds = np.append(np.arange(int(steps) + 1.0), steps)[: 1 + int(np.ceil(steps))]
        sent_at = bounds / self.rate - ahead  # from now [s]
        duration = np.diff(sent_at)
        means = np.diff(self.integrate(now, sent_at), axis=0) / duration[:, None]
        return zip(means, duration * self.rate)

    def integrate(self, now: float, times: np.ndarray) -> np.ndarray:
        """Return the integral of the commands, (m, n) or (m, n + 1), up to times (m,) from now [s].

        It begins at the oldest command that is kept.
        """
        sent_at = np.array([time for time, _ in self._sent]) - now
        commands = np.array([command for _, command in self._sent])
        sums = np.cumsum(commands[:-1] * np.diff(sent_at)[:, None], axis=0)
        sums = np.concatenate((np.zeros_like(commands[:1]), sums))  # up to each command's start
        in_force = np.maximum(np.searchsorted(sent_at, times, "right") - 1, 0)  # index at each time
        return sums[in_force] + commands[in_force] * (times - sent_at[in_force])[:, None]

    def step(
        self, q: np.ndarray, qd: np.ndarray, gripper: float | None, command: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float | None]:
        """Return the state after one step of the simulator's engine; q may be (..., n)."""
        limits = self.robot.limits
        h = 1.0 / self.rate
        n = q.shape[-1]
        change = limits.acceleration * h
        half_way = 0.5 * h * qd
        slowest = -find_stopping_speed(np.maximum(q + half_way - limits.lower, 0.0), change, h)
        fastest = find_stopping_speed(np.maximum(limits.upper - q - half_way, 0.0), change, h)
        low, high = (clamp(qd + sign * change, slowest, fastest) for sign in (-1.0, 1.0))
        qd_before = qd
        qd = clamp(clamp(command[..., :n], -limits.velocity, limits.velocity), low, high)
        q = clamp(q + 0.5 * h * (qd_before + qd), limits.lower, limits.upper)
        if gripper is not None and len(command) > n:
            closed, opened = self.robot.stroke
            missing = closed + float(command[n]) * (opened - closed) - gripper
            most = self.robot.gripper_speed * h
            gripper = gripper + min(max(missing, -most), most)
        return q, qd, gripper
