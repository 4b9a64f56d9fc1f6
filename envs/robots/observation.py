"""What a robot observes of itself: joint positions, then gripper drivers."""

import numpy as np

_ROBOTIQ_DRIVERS = (0, 4)  # of its eight joints: right_driver and left_driver


def o(args, robot) -> np.ndarray:
    """Observation of one robot: its joint positions, then its gripper's two driver joints.

    Args:
        args: not used; kept for callers that pass their parsed command line. May be None.
        robot: any object with `q` (n,) and `_gripper.q` (m,). `_gripper.drivers` names the right
            and left driver; without it the gripper is taken for a Robotiq 2F-85, whose drivers are
            0 and 4. A robot whose `_gripper` is None has no drivers to add.

    Returns:
        (n + 2,) array [rad or m], or (n,) without a gripper.
    """
    if robot._gripper is None:
        return np.array(robot.q)
    right, left = getattr(robot._gripper, "drivers", _ROBOTIQ_DRIVERS)
    return np.append(robot.q, [robot._gripper.q[right], robot._gripper.q[left]])
