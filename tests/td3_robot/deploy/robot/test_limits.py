"""What a joint may do, and libfranka's figures for the FR3."""

from dataclasses import replace

import numpy as np
import pytest

from td3_robot.deploy import DeployError, Robot, SafetyFilter
from td3_robot.deploy.robot.limits import FR3, Limits


def test_fr3_has_libfrankas_velocities():
    q = np.array([2.0, 1.0, 2.0, -1.0, 2.0, 3.0, 2.0])
    down, up = FR3.find_velocity_range(q)
    # include/franka/rate_limiting.h by hand, joints 1, 2 and 4, less 0.001
    assert up[0] == pytest.approx(
        min(2.62, -0.30 + np.sqrt(12.0 * (2.75010 - 2.0))) - 0.001, abs=1e-9
    )
    assert up[1] == pytest.approx(
        min(2.62, -0.20 + np.sqrt(5.17 * (1.79180 - 1.0))) - 0.001, abs=1e-9
    )
    assert up[3] == pytest.approx(
        min(2.62, -0.30 + np.sqrt(8.00 * (-0.1458 + 1.0))) - 0.001, abs=1e-9
    )
    assert down[0] == pytest.approx(
        max(-2.62, 0.30 - np.sqrt(12.0 * (2.750100 + 2.0))) + 0.001, abs=1e-9
    )
    assert (FR3.find_velocity_range(FR3.upper)[1] == 0).all() and (
        FR3.find_velocity_range(FR3.lower)[0] == 0
    ).all()


@pytest.mark.parametrize(
    "change",
    [
        dict(jerk=[0.0, 1.0]),
        dict(velocity=[np.inf, 1.0]),
        dict(lower=[2.0, 0.0]),
        dict(acceleration=[1.0]),
    ],
)
def test_limits_that_cannot_be_are_refused(change):
    values = dict(
        lower=[-1.0, -1.0],
        upper=[1.0, 1.0],
        velocity=[1.0, 1.0],
        acceleration=[1.0, 1.0],
        jerk=[9.0, 9.0],
    )
    with pytest.raises(DeployError):
        Limits(**{key: np.array(value) for key, value in (values | change).items()})


def test_an_unknown_jerk_is_one_that_builds_the_acceleration_up_in_20_ms():
    limits = Limits.from_dict(
        {"position": [[-1], [1]], "velocity": [1], "acceleration": [5], "jerk": None}
    )
    assert limits.jerk == pytest.approx(250)


LISTS = dict(
    lower=[-1, -1], upper=[1, 1], velocity=[1, 1], acceleration=[5, 5], jerk=[100.0, 100.0]
)


MOTION = ([1] * 7, [5] * 7, [100] * 7)  # velocities, accelerations, jerks


def test_limits_may_be_lists():
    of_lists = Limits(**LISTS, curve=np.ones((2, 3, 2)).tolist()).narrow(0.5, 0.1)
    of_arrays = Limits(
        **{name: np.array(value, float) for name, value in LISTS.items()}, curve=np.ones((2, 3, 2))
    ).narrow(0.5, 0.1)
    for name, value in vars(of_arrays).items():
        assert np.array_equal(getattr(of_lists, name), value), name
    panda = Robot.load("panda")
    own = Limits([-2.8] * 3 + [-3.0, -2.8, 0.0, -2.8], [2.8] * 3 + [-0.1, 2.8, 3.7, 2.8], *MOTION)
    safe = SafetyFilter(replace(panda, limits=own))
    safe.reset(panda.home)
    assert (safe(np.ones(7)) > 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(upper=["far", "away"]), "upper limits must be numbers, got "),
        (dict(curve="steep"), "curve limits must be numbers, got 'steep'"),
        (dict(curve=[[1.0]]), r"curve must have shape \(2, 3, 2\), got \(1, 1\)"),
    ],
)
def test_limits_that_are_no_numbers_are_refused_by_their_name(change, message):
    with pytest.raises(DeployError, match=f"^{message}"):
        Limits(**(LISTS | change))
