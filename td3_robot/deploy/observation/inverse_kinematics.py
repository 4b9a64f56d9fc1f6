"""Where a goal is in joint space: what envs/kinematics/inverse.py and envs/planning/goal_solver.py
do, for one arm.
"""

from collections.abc import Mapping

import numpy as np

from td3_robot.deploy.robot.description import Robot
from td3_robot.deploy.robot.limits import Limits
from td3_robot.deploy.robot.obstacles import Obstacles
from td3_robot.deploy.robot.rotations import rotation_vector, to_matrix

STARTS, LOOKS, ITERATIONS = 15, 6, 10
METRES_PER_RADIAN, DAMPING, LONGEST = 0.3, (0.02, 0.2), 1.0
POSITION, ANGLE, ROOM = (
    5e-3,
    0.03,
    0.005,
)  # [m], [rad] what counts as there, and [m] from what would be touched
UNSOLVED, TOUCHING, BARRED = 1e4, 1e3, 1e2  # [s] that the way counts longer by
GROUND = Obstacles(ground=0.0)


def shares(n: int, count: int) -> np.ndarray:
    """(count, n) numbers that fill [0, 1) evenly in n dimensions, always the same ones."""
    ratio = 2.0
    for _ in range(50):
        ratio = (1.0 + ratio) ** (1.0 / (n + 1))
    return (0.5 + np.arange(1, count + 1)[:, None] * ratio ** -np.arange(1.0, n + 1)) % 1.0


def spread(limits: Limits, count: int) -> np.ndarray:
    """(count, n) joint positions that fill the limits evenly."""
    return limits.lower + shares(limits.n, count) * (limits.upper - limits.lower)


def solution(robot: Robot, q: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """(n,) joint positions for a goal pose (7,), of those that are found the ones to which the way
    from q (n,) is shortest and free, see envs/planning/goal_solver.py.
    """
    limits = robot.limits
    found, error = joints_at_goal(robot, q, goal, STARTS)
    apart, turned = np.linalg.norm(error[:, :3], axis=1), np.linalg.norm(error[:, 3:], axis=1)
    time = (np.abs(found - q) / limits.velocity).max(1)
    time += BARRED * ~_free_way(robot, q, found) + TOUCHING * ~_free(robot, found, ROOM)
    there = (apart < POSITION) & (turned < ANGLE)
    time += np.where(there, 0.0, UNSOLVED * (1.0 + apart + METRES_PER_RADIAN * turned))
    return found[time.argmin()]


class Solved:
    """`solution` for the goal of the moment, looked for again when another one comes."""

    names = ("solution",)

    def __init__(self, robot: Robot):
        self._robot = robot
        self._goal, self._solution = np.zeros(0), np.zeros(0)

    def __call__(self, q: np.ndarray, scene: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """(n,) for a goal (7,), from q (n,) if the goal is new."""
        if not np.array_equal(scene["goal"], self._goal):
            self._goal, self._solution = (
                scene["goal"].copy(),
                solution(self._robot, q, scene["goal"]),
            )
        return {"solution": self._solution}


def joints_at_goal(
    robot: Robot, q: np.ndarray, goal: np.ndarray, starts: int
) -> tuple[np.ndarray, np.ndarray]:
    """Joint positions that begin at q (n,) and at so many others, without whole turns on the way
    from q.

    Args:
        goal: (7,) a pose, or (3,) a position.

    Returns:
        (starts + 1, n), and what each lacks, (starts + 1, 6) or (starts + 1, 3) [m, rad].
    """
    tcp, R = goal[:3], to_matrix(goal[3:]) if len(goal) > 3 else None
    found = np.concatenate((q[None], spread(robot.limits, starts)))
    for _ in range(ITERATIONS):
        found = _nearer(robot, found, tcp, R)
    return _unwound(robot, q, found), _error(robot.chain.frames(found)[:, -1], tcp, R)


def _nearer(robot: Robot, q: np.ndarray, tcp: np.ndarray, R: np.ndarray | None) -> np.ndarray:
    """(m, n) one iteration on."""
    frames, limits = robot.chain.frames(q), robot.limits
    error = _error(frames[:, -1], tcp, R)
    J = robot.chain.jacobian(frames)[:, : error.shape[1]]
    left = np.linalg.norm(error[:, :3], axis=1) + METRES_PER_RADIAN * np.linalg.norm(
        error[:, 3:], axis=1
    )
    damping = DAMPING[0] + DAMPING[1] * left
    motion = _led(J, error, damping)
    stopped = (q + motion < limits.lower) | (q + motion > limits.upper)
    held = np.where(
        stopped, np.minimum(np.maximum(q + motion, limits.lower), limits.upper) - q, 0.0
    )
    rest = error - np.einsum("mij,mj->mi", J, held)
    motion = np.where(stopped, held, _led(J * ~stopped[:, None], rest, damping))
    motion *= np.minimum(LONGEST / np.maximum(np.abs(motion).max(1, keepdims=True), 1e-9), 1.0)
    return np.minimum(np.maximum(q + motion, limits.lower), limits.upper)


def _error(T: np.ndarray, tcp: np.ndarray, R: np.ndarray | None) -> np.ndarray:
    """(m, 6) [m, rad] of TCP poses (m, 4, 4), or (m, 3) without an orientation."""
    if R is None:
        return tcp - T[:, :3, 3]
    turns = [rotation_vector(turn) for turn in R @ T[:, :3, :3].swapaxes(1, 2)]
    return np.concatenate((tcp - T[:, :3, 3], turns), 1)


def _led(J: np.ndarray, error: np.ndarray, damping: np.ndarray) -> np.ndarray:
    square = J @ J.swapaxes(1, 2) + damping[:, None, None] ** 2 * np.eye(J.shape[1])
    return np.einsum("mji,mj->mi", J, np.linalg.solve(square, error[:, :, None])[:, :, 0])


def _unwound(robot: Robot, q: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The same poses, without whole turns on the way from q, where the limits allow it."""
    turns = np.round((found - q) / (2.0 * np.pi)) * ~robot.chain.prismatic
    unwound, limits = found - 2.0 * np.pi * turns, robot.limits
    return np.where((unwound >= limits.lower) & (unwound <= limits.upper), unwound, found)


def _free_way(robot: Robot, q: np.ndarray, found: np.ndarray) -> np.ndarray:
    """(m,) whether nothing is touched where one looks on the straight ways from q."""
    share = np.arange(1, LOOKS + 1)[:, None, None] / (LOOKS + 1)
    way = (q + share * (found - q)).reshape(-1, len(q))
    return np.logical_and.reduce(_free(robot, way, 0.0).reshape(LOOKS, -1))


def _free(robot: Robot, q: np.ndarray, room: float) -> np.ndarray:
    """(m,) whether arms are more than `room` [m] away from themselves and the ground."""
    if robot.capsules is None:
        return np.ones(len(q), bool)
    return np.greater(robot.capsules.clearance(robot.chain.frames(q), GROUND), room)
