"""LeRobot's arms, by a stand-in for the documented interface of its `Robot`: positions in degrees,
a servo that lags and hangs, and an encoder's steps.
"""

import sys
import time
import types

import numpy as np
import pytest

from td3_robot.deploy import DeployError, Robot, SafetyFilter, Watchdog
from td3_robot.deploy.adapters import FOLLOWING, connect
from td3_robot.deploy.adapters.lerobot_arm import STEP, LeRobotArm
from td3_robot.deploy.runtime.calm_start import wait_for_calm_start
from td3_robot.deploy.runtime.control_loop import run_control_loop
from td3_robot.deploy.runtime.motion_log import Log

PANDA = Robot.load("panda")
MOTORS = (*PANDA.joints, "gripper")


class Follower:
    """What https://huggingface.co/docs/lerobot/integrate_hardware asks of a robot.

    Args:
        lag: time constant of the servos [s].
        sag: by how much the second joint hangs below its target [rad].
    """

    def __init__(self, lag=0.05, sag=0.0, is_calibrated=True):
        self.action_features = {f"{motor}.pos": float for motor in MOTORS}
        self.is_calibrated = is_calibrated
        self.calls = []
        self.sent = []
        self.broken = False
        self._lag = lag
        self._sag = sag * np.eye(7)[1]
        self._q = self._target = PANDA.home
        self._then = time.monotonic()

    def connect(self, calibrate=True):
        self.calls.append(("connect", calibrate))

    def disconnect(self):
        self.calls.append(("disconnect",))

    def _move(self):
        now = time.monotonic()
        share = -np.expm1(-(now - self._then) / self._lag)
        self._q = self._q + share * (self._target - self._sag - self._q)
        self._then = now

    def get_observation(self):
        if self.broken:
            raise ConnectionError("Failed to sync read 'Present_Position' on ids=[1, 2, 3]")
        self._move()
        degrees = np.rad2deg(np.round(self._q / STEP) * STEP)
        return {f"{name}.pos": value for name, value in zip(MOTORS, (*degrees, 50.0))} | {
            "wrist": np.zeros((4, 4, 3), np.uint8)
        }

    def send_action(self, action):
        self._move()
        self._target = np.deg2rad([action[f"{name}.pos"] for name in PANDA.joints])
        self.sent.append(action)
        return action


class Servoing:
    """A policy that goes to a goal by proportional velocities."""

    failure = ""

    def __init__(self, goal):
        self._goal = goal
        self._answer = None

    def ask(self, reading, scene):
        self._answer = (time.monotonic(), np.clip(3.0 * (self._goal - reading.q), -0.5, 0.5))

    def answer(self):
        answer = self._answer
        self._answer = None
        return answer


def run(robot, goal, seconds=2.5, following=FOLLOWING["so101"]):
    arm = LeRobotArm(robot, PANDA.joints)
    watch = Watchdog(SafetyFilter(PANDA, arm.rate, 20.0), following=following)
    start = wait_for_calm_start(arm, watch, PANDA.home, 0.1, calm=0.2)
    watch.reset(start.q, start.stamp)
    how = {"policy_rate": 20.0, "speed": 1.0, "seconds": seconds, "log": Log(None, ())}
    return run_control_loop(arm, Servoing(goal), watch, {}, **how)


def test_a_policy_drives_it_to_a_goal_behind_the_filter_although_it_hangs():
    """The policy sees where the joint is, and what it integrates makes up for the weight."""
    robot = Follower(sag=0.08)
    robot._target = PANDA.home + robot._sag
    goal = PANDA.home + 0.2
    assert run(robot, goal) == "the time is up"
    assert np.abs(robot._q - goal).max() < 0.02
    assert robot.calls == [("connect", False), ("disconnect",)]
    assert all(set(action) == {f"{name}.pos" for name in PANDA.joints} for action in robot.sent)
    jumps = np.diff([[*action.values()] for action in robot.sent[1:]], axis=0)
    assert np.abs(np.deg2rad(jumps)).max() < 0.5 * 0.1  # no more than a late tick's share of it


def test_an_arm_that_is_blocked_is_stopped():
    robot = Follower(lag=1e6)
    assert "is not where it was sent to, by more than 0.3" in run(robot, PANDA.home + 0.8)


def test_a_bus_that_fails_ends_the_run_with_its_words():
    robot = Follower()
    get_observation = robot.get_observation
    until = time.monotonic() + 0.6
    robot.get_observation = lambda: (
        setattr(robot, "broken", time.monotonic() > until) or get_observation()
    )
    ended = run(robot, PANDA.home + 0.1)
    assert ended.startswith("the arm cannot be read: ") and "Present_Position" in ended
    assert robot.calls[-1] == ("disconnect",)


def test_velocities_are_integrated_and_states_differentiated(monkeypatch):
    now = [10.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    robot = Follower(lag=1e-6)
    arm = LeRobotArm(robot, PANDA.joints)
    qd = np.linspace(-0.4, 0.4, 7)
    first = arm.read()
    assert arm.read() is None and not first.qd.any()  # a state a period
    for _ in range(20):
        arm.send(qd)
        now[0] += 0.02
        reading = arm.read()
    target = np.deg2rad([*robot.sent[-1].values()])
    assert np.allclose(target, first.q + 20 * 0.02 * qd)
    assert np.abs(reading.q - target).max() <= STEP / 2 + 1e-9
    assert np.abs(reading.qd - qd).max() < 2 * STEP / 0.1 and reading.qd[3] == 0.0
    arm.stop()
    assert np.allclose(np.deg2rad([*robot.sent[-1].values()]), reading.q, atol=STEP)


def test_an_encoder_that_flickers_is_at_rest(monkeypatch):
    now = [10.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    robot = Follower()
    arm = LeRobotArm(robot, PANDA.joints)
    for number in range(30):
        robot._q = robot._target = PANDA.home + (number % 2) * STEP
        now[0] += 0.025
        assert not arm.read().qd.any()


def test_what_cannot_be_driven_is_refused_in_one_line():
    with pytest.raises(DeployError, match="no motor 'elbow'; its motors are panda_joint1, "):
        LeRobotArm(Follower(), ("panda_joint1", "elbow"))
    robot = Follower(is_calibrated=False)
    with pytest.raises(DeployError, match="not calibrated: run lerobot-calibrate first"):
        LeRobotArm(robot, PANDA.joints)
    assert robot.calls[-1] == ("disconnect",)


@pytest.mark.parametrize("place", ["so_follower", "so101_follower"])
def test_an_so101_is_made_by_its_port_and_calibration(place, monkeypatch):
    made = types.ModuleType(f"lerobot.robots.{place}")
    made.SO101FollowerConfig = lambda **given: given
    made.SO101Follower = lambda config: robots.append((Follower(), config)) or robots[-1][0]
    for name in ("lerobot", "lerobot.robots"):
        package = types.ModuleType(name)
        package.__path__ = []
        monkeypatch.setitem(sys.modules, name, package)
    monkeypatch.setitem(sys.modules, made.__name__, made)
    robots = []
    connect("so101", "/dev/ttyACM0", PANDA.joints)
    connect("so101", "blue@/dev/ttyACM1", PANDA.joints)
    (_, first), (_, second) = robots
    assert (first["port"], first["id"]) == ("/dev/ttyACM0", None)
    assert (second["port"], second["id"]) == ("/dev/ttyACM1", "blue")
    assert first["use_degrees"] and not first["disable_torque_on_disconnect"]
