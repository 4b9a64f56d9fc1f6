"""What makes the watchdog stop, in words, within the limits, until it is reset."""

import numpy as np
import pytest
import torch

from td3_robot.deploy import DeployError, Robot, SafetyFilter, Watchdog

PANDA = Robot.load("panda")
SPEED = np.full(7, 0.2)


class Arm:
    """An arm that does what it is sent, in a time of its own."""

    def __init__(self, **options):
        self.q = PANDA.home.copy()
        self.qd = np.zeros(7)
        self.now = 0.0
        self.watch = Watchdog(SafetyFilter(PANDA), **options)
        self.watch.reset(self.q, self.now)

    def run(self, seconds: float, state=True, command=SPEED) -> None:
        """Tick for a while; a state comes every 2 ms, a command every 50 ms."""
        for _ in range(round(seconds * 1000)):
            self.now += 1e-3
            tick = round(self.now * 1000)
            if state and tick % 2 == 0:
                self.watch.see(self.q, self.qd, self.now)
            if command is not None and tick % 50 == 0:
                self.watch.command(command, self.now)
            before = self.qd
            self.qd = self.watch(self.now)
            assert (np.abs(self.qd - before) <= 1e-3 * PANDA.limits.acceleration).all()
            self.q = self.q + 1e-3 * self.qd


def moving(**options) -> Arm:
    arm = Arm(**options)
    arm.run(0.3)
    assert arm.watch.reason == "" and np.allclose(arm.qd, SPEED)
    return arm


def test_all_is_well_while_all_is_well():
    arm = Arm()
    arm.run(0.5)
    assert arm.watch.reason == ""


@pytest.mark.parametrize(("command_rate", "age"), [(5.0, 0.3), (20.0, 0.075), (250.0, 0.075)])
def test_a_command_may_be_half_a_period_late_at_any_rate(command_rate, age):
    watch = Watchdog(SafetyFilter(PANDA, 250.0, command_rate))
    for late, reason in ((-0.001, ""), (0.001, "the policy has sent no command")):
        watch.reset(PANDA.home, 0.0)
        watch.see(PANDA.home, np.zeros(7), age + late)
        watch(age + late)
        assert watch.reason.startswith(reason) and bool(watch.reason) == bool(reason)


@pytest.mark.parametrize(
    ("silence", "reason"),
    [
        (dict(state=False), "the arm has sent no state"),
        (dict(command=None), "the policy has sent no command"),
    ],
)
def test_silence_stops_the_arm_within_a_tenth_of_a_second(silence, reason):
    arm = moving()
    arm.run(0.1, **silence)  # counted from the last message
    assert reason in arm.watch.reason
    assert (arm.qd < 0.2).all()  # braking
    arm.run(0.1, **silence)
    assert arm.watch.at_rest and not arm.qd.any()


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (lambda q, qd: (q * np.nan, qd), "position that is no number"),
        (lambda q, qd: (q, qd * np.inf), "velocity that is no number"),
        (lambda q, qd: (q[:6], qd), "position that is no number"),
        (lambda q, qd: (q + 3.0, qd), "outside its limits"),
        (lambda q, qd: (q + 0.05, qd), "moving faster than it can"),
        (lambda q, qd: (q, qd + 9.0), "moving faster than it can"),
    ],
)
def test_a_state_that_cannot_be_stops_the_arm(seen, reason):
    arm = moving()
    arm.watch.see(*seen(arm.q, arm.qd), arm.now)
    assert reason in arm.watch.reason
    arm.run(0.2)
    assert arm.watch.at_rest


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("form", [list, torch.tensor])
def test_states_may_come_as_lists_or_tensors(form):
    """As from some drivers; the policy and the safety filter take them too."""
    arm = moving()
    arm.watch.see(form(arm.q), form(arm.qd), arm.now + 1e-3)
    assert arm.watch.reason == "" and np.array_equal(arm.watch.measured, arm.q)
    arm.watch.see(form(arm.q), form(2.0 * PANDA.limits.velocity), arm.now + 2e-3)
    assert arm.watch.reason == "the arm reports joint 5 moving faster than it can"
    arm.watch.reset(form(arm.q), arm.now)
    assert arm.watch.reason == "" and np.array_equal(arm.watch.measured, arm.q)


def test_an_arm_that_does_not_follow_is_stopped():
    arm = moving()
    for _ in range(100):
        arm.q = arm.q - 2e-3  # pushed, slower than it could move
        arm.run(0.002)
    assert "not where it was sent" in arm.watch.reason


@pytest.mark.parametrize("bad", [np.full(7, np.nan), np.zeros(6), None])
def test_a_command_that_cannot_be_stops_the_arm(bad):
    arm = moving()
    arm.watch.command(np.asarray(bad, float), arm.now)
    assert "the policy's command" in arm.watch.reason


def test_it_stays_tripped_until_it_is_reset():
    arm = moving()
    arm.watch.trip("the emergency stop was pressed")
    arm.watch.trip("and something else")
    arm.run(0.3)
    assert arm.watch.reason == "the emergency stop was pressed" and not arm.qd.any()
    arm.watch.reset(arm.q, arm.now)
    arm.run(0.3)
    assert arm.watch.reason == "" and np.allclose(arm.qd, SPEED)


