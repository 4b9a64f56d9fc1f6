"""Joint motions that lead somewhere, and what the joints' limits leave of them; as in `envs.tasks`,
for one arm.
"""

from collections.abc import Mapping

import numpy as np

from td3_robot.deploy.robot.limits import Limits

MOVE_GAIN, WAY_GAIN = (
    4.0,
    6.0,
)  # joint speed per distance [1/s]: `move_gain` of reach_pose and of reach_avoid
NEAR_LIMIT = 0.2  # [rad or m] distance from a position limit at which `room` has fallen to 1/e
ROUNDING = 1e-5  # [rad or m] of a motion and what the limits leave of it, when they leave all


def damped(J: np.ndarray, wanted: np.ndarray, constants: Mapping[str, float]) -> np.ndarray:
    """(k,) the motion that J (m, k) makes what is wanted (m,) of, by least squares with the task's
    `damping`.
    """
    return J.T @ np.linalg.solve(J @ J.T + constants["damping"] ** 2 * np.eye(len(J)), wanted)


def inside(q: np.ndarray, limits: Limits) -> np.ndarray:
    """(n,) joint positions held to the limits."""
    return np.minimum(np.maximum(q, limits.lower), limits.upper)


def joint_move(
    q: np.ndarray, target: np.ndarray, limits: Limits, gain: float = MOVE_GAIN
) -> np.ndarray:
    """(n,) in [-1, 1] straight to joint positions (n,), as the simulator's controller `ik` goes
    there.
    """
    distance = target - q
    action = gain * distance / limits.velocity
    braking = gain * np.sqrt(
        np.abs(distance) / (2.0 * limits.acceleration)
    )  # speeds over what joints can brake from
    return action / max(np.abs(action).max(), braking.max(), 1.0)


def room(q: np.ndarray, limits: Limits) -> np.ndarray:
    """(n,) how near each joint is to a limit: -1 at the lower, 1 at the upper, 0 where both are
    far.
    """
    return np.exp((q - limits.upper) / NEAR_LIMIT) - np.exp((limits.lower - q) / NEAR_LIMIT)


def within(
    q: np.ndarray,
    J: np.ndarray,
    wanted: np.ndarray,
    motion: np.ndarray,
    limits: Limits,
    constants: Mapping[str, float],
) -> np.ndarray:
    """(n,) what a motion becomes inside the limits: joints that it would take beyond one go up to
    it, and the others make up for them as far as they can. Two rounds of that, and half a turn a
    joint at most.

    Args:
        wanted: (m,) what J (m, n) makes of the motion (n,), but for the damping.
    """
    stopped = np.zeros(len(q), bool)
    for _ in range(2):
        allowed = inside(q + motion, limits) - q
        stopped = stopped | (np.abs(allowed - motion) > ROUNDING)
        if not stopped.any():
            break
        held = np.where(stopped, allowed, 0.0)
        motion = np.where(stopped, held, damped(J * ~stopped, wanted - J @ held, constants))
    return np.minimum(np.maximum(inside(q + motion, limits) - q, -np.pi), np.pi)


def pointing_down(
    J: np.ndarray,
    approach: np.ndarray,
    way: np.ndarray,
    turn: float | None,
    limits: Limits,
    constants: Mapping[str, float],
) -> np.ndarray:
    """(n,) in [-1, 1] that takes a hand along a way, pointing down: the formula of
    envs/controllers/pointing.py.

    Args:
        J: (6, n).
        approach: (3,) of the hand.
        way: (3,) [m].
        turn: about the vertical [rad]; None leaves it free.
    """
    gain, turns = constants["gain"], () if turn is None else (turn,)
    twist = gain * np.array((*way, -approach[1], approach[0], *turns))
    qd = damped(J[: len(twist)], twist, constants)
    fastest = np.minimum(
        limits.velocity, limits.acceleration / gain
    )  # from which a joint brakes in time
    return qd / max((np.abs(qd) / fastest).max(), 1.0) / limits.velocity
