"""What the scripted pick would do: the formulas of envs/controllers/scripted_pick.py."""

from collections.abc import Mapping

import numpy as np

from td3_robot.deploy.observation.grasp import Hand

GAIN, DAMPING, NEAR, BEGUN = 5.0, 0.05, 0.008, 0.95


def script(
    way: np.ndarray,
    scene: Mapping[str, np.ndarray],
    hand: Hand,
    gripper: float,
    constants: Mapping[str, float],
) -> tuple[np.ndarray, bool]:
    """(3,) where the TCP is to go [m], and whether the gripper is to be shut.

    Args:
        way: (3,) of `hand.way` [m].
        gripper: driver coordinate [rad or m].
    """
    held, left = scene["held"][0] > 0.5, np.linalg.norm(way)
    shutting = hand.gap_at(gripper) < BEGUN * hand.gap[2] and left < 2.0 * NEAR
    if not held:
        return way, bool(left < NEAR or shutting)
    aside = np.hypot(way[0], way[1])
    up = min(max(constants["descent"] * (aside - constants["corridor"]), 0.0), constants["hover"])
    return way + np.array((0.0, 0.0, up)), True
