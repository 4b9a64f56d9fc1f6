"""What a policy that picks sees of its hand: the formulas of envs/simulation/grasp.py and
envs/tasks/pick_place.py.

The frame of the hand is at the TCP: x across, y along the direction in which the pads close, z
    along the approach.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

# When a cube counts as grasped, see envs/simulation/grasp.py.
OVERLAP = 0.01  # [m]
LEVEL = 0.5  # sine
SOFTNESS = 1e-3  # [m]


@dataclass(frozen=True)
class Hand:
    """A two-finger gripper, and a cube for it.

    Attributes:
        axes: (3, 3) its axes in the TCP frame.
        stroke: driver coordinate when shut and when open [rad or m].
        gap: distance between the pads when shut, half way, and when open [m].
        tip: of the fingers, beyond the TCP [m].
        pad: half of a pad's width across [m]; pad_height: its size along the approach, which ends
            at the tip [m].
        half: of a side of the cube [m].
    """

    axes: np.ndarray
    stroke: tuple[float, float]
    gap: tuple[float, float, float]
    tip: float
    pad: float
    pad_height: float
    half: float

    @classmethod
    def of(cls, values: dict) -> "Hand":
        """From a policy's metadata."""
        return cls(
            np.array(values["axes"]),
            *(values[name] for name in ("stroke", "gap", "tip", "pad", "pad_height", "half")),
        )

    def gap_at(self, driver: float) -> float:
        """Distance between the pads [m]: the parabola through the three known ones."""
        closed, opened = self.stroke
        slope, bend = self._parabola
        u = (driver - closed) / (opened - closed)
        return self.gap[0] + u * (slope + bend * u)

    def driver_at(self, gap: float) -> float:
        """The driver coordinate at which the pads are `gap` apart [rad or m]."""
        closed, opened = self.stroke
        slope, bend = self._parabola
        rise = gap - self.gap[0]
        return closed + 2.0 * rise / (slope + (slope**2 + 4.0 * bend * rise) ** 0.5) * (
            opened - closed
        )

    @property
    def _parabola(self) -> tuple[float, float]:
        shut, half_way, wide = self.gap
        return 4.0 * half_way - 3.0 * shut - wide, 2.0 * (shut + wide) - 4.0 * half_way

    def room_at(self, driver: float) -> float:
        """By how much the pads are wider than the cube, 1 when open."""
        return (self.gap_at(driver) - 2.0 * self.half) / (self.gap[2] - 2.0 * self.half)


def carried(
    hand: Hand, poses: np.ndarray, cube: np.ndarray, held: bool, before: float, after: float
) -> tuple[np.ndarray, bool, float]:
    """What becomes of a cube while a hand moves from one pose to another: it is held, carried or
    let go.

    It is the simulator's `grasp.move_cube` but for pushing: a cube that the pads meet ends between
    them, others stay.

    Args:
        poses: (2, 4, 4) of the TCP before and after.
        cube: (3,) centre in the base frame [m].
        before, after: driver coordinates, the second as it would be without the cube.

    Returns:
        The cube, whether it is held, and the driver coordinate after.
    """
    (R, R_after), (p, tcp) = poses[:, :3, :3] @ hand.axes, poses[:, :3, 3]
    if held:
        cube = tcp + R_after @ (R.T @ (cube - p))
        cube[2] = max(cube[2], hand.half)  # the table lets it slip in the pads
    x, y, z = R_after.T @ (cube - tcp)
    across, below = hand.half + hand.pad - abs(x), hand.tip + hand.half - z
    above = z + hand.half - (hand.tip - hand.pad_height)
    wide = _width(hand, held, apart := hand.gap_at(before))
    if across <= 0.0 or below <= 0.0 or (not held and abs(y) > apart / 2.0):
        return np.array((*cube[:2], hand.half)) if held else cube, False, after
    gap = max(wanted := hand.gap_at(after), wide)
    room = max(gap / 2.0 - hand.half, 0.0)
    cube = cube + (min(max(y, -room), room) - y) * R_after[:, 1]
    grasp = min(across, below, above) >= OVERLAP and (held or abs(R_after[2, 1]) <= LEVEL)
    holds = bool(grasp and gap <= wide + SOFTNESS)
    cube[2] = max(cube[2], hand.half) if holds else hand.half
    return cube, holds, hand.driver_at(gap) if gap > wanted else after


def _width(hand: Hand, held: bool, gap: float) -> float:
    """How wide the cube is between pads that are `gap` apart [m]: one that is held may be turned in
    them, or be larger or smaller than the task says.
    """
    side = 2.0 * hand.half
    return gap if held and abs(gap - side) > SOFTNESS else side


def way(
    tcp: np.ndarray, scene: Mapping[str, np.ndarray], hand: Hand, constants: Mapping[str, float]
) -> np.ndarray:
    """(3,) from the TCP to where it is to go now [m]: to the grasp, from above; with the cube, to
    the goal.
    """
    if scene["held"][0] > 0.5:
        return scene["goal"] - scene["object"]
    from_cube = tcp - scene["object"]
    aside = np.hypot(from_cube[0], from_cube[1])
    over = min(max(constants["descent"] * (aside - constants["corridor"]), 0.0), constants["hover"])
    over += max(hand.half, hand.tip + constants["table_room"]) - hand.half
    return np.array((-from_cube[0], -from_cube[1], over - from_cube[2]))
