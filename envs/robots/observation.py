"""The observation that a robot makes of itself: joint positions, then gripper drivers."""

import numpy as np

_ROBOTIQ_DRIVERS = (0, 4)  # of its eight joints: right_driver and left_driver


def o(args, robot) -> np.ndarray:
    """Return the observation of one robot: its joint positions, then its two driver joints.

    Args:
        args: not used; kept for callers that pass their parsed command line. May be None.
        robot: any object with `q` (n,) and `_gripper.q` (m,). `_gripper.drivers` names the right
            and left driver; without it they are 0 and 4, those of a Robotiq 2F-85. A robot whose
            `_gripper` is None has no drivers to add.

    Returns:
        (n + 2,) array [rad or m], or (n,) without a gripper.
    """
    gripper = robot._gripper
    if gripper is None:
        return np.array(robot.q)
    right, left = getattr(gripper, "drivers", _ROBOTIQ_DRIVERS)
    return np.append(robot.q, [gripper.q[right], gripper.q[left]])
