"""Endless joints reported in (-pi, pi] are counted in turns: watchdog, start check, loop."""

import time

import numpy as np
import pytest

from td3_robot.deploy import DeployError, Robot, SafetyFilter, Watchdog
from td3_robot.deploy.arm import Reading
from td3_robot.deploy.runtime.calm_start import wait_for_calm_start

ROBOT = Robot.load("ur5e")  # its first joint has the limits of an endless one, +-2 pi


def wrap(q: np.ndarray) -> np.ndarray:
    """Return positions in [-pi, pi), as drivers of endless joints report them."""
    return (q + np.pi) % (2.0 * np.pi) - np.pi


class RestingArm:
    """An arm that stands still and reports positions one after the other."""

    rate = 100.0
    latency = 0.0

    def __init__(self, *reported: np.ndarray):
        self._reported = reported
        self._count = 0

    def read(self) -> Reading:
        q = self._reported[self._count % len(self._reported)]
        self._count += 1
        return Reading(q, np.zeros_like(q), None, time.monotonic())

    def send(self, qd: np.ndarray) -> None:
        raise AssertionError("nothing is sent before the start")

    def stop(self) -> None:
        pass


def watch_at(q: np.ndarray) -> Watchdog:
    watch = Watchdog(SafetyFilter(ROBOT, 100.0, margin=0.01))  # as run_policy.py has it
    watch.reset(q, 0.0)
    return watch


@pytest.mark.parametrize("speed", [0.5, -0.5])
def test_the_watchdog_follows_a_joint_past_half_a_turn(speed):
    q = ROBOT.home.copy()
    q[0] = 3.0 * np.sign(speed)
    watch = watch_at(q)
    command = np.array([speed, 0, 0, 0, 0, 0])
    now = 0.0
    for _ in range(400):
        now += 0.01
        watch.command(command, now)
        watch(now)
        sent = watch.safe.state.q.copy()
        reported = sent.copy()
        reported[0] = wrap(sent[:1])[0]
        watch.see(reported, watch.safe.state.v, now)
        assert not watch.reason
        np.testing.assert_allclose(watch.count_turns(reported), sent, atol=1e-9)
    assert abs(sent[0]) > 4.5


def test_an_arm_that_is_sent_nothing_stays_in_its_turn():
    """In a dry run what it would be sent to goes on without it, here beyond half a turn."""
    safe = SafetyFilter(ROBOT, 100.0, margin=0.01)
    watch = Watchdog(safe, following=100.0 * np.pi)  # as run_policy.py has it
    watch.reset(ROBOT.home, 0.0)
    now = 0.0
    while safe.state.q[0] < 1.2 * np.pi and not watch.reason:
        now += 0.01
        watch.command(np.array([1.0, 0, 0, 0, 0, 0]), now)
        watch(now)
        watch.see(ROBOT.home, np.zeros(6), now)
        np.testing.assert_array_equal(watch.count_turns(ROBOT.home), ROBOT.home)
    assert not watch.reason


def test_a_jump_of_less_than_a_turn_still_trips():
    watch = watch_at(ROBOT.home)
    jumped = ROBOT.home + np.array([1.0, 0, 0, 0, 0, 0])
    watch.see(jumped + np.array([2.0 * np.pi, 0, 0, 0, 0, 0]), np.zeros(6), 0.01)
    assert "joint 1" in watch.reason


def test_joints_with_ends_are_not_counted():
    elbow = 2  # +-pi
    assert ROBOT.limits.upper[elbow] - ROBOT.limits.lower[elbow] < 4.0 * np.pi - 1e-3
    q = ROBOT.home.copy()
    q[elbow] += 2.0 * np.pi
    np.testing.assert_array_equal(ROBOT.limits.count_turns(q, ROBOT.home), q)
    watch = watch_at(ROBOT.home)
    watch.see(q, np.zeros(6), 0.01)
    assert "joint 3" in watch.reason and "outside its limits" in watch.reason


def test_a_report_beyond_the_limits_trips_whatever_its_turn():
    watch = watch_at(ROBOT.home)
    watch.see(ROBOT.home + np.array([4.0 * np.pi, 0, 0, 0, 0, 0]), np.zeros(6), 0.01)
    assert "outside its limits" in watch.reason


def test_a_start_one_turn_off_is_taken_and_one_elsewhere_refused():
    home = ROBOT.home.copy()
    home[0] = -0.1
    off = home + np.array([2.0 * np.pi, 0, 0, 0, 0, 0])
    watch = watch_at(home)
    start = wait_for_calm_start(RestingArm(off), watch, home, 0.4, calm=0.05)
    np.testing.assert_allclose(start.q, home, atol=1e-12)
    with pytest.raises(DeployError, match="joint 1 is at"):
        wait_for_calm_start(RestingArm(off + [1.0, 0, 0, 0, 0, 0]), watch, home, 0.4, calm=0.05)


def test_an_arm_at_rest_on_the_seam_does_not_jump():
    home = ROBOT.home.copy()
    home[0] = np.pi
    seam = [home.copy(), home.copy()]
    seam[0][0] = np.pi - 1e-4
    seam[1][0] = -np.pi + 1e-4
    start = wait_for_calm_start(RestingArm(*seam), watch_at(home), home, 0.4, calm=0.05)
    assert start.q[0] == pytest.approx(np.pi, abs=2e-4)
