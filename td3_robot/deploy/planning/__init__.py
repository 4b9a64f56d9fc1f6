"""Joint-space goals and paths of a policy, planned once for each goal, in numpy."""

from collections.abc import Mapping

import numpy as np

from td3_robot.deploy.planning.inverse_kinematics import GoalSolver
from td3_robot.deploy.planning.motion_planner import PathFollower, is_at_corner
from td3_robot.deploy.robot.description import Robot

__all__ = ["GoalSolver", "NoPlanner", "PathFollower", "is_at_corner", "make_planner"]


class NoPlanner:
    """A planner of scenes that the caller gives whole."""

    names: tuple[str, ...] = ()

    def __call__(self, q: np.ndarray, scene: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return nothing."""
        return {}


def make_planner(
    robot: Robot, scene: Mapping[str, tuple[int, ...]]
) -> NoPlanner | GoalSolver | PathFollower:
    """Return what works out the planned part of a scene, from the names and shapes in it."""
    if set(PathFollower.names) <= set(scene):
        return PathFollower(robot)
    if set(GoalSolver.names) <= set(scene) and scene.get("goal") == (7,):
        return GoalSolver(robot)
    return NoPlanner()
