"""Schedules: from 1, down, never below the floor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td3_robot.config.schedules import SCHEDULES, compute_schedule_factor
from td3_robot.errors import ConfigError

names = st.sampled_from(sorted(SCHEDULES))
shares = st.floats(0, 1)


@pytest.mark.parametrize(
    "name, at_a_quarter, at_half, at_three_quarters",
    [("constant", 1.0, 1.0, 1.0), ("linear", 0.75, 0.5, 0.25), ("cosine", 0.853553, 0.5, 0.146447)],
)
def test_values(name, at_a_quarter, at_half, at_three_quarters):
    factors = [compute_schedule_factor(name, progress) for progress in (0.25, 0.5, 0.75)]
    assert factors == pytest.approx([at_a_quarter, at_half, at_three_quarters], abs=1e-6)


@given(names, shares)
def test_it_starts_at_one(name, floor):
    assert compute_schedule_factor(name, 0.0, floor) == 1.0


@given(names, shares, shares, shares)
def test_it_never_rises_and_never_falls_below_the_floor(name, floor, a, b):
    early, late = sorted((a, b))
    assert (
        floor
        <= compute_schedule_factor(name, late, floor)
        <= compute_schedule_factor(name, early, floor)
        <= 1.0
    )


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_run_that_goes_on_past_its_end_stays_at_the_end(name):
    assert compute_schedule_factor(name, 1.3) == pytest.approx(0.0, abs=1e-12)
    assert compute_schedule_factor(name, 1.3, floor=0.1) == 0.1


def test_an_unknown_name_is_refused_with_the_valid_ones():
    with pytest.raises(
        ConfigError, match="constant, linear, cosine, got 'linaer'; did you mean 'linear'"
    ):
        compute_schedule_factor("linaer", 0.5)
