"""Grippers: open at the start, and every joint where its driver puts it."""

import numpy as np
import pytest

from envs import grippers
from envs.grippers import Gripper, make_gripper
from td3_robot.errors import ConfigError


@pytest.mark.parametrize("name", sorted(grippers._GRIPPERS))
def test_every_registered_gripper_is_whole(name):
    gripper = make_gripper(name)
    m = len(gripper.joints)
    assert gripper.name == name
    assert gripper.q.shape == gripper.mimic.shape == (m,) and len(set(gripper.joints)) == m
    assert len(set(gripper.drivers)) == 2 and all(0 <= index < m for index in gripper.drivers)
    assert gripper.closed != gripper.opened and gripper.speed > 0
    np.testing.assert_allclose(gripper.q, gripper.mimic * gripper.opened)
    assert make_gripper(name).q is not gripper.q


def test_the_panda_hand_is_as_its_manual_says():
    hand = make_gripper("panda_hand")
    assert hand.joints == ("panda_leftfinger", "panda_rightfinger") and hand.drivers == (0, 1)
    assert (hand.closed, hand.opened, hand.speed) == (0.0, 0.04, 0.05)  # m, m, m/s for each finger
    np.testing.assert_array_equal(hand.q, [0.04, 0.04])


def test_joints_follow_their_driver():
    linkage = Gripper("claw", ("driver", "tip"), (0, 1), np.array([1.0, -0.5]), closed=0.8, opened=0.2, speed=1.0)
    np.testing.assert_allclose(linkage.q, [0.2, -0.1])


def test_an_unknown_gripper_is_refused_with_the_valid_ones():
    with pytest.raises(ConfigError, match="gripper 'claw'; .*panda_hand"):
        make_gripper("claw")
