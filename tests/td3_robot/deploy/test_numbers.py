"""What a program gives to the parts of a loop of its own is numbers, or is refused by its name."""

import numpy as np
import pytest
import torch

from td3_robot.deploy import (
    DeployError,
    LatencyCompensator,
    Obstacles,
    Robot,
    SafetyFilter,
    Watchdog,
)

PANDA = Robot.load("panda")


@pytest.mark.parametrize("rate", [0.0, -20.0, np.nan, np.inf, "20", None, [20.0]])
def test_a_compensator_whose_rate_is_none_is_refused(rate):
    with pytest.raises(DeployError, match="^rate must be "):
        LatencyCompensator(PANDA, 0.1, rate)


@pytest.mark.parametrize("time", [np.nan, np.inf, None, "now", np.zeros(2)])
def test_a_time_that_is_none_is_refused_and_leaves_what_is_known(time):
    """One NaN among the times of what was sent would spoil every prediction to come."""
    compensator = LatencyCompensator(PANDA, 0.1, 20.0)
    compensator.record_command(np.full(7, 0.2), 0.0)
    state = (PANDA.home, np.zeros(7), 0.04)
    predicted = compensator(*state, 0.1)
    for call in (
        lambda: compensator.record_command(np.zeros(7), time),
        lambda: compensator(*state, time),
    ):
        with pytest.raises(DeployError, match="^now must be a finite number"):
            call()
    with pytest.raises(DeployError, match="^age must be a finite number"):
        compensator(*state, 0.1, time)
    assert (predicted[0] > PANDA.home).all()
    assert np.array_equal(compensator(*state, 0.1)[0], predicted[0])


def test_a_state_may_be_lists_and_is_refused_where_it_is_none():
    compensator = LatencyCompensator(PANDA, 0.1, 20.0)
    compensator.record_command([0.2] * 7, 0.0)
    of_arrays = compensator(PANDA.home, np.zeros(7), 0.04, 0.1)
    of_lists = compensator(PANDA.home.tolist(), [0.0] * 7, 0.04, 0.1)
    assert np.array_equal(of_arrays[0], of_lists[0])
    for place in (np.zeros(6), np.full(7, np.nan), None, "home"):
        with pytest.raises(DeployError, match="^q must be 7 finite numbers"):
            compensator(place, np.zeros(7), 0.04, 0.1)


@pytest.mark.parametrize("values", [torch.zeros(7, requires_grad=True), [10**400] * 7])
def test_what_numpy_cannot_read_is_refused_as_what_holds_no_numbers(values):
    """An actor's output that still needs gradients is one; in a motion the watchdog brakes."""
    compensator = LatencyCompensator(PANDA, 0.1, 20.0)
    safe = SafetyFilter(PANDA)
    safe.reset(PANDA.home)
    for call in (
        lambda: safe(values),
        lambda: safe.reset(values),
        lambda: compensator.record_command(values, 0.0),
        lambda: compensator(values, np.zeros(7), 0.04, 0.0),
        lambda: Obstacles(spheres=values),
    ):
        with pytest.raises(DeployError, match=" must be "):
            call()
    for give, reason in (
        (lambda watch: watch.command(values, 0.0), "the policy's command is no number"),
        (lambda watch: watch.see(PANDA.home, values, 0.0), "the arm reports a velocity"),
    ):
        watch = Watchdog(SafetyFilter(PANDA))
        watch.reset(PANDA.home, 0.0)
        give(watch)
        assert watch.reason.startswith(reason)
