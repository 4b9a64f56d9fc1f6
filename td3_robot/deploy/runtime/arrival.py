"""Measure where an arm came to rest, and whether that counts as having reached its goal."""

from typing import NamedTuple

import numpy as np

from td3_robot.deploy.arm import Arm, Reading
from td3_robot.deploy.planning.inverse_kinematics import find_pose_error
from td3_robot.deploy.robot.description import Robot

EVERY = 0.02  # [s] between two states that are kept
STAY = 1.0  # [s] within its tolerances, after which an arm has not only passed its goal


class Arrival(NamedTuple):
    """The place at which an arm came to rest.

    Attributes:
        position: (3,) of the TCP in the base frame [m].
        distance: from the goal's position [m].
        turn: from its orientation [rad]; 0 for a goal that is a position.
        reached: whether both are within the tolerances.
        seconds: if so, from the first state to when they were for good.
        stayed: if it stayed within them and then left, from when to when.
    """

    position: np.ndarray
    distance: float
    turn: float
    reached: bool
    seconds: float
    stayed: tuple[float, float] | None = None


class RecordedArm:
    """An arm whose states are kept, one every 20 ms and the newest; otherwise as the arm itself.

    States with another number of joints than the first are not kept; the watchdog refuses them.
    """

    def __init__(self, arm: Arm):
        self._arm = arm
        self.rate = arm.rate
        self.latency = arm.latency
        self.send = arm.send
        self.stop = arm.stop
        self._kept: list[tuple[float, np.ndarray]] = []
        self._newest: Reading | None = None

    def read(self) -> Reading | None:
        """Read the arm, and keep its state."""
        reading = self._arm.read()
        first = self._newest
        if reading is not None and (first is None or np.shape(reading.q) == np.shape(first.q)):
            self._newest = reading
            if not self._kept or reading.stamp >= self._kept[-1][0] + EVERY:
                self._kept.append((reading.stamp, reading.q))
        return reading

    def forget(self) -> None:
        """Begin again: what came before is no part of the motion."""
        self._kept.clear()

    def measure_arrival(
        self, robot: Robot, goal: np.ndarray, tolerance: float, rotation_tolerance: float = np.inf
    ) -> Arrival | None:
        """Measure where the arm came to rest; None if it sent no state.

        Args:
            robot: its kinematics.
            goal: (3,) a position [m], or (7,) a position and a unit quaternion wxyz.
            tolerance: distance that counts as reached [m].
            rotation_tolerance: angle likewise [rad].
        """
        if self._newest is None or not np.isfinite(self._newest.q).all():
            return None
        states = [*self._kept, (self._newest.stamp, self._newest.q)]
        times = np.array([time for time, _ in states])
        poses = robot.chain.frames(np.array([q for _, q in states]))[:, -1]
        error = find_pose_error(poses, goal)
        distance = np.linalg.norm(error[:, :3], axis=1)
        turn = np.linalg.norm(error[:, 3:], axis=1)
        within = (distance <= tolerance) & (turn <= rotation_tolerance)
        outside = np.flatnonzero(~within)
        arrived = times[min(outside[-1] + 1, len(times) - 1)] if len(outside) else times[0]
        return Arrival(
            poses[-1, :3, 3],
            float(distance[-1]),
            float(turn[-1]),
            bool(within[-1]),
            float(arrived - times[0]),
            _find_stay(times - times[0], within),
        )


def _find_stay(times: np.ndarray, within: np.ndarray) -> tuple[float, float] | None:
    """Return between which times an arm that is not within its tolerances last stayed there."""
    inside = np.flatnonzero(within)
    if within[-1] or not len(inside):
        return None
    last = inside[-1]
    outside = np.flatnonzero(~within[:last])
    first = outside[-1] + 1 if len(outside) else 0
    if times[last] - times[first] < STAY:
        return None
    return float(times[first]), float(times[last])
