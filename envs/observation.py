"""What the policy sees: joint positions and gripper drivers first, the rest by name after them."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from envs.simulator import SimModel, SimState

_ROBOTIQ_DRIVERS = (0, 4)  # of its eight joints: right_driver and left_driver


def o(args, robot) -> np.ndarray:
    """Observation of one robot: its joint positions, then its gripper's two driver joints.

    Args:
        args: not used; kept for callers that pass their parsed command line. May be None.
        robot: any object with `q` (n,) and `_gripper.q` (m,). `_gripper.drivers` names the right and
            left driver; without it the gripper is taken for a Robotiq 2F-85, whose drivers are 0 and 4.
            A robot whose `_gripper` is None has no drivers to add.

    Returns:
        (n + 2,) array [rad or m], or (n,) without a gripper.
    """
    if robot._gripper is None:
        return np.array(robot.q)
    right, left = getattr(robot._gripper, "drivers", _ROBOTIQ_DRIVERS)
    return np.append(robot.q, [robot._gripper.q[right], robot._gripper.q[left]])


def batched_o(model: SimModel, state: SimState) -> Tensor:
    """`o` for every simulated arm: (B, n + 2), or (B, n) without a gripper."""
    return torch.cat((state.q, state.gripper[:, None] * model.driver_mimic), 1)


class Layout:
    """Names for the columns of an observation, in order.

    >>> Layout([("q", 7), ("goal", 3)])["goal"]
    slice(7, 10, None)
    """

    def __init__(self, parts: Iterable[tuple[str, int]]):
        self._slices, start = {}, 0
        for name, size in parts:
            self._slices[name] = slice(start, start + size)
            start += size
        self.size = start

    def __getitem__(self, name: str) -> slice:
        return self._slices[name]

    def __iter__(self):
        return iter(self._slices)
