"""Check before an arm moves whether it can be at a goal, by inverse kinematics from many starts."""

from typing import NamedTuple

import numpy as np

from td3_robot.deploy.planning.inverse_kinematics import find_joints_at_goal, find_pose_error
from td3_robot.deploy.robot.description import Robot
from td3_robot.deploy.robot.obstacles import Obstacles

# Of 240 poses of random joint positions of a Panda and a UR5e none was missed.
STARTS = 63  # besides the given joint positions
ITERATIONS = 30
METRES_PER_RADIAN = 0.3  # an angle counts as this distance where the nearest pose is chosen
LEAP = 0.05  # [m] ahead of the TCP that it is drawn towards, for a goal out of reach
LEAPS = 60
AT_GOAL = 1e-3  # [m] likewise, by which postures count as being at the goal


class NearestPose(NamedTuple):
    """The nearest pose to a goal that an arm can take.

    Attributes:
        distance: from the goal's position [m].
        turn: from its orientation [rad]; 0 for a goal that is a position.
        position: (3,) of the TCP in the base frame [m].
        travel: joint travel from the start at full speed [s], of the quickest posture at the goal.
        clearance: of the posture at the goal with most room [m]; infinite if no shape is known.
    """

    distance: float
    turn: float
    position: np.ndarray
    travel: float
    clearance: float


def find_nearest_pose(
    robot: Robot, q: np.ndarray, goal: np.ndarray, obstacles: Obstacles | None = None
) -> NearestPose:
    """Find the nearest pose to a goal within the joint limits.

    Args:
        q: (n,) joint positions where the arm starts [rad or m].
        goal: (3,) a position [m], or (7,) a position and a unit quaternion wxyz.
        obstacles: what the arm has to keep clear of, for `clearance`.
    """
    found, error = find_joints_at_goal(robot, q, goal, STARTS, ITERATIONS)
    distance = np.linalg.norm(error[:, :3], axis=1)
    turn = np.linalg.norm(error[:, 3:], axis=1)
    missed = distance + METRES_PER_RADIAN * turn
    best = int(missed.argmin())
    if distance[best] > AT_GOAL:  # far away, where the iterations converge slowly
        found[best] = _approach(robot, found[best], goal)
        error[best] = find_pose_error(robot.chain.frames(found[best : best + 1])[:, -1], goal)
        distance[best] = np.linalg.norm(error[best, :3])
        turn[best] = np.linalg.norm(error[best, 3:])
        missed[best] = distance[best] + METRES_PER_RADIAN * turn[best]
    near = found[missed <= missed[best] + AT_GOAL]
    clearance = np.inf
    if robot.capsules is not None:
        frames = robot.chain.frames(near)
        clearance = robot.capsules.find_clearance(frames, obstacles or Obstacles(), near).max()
    return NearestPose(
        float(distance[best]),
        float(turn[best]),
        robot.chain.frames(found[best : best + 1])[0, -1, :3, 3],
        float((np.abs(near - q) / robot.limits.velocity).max(1).min()),
        float(clearance),
    )


def _approach(robot: Robot, q: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Search from q for joint positions (n,) whose TCP is nearest to a distant goal."""
    best = q
    least = np.inf
    for _ in range(LEAPS):
        T = robot.chain.frames(q[None])[0, -1]
        left = goal[:3] - T[:3, 3]
        distance = np.linalg.norm(left)
        if distance < least:
            best = q
            least = distance
        ahead = goal.copy()
        ahead[:3] = T[:3, 3] + left * min(1.0, LEAP / max(distance, 1e-9))
        q = find_joints_at_goal(robot, q, ahead, 0, 2)[0][0]
    return best
