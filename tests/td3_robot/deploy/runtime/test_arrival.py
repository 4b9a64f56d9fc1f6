"""Where an arm came to rest, from the states that it sent."""

from types import SimpleNamespace

import numpy as np
import pytest

from td3_robot.deploy import Robot
from td3_robot.deploy.arm import Reading
from td3_robot.deploy.robot.rotations import to_quaternion
from td3_robot.deploy.runtime.arrival import RecordedArm

PANDA = Robot.load("panda")


def record(positions: list[np.ndarray], step: float = 0.1) -> RecordedArm:
    """An arm that has been read at these joint positions, `step` seconds apart."""
    readings = iter([Reading(q, 0 * q, None, 5.0 + step * i) for i, q in enumerate(positions)])
    arm = SimpleNamespace(
        rate=100.0, latency=0.0, read=lambda: next(readings, None), send=None, stop=None
    )
    recorded = RecordedArm(arm)
    while recorded.read() is not None:
        pass
    return recorded


def place_tcp(q: np.ndarray) -> np.ndarray:
    return PANDA.chain.frames(q[None])[0, -1, :3, 3]


def turn_base(angle: float) -> np.ndarray:
    q = PANDA.home.copy()
    q[0] += angle
    return q


def test_the_time_is_that_from_which_on_it_stayed():
    """It passes the goal at 0.2 s, leaves it, and is back for good at 0.5 s."""
    goal = place_tcp(turn_base(0.0))
    angles = (0.4, 0.2, 0.0, 0.2, 0.1, 0.001, 0.0, 0.001)
    arrival = record([turn_base(angle) for angle in angles]).measure_arrival(PANDA, goal, 0.01)
    assert arrival.reached and arrival.seconds == pytest.approx(0.5)
    radius = np.hypot(*goal[:2])
    assert arrival.distance == pytest.approx(2 * radius * np.sin(0.0005), abs=1e-9)
    assert arrival.position == pytest.approx(place_tcp(turn_base(0.001)))


def test_one_that_ends_elsewhere_has_not_reached_it():
    goal = place_tcp(turn_base(0.0))
    arrival = record([turn_base(angle) for angle in (0.4, 0.0, 0.3)])
    found = arrival.measure_arrival(PANDA, goal, 0.01)
    assert not found.reached
    assert found.distance == pytest.approx(2 * np.hypot(*goal[:2]) * np.sin(0.15))


@pytest.mark.parametrize(
    ("angles", "stayed"),
    [
        ([0.4] + [0.0] * 12 + [0.3, 0.4], (0.1, 1.2)),
        ([0.0] * 12 + [0.3], (0.0, 1.1)),
        ([0.4, 0.0, 0.0, 0.3], None),  # it only passed by
        ([0.0] * 12 + [0.3, 0.0, 0.3], None),
        ([0.4] * 3, None),
        ([0.4] + [0.0] * 12, None),
    ],
)
def test_an_arm_that_leaves_its_goal_is_told_from_one_that_has_not_got_there(angles, stayed):
    goal = place_tcp(turn_base(0.0))
    arrival = record([turn_base(angle) for angle in angles]).measure_arrival(PANDA, goal, 0.01)
    assert arrival.stayed == (stayed and pytest.approx(stayed))


def test_an_orientation_counts_where_the_goal_has_one():
    """Joint 7 turns the hand about its own axis, which leaves the TCP where it is."""
    T = PANDA.chain.frames(PANDA.home[None])[0, -1]
    goal = np.append(T[:3, 3], to_quaternion(T[:3, :3]))
    turned = PANDA.home.copy()
    turned[6] += 0.2
    for q, turn in ((PANDA.home, 0.0), (turned, 0.2)):
        arrival = record([q]).measure_arrival(PANDA, goal, 0.01, 0.1)
        assert arrival.distance < 1e-3 and arrival.reached is (turn < 0.1)
        assert arrival.turn == pytest.approx(turn, abs=1e-3)


def test_states_before_the_motion_do_not_count():
    arm = record([turn_base(0.4)] * 3)
    arm.forget()
    found = arm.measure_arrival(PANDA, place_tcp(turn_base(0.4)), 0.01)
    assert found.reached and found.seconds == 0.0


def test_an_arm_without_a_state_came_to_rest_nowhere():
    assert record([]).measure_arrival(PANDA, np.zeros(3), 0.01) is None


def test_a_state_of_another_number_of_joints_is_not_kept():
    """In mid-run; the watchdog stops the arm then, and where it came to rest can still be told."""
    states = [turn_base(0.4), turn_base(0.4)[:6], turn_base(0.0), turn_base(0.2)[:6]]
    found = record(states).measure_arrival(PANDA, place_tcp(turn_base(0.0)), 0.01)
    assert found.reached and found.seconds == pytest.approx(0.2)