@pytest.mark.parametrize("now", [np.nan, np.inf, -np.inf])
def test_a_clock_that_tells_no_time_stops_the_arm(now):
    arm = moving()
    arm.watch(now)
    assert "the time is no finite number" in arm.watch.reason
    for _ in range(300):
        qd = arm.watch(now)
    assert arm.watch.at_rest and not qd.any()


@pytest.mark.parametrize("time", [None, "12:00", np.nan, [1.0], np.zeros(2)])
def test_a_time_that_is_no_number_stops_the_arm_whosever_it_is(time):
    calls = (
        (lambda watch, q, qd: watch.see(q, qd, time), "the arm reports a state whose time"),
        (lambda watch, q, qd: watch.command(qd, time), "the policy's command is of a time"),
        (lambda watch, q, qd: watch(time), "the time"),
    )
    for call, reason in calls:
        arm = moving()
        call(arm.watch, arm.q, arm.qd)
        assert arm.watch.reason.startswith(f"{reason} ")
        assert "is no finite number" in arm.watch.reason
        for _ in range(300):
            qd = arm.watch(arm.now)
        assert not qd.any()


@pytest.mark.parametrize("form", [float, np.array, lambda time: np.array([time]), torch.tensor])
def test_times_of_any_form_are_compared_and_told_as_numbers(form):
    """A state of ten seconds later than now is told as such, whatever its time came in."""
    arm = moving()
    arm.watch.see(arm.q, arm.qd, form(arm.now))
    arm.watch.command(SPEED, form(arm.now))
    arm.watch(form(arm.now))
    assert arm.watch.reason == ""
    arm.watch.see(arm.q, arm.qd, form(arm.now + 10.0))
    assert (np.abs(arm.watch(form(arm.now)) - arm.qd) <= 1e-3 * PANDA.limits.acceleration).all()
    assert arm.watch.reason.startswith("the arm has sent a state whose time is 10 s later than now")


@pytest.mark.parametrize("name", ["state_age", "command_age", "following"])
def test_an_option_that_is_no_number_is_refused_by_its_name(name):
    safe = SafetyFilter(PANDA)
    for value in ("0.1", [0.1], np.array([0.1, 0.1]), True):
        with pytest.raises(DeployError, match=f"^{name} must be a number, got "):
            Watchdog(safe, **{name: value})
    with pytest.raises(DeployError, match="^safe must be a SafetyFilter, got "):
        Watchdog(PANDA)


def test_a_stop_without_a_reason_is_a_stop():
    arm = moving()
    arm.watch.trip("")
    arm.run(0.3)
    assert arm.watch.reason == "stopped" and not arm.qd.any()


@pytest.mark.parametrize("what", ["state", "command"])
def test_what_comes_from_the_future_stops_the_arm(what):
    """All that is newer would pass for older: silence would never be noticed."""
    arm = moving()
    if what == "state":
        arm.watch.see(arm.q, arm.qd, 1.7e9)
    else:
        arm.watch.command(SPEED, arm.now + 3600.0)
    arm.run(0.002)
    assert (
        f"has sent a {what} whose time is" in arm.watch.reason
        and "later than now" in arm.watch.reason
    )
    arm.run(0.3)
    assert arm.watch.at_rest


@pytest.mark.parametrize("what", ["state", "command"])
def test_a_time_that_is_late_by_a_pause_of_the_loop_ends_nothing_and_hides_no_silence(what):
    """The loop is held up for 80 ms between looking at the clock and stamping what came."""
    arm = moving()
    if what == "state":
        arm.watch.see(arm.q, arm.qd, arm.now + 0.08)
    else:
        arm.watch.command(SPEED, arm.now + 0.08)
    begun = arm.now
    assert arm.watch(begun).any() and not arm.watch.reason
    most = arm.watch.state_age if what == "state" else arm.watch.command_age
    for age in np.arange(0.0, most, 0.002):
        if what == "state":
            arm.watch.command(SPEED, begun + age)
        else:
            arm.watch.see(arm.watch.safe.state.q, arm.qd, begun + age)
        arm.watch(begun + age)
        assert not arm.watch.reason
    arm.watch(begun + most + 0.001)
    assert f"has sent no {what} for more than" in arm.watch.reason


@pytest.mark.parametrize("bad", [[None] * 7, "fast", [[0.0] * 7]])
def test_what_is_no_vector_of_numbers_stops_the_arm(bad):
    for tell in (
        lambda arm: arm.watch.see(bad, SPEED, arm.now),
        lambda arm: arm.watch.command(bad, arm.now),
    ):
        arm = moving()
        tell(arm)
        assert "no number for each of 7 joints" in arm.watch.reason


def test_the_joint_that_is_too_fast_is_named():
    arm = moving()
    arm.watch.see(arm.q, np.array([0.2] * 6 + [9.0]), arm.now + 0.001)
    assert "joint 7 moving faster than it can" in arm.watch.reason


def test_what_is_late_or_twice_does_not_count():
    arm = moving()
    arm.watch.see(arm.q - 0.01, arm.qd, arm.now - 0.05)  # old news, plausible for its time
    arm.watch.command(-SPEED, arm.now - 0.2)
    arm.run(0.04)
    assert arm.watch.reason == "" and np.allclose(arm.qd, SPEED)
