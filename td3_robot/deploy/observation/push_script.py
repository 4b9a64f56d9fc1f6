"""What a policy that pushes sees of where its hand is to go: the formulas of envs/tasks/push.py."""

from collections.abc import Mapping

import numpy as np

from td3_robot.deploy.observation.grasp import Hand

LEVEL, UP = np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])


def way(
    tcp: np.ndarray, scene: Mapping[str, np.ndarray], hand: Hand, constants: Mapping[str, float]
) -> np.ndarray:
    """(3,) from the TCP to where it is to go now [m]: up beside the cube, down behind it, against
    it and on.
    """
    cube, ahead = scene["object"], _towards(scene)
    left = np.linalg.norm(scene["goal"] - cube)
    if left < constants["near"]:
        return np.zeros(3)
    beyond = (tcp - cube) * LEVEL
    along = beyond @ ahead  # negative behind the cube
    aside = beyond - along * ahead
    down = max(hand.half, hand.tip + constants["table_room"]) - tcp[2]
    behind, corridor = constants["behind"], constants["corridor"]
    lined_up = (
        -behind - corridor < along < -hand.half
        and abs(down) < corridor
        and np.linalg.norm(aside) < corridor
    )
    if lined_up:
        return min(left, constants["stride"]) * ahead - aside + down * UP
    to_start = -beyond - behind * ahead
    over = constants["descent"] * (np.linalg.norm(to_start) - corridor)
    rise = down + min(max(over, 0.0), constants["hover"])
    straight_up = np.linalg.norm(beyond) < behind - corridor and rise > corridor
    return rise * UP if straight_up else to_start + rise * UP


def turn(across: np.ndarray, scene: Mapping[str, np.ndarray]) -> float:
    """By how much a hand, one of whose axes is `across` (3,), has to turn to be square to the push
    [rad].
    """
    ahead = _towards(scene)
    angle = np.arctan2(ahead[1], ahead[0]) - np.arctan2(across[1], across[0])
    return np.arctan2(np.sin(4.0 * angle), np.cos(4.0 * angle)) / 4.0


def _towards(scene: Mapping[str, np.ndarray]) -> np.ndarray:
    """(3,) of unit length from the cube to its goal; zero where it is there."""
    missing = scene["goal"] - scene["object"]
    return missing / max(np.linalg.norm(missing), 1e-12)
