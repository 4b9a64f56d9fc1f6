"""Grippers: their joints, which of them are drivers, and how the others follow."""

from dataclasses import dataclass, field

import numpy as np

from td3_robot.errors import unknown


@dataclass
class Gripper:
    """A gripper whose joints all follow one driver coordinate.

    Attributes:
        name: the registry name.
        joints: joint names, in the order of `q`.
        drivers: indices into `q` of the right and the left driver joint.
        mimic: (m,) every joint's position as a multiple of the driver coordinate.
        closed, opened: driver coordinate when shut and when fully open [rad or m].
        speed: largest rate of the driver coordinate [rad/s or m/s].
        q: (m,) current joint positions [rad or m]; starts fully open.
    """

    name: str
    joints: tuple[str, ...]
    drivers: tuple[int, int]
    mimic: np.ndarray
    closed: float
    opened: float
    speed: float
    q: np.ndarray = field(init=False)

    def __post_init__(self):
        self.q = self.mimic * self.opened


def _panda_hand() -> Gripper:
    """Franka hand: two prismatic fingers, 40 mm each.

    Stroke: limits of the finger joints in the roboticstoolbox model. Speed: 50 mm/s a finger, the Franka Hand's
    data sheet; the URDF's 0.2 m/s is a bound that the hand does not reach.
    """
    return Gripper(
        name="panda_hand",
        joints=("panda_leftfinger", "panda_rightfinger"),
        drivers=(0, 1),
        mimic=np.ones(2),
        closed=0.0,
        opened=0.04,
        speed=0.05,
    )


_GRIPPERS = {"panda_hand": _panda_hand}


def make_gripper(name: str) -> Gripper:
    """Build a gripper by its registry name.

    Raises:
        ConfigError: no such gripper.
    """
    if name not in _GRIPPERS:
        raise unknown("gripper", name, _GRIPPERS)
    return _GRIPPERS[name]()
