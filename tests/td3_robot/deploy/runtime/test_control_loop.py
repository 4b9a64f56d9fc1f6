"""The loop with an arm and a policy that are a few lines each: how it begins, and every way in
which it ends.
"""

import errno
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from td3_robot.deploy import DeployError, Reading, Robot, SafetyFilter, Watchdog, measure_latency
from td3_robot.deploy.runtime import control_loop, policy_worker
from td3_robot.deploy.runtime.calm_start import wait_for_calm_start
from td3_robot.deploy.runtime.control_loop import run_control_loop
from td3_robot.deploy.runtime.motion_log import Log
from td3_robot.deploy.runtime.policy_worker import PolicyProcess

PANDA = Robot.load("panda")


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Let other programs hold the loop up: these tests are of what else ends it."""
    monkeypatch.setattr(control_loop, "LATE", 5.0)


class Arm:
    """Goes exactly as fast as it was sent, since it was."""

    rate = 250.0

    def __init__(self, q=PANDA.home, qd=0.0):
        self.q = q.copy()
        self.qd = np.full(7, qd)
        self.then = time.monotonic()
        self.stopped = False
        self.sent = 0

    def read(self):
        now = time.monotonic()
        self.q = self.q + (now - self.then) * self.qd
        self.then = now
        return Reading(self.q, self.qd, 0.04, now)

    def send(self, qd):
        self.read()
        self.qd = qd
        self.sent = self.sent + 1

    def stop(self):
        self.stopped = True


class Mind:
    """Answers at once with one velocity, until it fails."""

    def __init__(self, qd=0.05, fails_after=10**9):
        self.qd = np.full(7, qd)
        self.left = fails_after
        self.failure = ""
        self.asked = None

    def ask(self, reading, scene):
        self.asked = time.monotonic()
        self.left = self.left - 1
        if self.left < 0:
            self.failure = "the policy failed: ValueError: of itself"

    def answer(self):
        when = self.asked
        self.asked = None
        return None if when is None or self.failure else (when, self.qd)


def started(arm, **options):
    safe = SafetyFilter(PANDA, arm.rate, **options)
    # what it travels while the loop is held up, see `patient`
    watch = Watchdog(safe, following=1.0, state_age=1.0, command_age=1.0)
    start = wait_for_calm_start(arm, watch, PANDA.home, 0.4, patience=0.2, calm=0.02)
    watch.reset(start.q, start.stamp)
    return watch


def ended(arm, mind, watch, tmp_path=None, **options) -> str:
    log = Log(tmp_path and tmp_path / "log.csv", PANDA.joints)
    how = {"policy_rate": 20.0, "speed": 1.0, "seconds": 0.3, "log": log} | options
    reason = run_control_loop(arm, mind, watch, {"goal": np.zeros(3)}, **how)
    log.close()
    return reason


def test_an_arm_that_returns_something_else_than_a_reading_is_named():
    class Mine(Arm):
        def read(self):
            return self.q, self.qd

    told = r"Mine.read\(\) must return a td3_robot.deploy.Reading or None, got tuple"
    with pytest.raises(DeployError, match=told):
        started(Mine())
    with pytest.raises(DeployError, match=told):
        measure_latency(Mine(), PANDA, joint=0)
    arm = Arm()
    watch = started(arm)
    arm.read = lambda: 0
    assert ended(arm, Mind(), watch).startswith("Arm.read() must return")


def test_an_arm_may_report_lists_and_what_is_no_number_ends_it():
    class Listing(Arm):
        def read(self):
            reading = super().read()
            felt = {"wrench": [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]}
            return reading._replace(q=reading.q.tolist(), qd=reading.qd.tolist(), **felt)

        def send(self, qd):
            super().send(qd)
            if self.sent == 20:
                self.read = lambda: Reading("home", self.qd, None, time.monotonic())

    arm = Listing()
    told = ended(arm, Mind(), started(arm), seconds=60.0, estimate=lambda seconds: None)
    assert told.startswith("the arm reports what are no numbers: {'q': 'home'")
    assert arm.stopped and not arm.qd.any() and (arm.q > PANDA.home).all()


@pytest.mark.parametrize("wrong", [{"stamp": None}, {"stamp": "12:00"}, {"gripper": "open"}])
def test_a_time_or_a_gripper_that_is_no_number_is_named_and_brakes_the_arm(wrong):
    class Wrong(Arm):
        def read(self):
            return super().read()._replace(**wrong)

    told = f"^{min(wrong)} of the arm's state must be a number, got {min(wrong.values())!r}"
    with pytest.raises(DeployError, match=told):
        started(Wrong())
    arm = Arm()
    watch = started(arm)
    right = arm.read
    arm.read = lambda: right()._replace(**(wrong if arm.sent > 20 else {}))
    end = ended(arm, Mind(), watch, seconds=60.0, latency=0.02)
    assert re.match(told, end) and arm.sent > 21
    assert arm.stopped and not arm.qd.any() and (arm.q > PANDA.home).all()


def test_it_ends_at_rest_when_the_time_is_up(tmp_path):
    arm = Arm()
    assert ended(arm, Mind(), started(arm), tmp_path) == "the time is up"
    assert arm.stopped and not arm.qd.any() and (arm.q > PANDA.home).all()
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert lines[0].startswith("time,q_panda_joint1") and lines[-1].endswith("the time is up")
    assert len({line.count(",") for line in lines}) == 1


def test_the_log_has_what_the_arm_reported_beside_what_it_was_sent_to(tmp_path):
    """In a dry run the arm stays where it is, and what it would be sent to does not."""
    arm = Arm()
    ended(arm, Mind(), started(arm), tmp_path, send=False)
    rows = np.genfromtxt(tmp_path / "log.csv", delimiter=",", skip_header=1, usecols=range(22))
    header = (tmp_path / "log.csv").read_text().split("\n", 1)[0].split(",")
    assert header[1:22:7] == [f"{kind}_panda_joint1" for kind in ("q", "sent", "measured")]
    assert (rows[-1, 1:8] > PANDA.home).all()
    np.testing.assert_allclose(rows[:, 15:], np.broadcast_to(PANDA.home, (len(rows), 7)))


def test_a_policy_that_fails_is_quoted():
    arm = Arm()
    assert (
        ended(arm, Mind(fails_after=2), started(arm)) == "the policy failed: ValueError: of itself"
    )
    assert arm.stopped and not arm.qd.any()


def test_a_command_that_is_no_number_ends_it():
    arm = Arm()
    assert "the policy's command is no number" in ended(arm, Mind(np.nan), started(arm))


def test_an_arm_that_cannot_be_read_is_braked():
    arm = Arm()
    watch = started(arm)
    until = time.monotonic() + 0.1

    def read(plain=arm.read):
        if time.monotonic() > until:
            raise IndexError("index 0 is out of bounds")
        return plain()

    arm.read = read
    sent = []
    times = []

    def send(qd):
        sent.append(qd)
        times.append(time.monotonic())

    arm.send = send
    assert ended(arm, Mind(), watch) == "the arm cannot be read: index 0 is out of bounds"
    steps = np.abs(np.diff(np.array(sent), axis=0))
    assert arm.stopped and not sent[-1].any() and np.max(sent) > 0.02
    # a busy machine may send late, and then catches up with what was due
    periods = np.diff(times)[:, None] + 1.0 / arm.rate
    assert (steps <= PANDA.limits.acceleration * periods + 1e-9).all()


def test_what_went_wrong_first_is_told_though_the_arm_cannot_be_stopped():
    class Lost(Arm):
        def send(self, qd):
            raise OSError("the cable is out")

        def stop(self):
            raise RuntimeError("not connected")

    arm = Lost()
    assert ended(arm, Mind(), started(arm)) == (
        "the arm cannot take a velocity: the cable is out; "
        "the arm did not confirm its stop: not connected"
    )


def test_an_arm_is_stopped_whose_latency_nobody_can_compensate():
    arm = Arm()
    with pytest.raises(DeployError, match="latency must be from 0 to 0.5 s, got 0.9"):
        ended(arm, Mind(), started(arm), latency=0.9)
    assert arm.stopped


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), "soon"])
@pytest.mark.parametrize("name", ["policy_rate", "speed", "seconds"])
def test_a_rate_a_speed_and_a_time_are_positive(name, value):
    arm = Arm()
    with pytest.raises(DeployError, match=f"{name} must be (positive|a number), got {value!r}"):
        ended(arm, Mind(), started(arm), **{name: value})
    assert arm.stopped and not arm.qd.any()


def test_the_operator_is_heard():
    arm = Arm()
    how = {"seconds": 60.0, "pressed": lambda: arm.sent > 20}
    assert ended(arm, Mind(), started(arm), **how) == "stopped by the operator"


def test_without_sending_nothing_moves():
    arm = Arm()
    ended(arm, Mind(), started(arm), send=False)
    assert arm.sent == 0 and np.array_equal(arm.q, PANDA.home)


def test_a_log_that_cannot_be_begun_is_told_and_one_that_cannot_go_on_stops_no_arm(
    tmp_path, capsys
):
    with pytest.raises(DeployError, match="log '.*none/log.csv' cannot be written: No such file"):
        Log(tmp_path / "none" / "log.csv", PANDA.joints)
    arm = Arm()
    log = Log(Path("/dev/full"), PANDA.joints)
    assert ended(arm, Mind(), started(arm), log=log) == "the time is up"
    assert not arm.qd.any() and (arm.q > PANDA.home).all()
    told = capsys.readouterr().err.splitlines()
    assert told == ["the log ends here, it cannot be written: No space left on device"]


def test_a_log_ends_quietly_where_stderr_is_on_the_same_full_disk(monkeypatch):
    def write(text):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", SimpleNamespace(write=write))
        Log(Path("/dev/full"), PANDA.joints).close()


def test_a_former_log_stays_until_the_arm_moves(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("the former log\n")
    Log(path, PANDA.joints).close()
    assert path.read_text() == "the former log\n"
    arm = Arm()
    ended(arm, Mind(), started(arm), tmp_path)
    lines = path.read_text().splitlines()
    assert lines[0].startswith("time,q_") and len(lines) > 2
    assert all(line.count(",") == lines[0].count(",") for line in lines)


class Silent(Arm):
    def read(self):
        return None


class Jumping(Arm):
    def read(self):
        self.q = 0.1 - self.q + 2 * PANDA.home
        return Reading(self.q, np.zeros(7), None, time.monotonic())


@pytest.mark.parametrize(
    ("arm", "why"),
    [
        (Silent(), "has sent no state"),
        (Jumping(), "jumps between states"),
        (Arm(qd=0.1), "moves already"),
        (Arm(PANDA.home + 0.5), "joint 1 is at 0.500 and the policy starts within 0.4"),
        (Arm(PANDA.home * np.nan), "position that is no number"),
    ],
)
def test_it_does_not_start_unless_the_arm_is_calm_and_near(arm, why):
    with pytest.raises(DeployError, match=why):
        started(arm)


class Stale(Arm):
    """Its clock runs on, a second behind."""

    def read(self):
        return Reading(self.q, self.qd, 0.04, time.monotonic() - 1.0)


class Buffering(Arm):
    """Hands out a state that has waited since `age` before, then a new one every `every` [s]."""

    def __init__(self, age, every=0.0):
        super().__init__()
        self.every = every
        self.stamps = [time.monotonic() - age]

    def read(self):
        if len(self.stamps) > 1:
            time.sleep(self.every)
        self.stamps.append(self.stamps[-1] if len(self.stamps) == 1 else time.monotonic())
        return Reading(self.q, self.qd, 0.04, self.stamps[-1])


def test_a_state_that_has_waited_in_a_buffer_is_not_the_begin_of_calm():
    """Everything from `calm` before the start is covered by states without a gap."""
    arm = Buffering(age=3.0)
    watch = Watchdog(SafetyFilter(PANDA, arm.rate), state_age=0.05)
    start = wait_for_calm_start(arm, watch, PANDA.home, 0.4, calm=0.2)
    stamps = np.array(arm.stamps)
    covered = stamps[stamps >= start.stamp - 0.2 - 0.05]
    assert np.diff(covered).max() <= 0.05 and covered[-1] - covered[0] >= 0.2


@pytest.mark.parametrize("arm", [Buffering(age=0.0, every=0.02), Stale()])
def test_states_with_gaps_or_that_are_old_are_no_calm(arm):
    watch = Watchdog(SafetyFilter(PANDA, arm.rate), state_age=0.01)
    with pytest.raises(DeployError, match="has sent no state"):
        wait_for_calm_start(arm, watch, PANDA.home, 0.4, patience=0.03, calm=0.04)


def test_a_policy_process_answers_and_tells_of_its_end(straight_policy, tmp_path):
    mind = PolicyProcess(str(straight_policy))
    reading = Reading(PANDA.home, np.zeros(7), 0.04, time.monotonic())

    def answered(scene):
        mind.ask(reading, scene)
        until = time.monotonic() + 30.0
        answer = None
        while answer is None and not mind.failure and time.monotonic() < until:
            answer = mind.answer()
            time.sleep(0.01)
        return answer

    mind.prepare(reading, {"goal": np.array([0.4, 0.1, 0.4])})
    assert mind.answer() is None  # that one was nobody's
    assert answered({"goal": np.array([0.4, 0.1, 0.4])})[1].shape == (7,)
    assert (
        answered({"goal": np.zeros(2)}) is None
        and "the policy failed: DeployError: goal must be" in mind.failure
    )
    with pytest.raises(DeployError, match="the policy failed: DeployError: goal must be"):
        mind.prepare(reading, {"goal": np.zeros(2)})
    mind.close()
    with pytest.raises(DeployError, match="cannot be run: DeployError: there is no file "):
        PolicyProcess(str(tmp_path / "nothing.onnx"))


def test_a_failure_of_the_policy_is_told_in_one_line(monkeypatch):
    """As it ends a run, and is in a line of its log; those of onnxruntime have several."""

    class Breaking:
        robot = PANDA
        scene = {}

        def __call__(self, *_, at=None):
            if at is not None:
                raise RuntimeError("node of name 'Add'\nhas no shape")

    monkeypatch.setattr(policy_worker.Policy, "load", lambda path: Breaking())
    mind = PolicyProcess("", method="fork")
    reading = Reading(PANDA.home, np.zeros(7), 0.04, time.monotonic())
    with pytest.raises(DeployError):
        mind.prepare(reading, {})
    assert mind.failure == "the policy failed: RuntimeError: node of name 'Add' has no shape"
    mind.close()


def test_what_was_asked_in_an_earlier_motion_is_no_answer_to_the_next(monkeypatch):
    class Thinking:
        robot = PANDA
        scene = {}

        def __call__(self, *_, at=None):
            time.sleep(0.0 if at is None else 0.2)
            return np.zeros(7)

        def restart_clock(self):
            pass

    monkeypatch.setattr(policy_worker.Policy, "load", lambda path: Thinking())
    mind = PolicyProcess("", method="fork")
    reading = Reading(PANDA.home, np.zeros(7), 0.04, time.monotonic())
    mind.ask(reading, {})  # and nobody takes the answer, as at the end of a motion
    assert mind._connection.poll(30.0)
    asked_at = time.monotonic()
    mind.prepare(reading, {})
    assert time.monotonic() - asked_at >= 0.2  # it was thought over
    assert not mind._connection.poll(0.5)
    mind.close()
