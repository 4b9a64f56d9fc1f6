"""What a policy that picks sees of its hand: the formulas of envs/simulation/grasp.py and envs/tasks/pick_place.py.

The frame of the hand is at the TCP: x across, y along the direction in which the pads close, z along the approach.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Hand:
    """A two-finger gripper, and a cube for it.

    Attributes:
        axes: (3, 3) its axes in the TCP frame.
        stroke: driver coordinate when shut and when open [rad or m].
        gap: distance between the pads when shut, half way, and when open [m].
        tip: of the fingers, beyond the TCP [m].
        half: of a side of the cube [m].
    """

    axes: np.ndarray
    stroke: tuple[float, float]
    gap: tuple[float, float, float]
    tip: float
    half: float

    @classmethod
    def of(cls, values: dict) -> "Hand":
        """From a policy's metadata."""
        return cls(np.array(values["axes"]), *(values[name] for name in ("stroke", "gap", "tip", "half")))

    def gap_at(self, driver: float) -> float:
        """Distance between the pads [m]: the parabola through the three known ones."""
        closed, opened = self.stroke
        shut, half_way, wide = self.gap
        u = (driver - closed) / (opened - closed)
        return shut + u * (4.0 * half_way - 3.0 * shut - wide + u * (2.0 * (shut + wide) - 4.0 * half_way))

    def room_at(self, driver: float) -> float:
        """By how much the pads are wider than the cube, 1 when open."""
        return (self.gap_at(driver) - 2.0 * self.half) / (self.gap[2] - 2.0 * self.half)


def way(tcp: np.ndarray, scene: Mapping[str, np.ndarray], hand: Hand, constants: Mapping[str, float]) -> np.ndarray:
    """(3,) from the TCP to where it is to go now [m]: to the grasp, from above; with the cube, to the goal."""
    if scene["held"][0] > 0.5:
        return scene["goal"] - scene["object"]
    from_cube = tcp - scene["object"]
    aside = np.hypot(from_cube[0], from_cube[1])
    over = min(max(constants["descent"] * (aside - constants["corridor"]), 0.0), constants["hover"])
    over += max(hand.half, hand.tip + constants["table_room"]) - hand.half
    return np.array((-from_cube[0], -from_cube[1], over - from_cube[2]))
