"""Whether an arm can be at a goal, known before it moves."""

import numpy as np
import pytest

from td3_robot.deploy import Obstacles, Robot
from td3_robot.deploy.planning.reachability import find_nearest_pose
from td3_robot.deploy.robot.rotations import to_quaternion


@pytest.mark.parametrize("name", ["panda", "ur5e"])
def test_where_the_arm_can_be_is_within_reach(name):
    """The pose of random joint positions within their limits, as a position and as a pose."""
    robot = Robot.load(name)
    generator = np.random.default_rng(0)
    for _ in range(5):
        q = generator.uniform(robot.limits.lower, robot.limits.upper)
        T = robot.chain.frames(q[None])[0, -1]
        quaternion = to_quaternion(T[:3, :3])
        for goal in (T[:3, 3], np.append(T[:3, 3], quaternion)):
            nearest = find_nearest_pose(robot, robot.home, goal)
            assert nearest.distance < 1e-3 and nearest.turn < 1e-2


def test_beyond_the_arm_s_length_the_distance_is_what_is_left():
    """Straight up a Panda's TCP is at most at 0.333 + sqrt(0.316^2 + 0.0825^2) +
    sqrt(0.384^2 + 0.0825^2) m plus flange and hand, bent by 0.088 m: certainly below 1.3 m.
    """
    robot = Robot.load("panda")
    goal = np.array([0.0, 0.0, 2.0])
    nearest = find_nearest_pose(robot, robot.home, goal)
    assert 0.7 < nearest.distance == pytest.approx(np.linalg.norm(goal - nearest.position))
    further = find_nearest_pose(robot, robot.home, goal + [0.0, 0.0, 1.0])
    assert further.distance == pytest.approx(nearest.distance + 1.0, abs=0.02)


def test_a_goal_in_an_obstacle_leaves_no_posture_without_contact():
    robot = Robot.load("panda")
    goal = np.array([0.5, 0.0, 0.4])
    ball = Obstacles(spheres=np.array([[*goal, 0.1]]))
    assert find_nearest_pose(robot, robot.home, goal).clearance > 0.0
    assert find_nearest_pose(robot, robot.home, goal, ball).clearance < -0.05


def test_the_travel_is_that_of_the_slowest_joint_at_its_limit():
    """Joint 1 alone turns by 0.5 rad: the position is reached by that, or quicker by all joints."""
    robot = Robot.load("panda")
    q = robot.home.copy()
    q[0] += 0.5
    T = robot.chain.frames(q[None])[0, -1]
    nearest = find_nearest_pose(robot, robot.home, T[:3, 3])
    assert 0.0 < nearest.travel <= 0.5 / robot.limits.velocity[0] + 0.01
