"""Joint positions for a goal, as envs/planning/goal_solver.py finds them, for one arm."""

from collections.abc import Mapping

import numpy as np

from td3_robot.deploy.robot.description import Robot
from td3_robot.deploy.robot.limits import Limits
from td3_robot.deploy.robot.obstacles import Obstacles
from td3_robot.deploy.robot.rotations import rotation_vector, to_matrix

STARTS = 15  # beside the arm's own positions
LOOKS = 6  # on the straight path to a solution
ITERATIONS = 10
METRES_PER_RADIAN = 0.3  # an angle counts as this distance where the damping is chosen
DAMPING = (0.02, 0.2)  # [m/rad]: at the goal, and per metre that is left
LONGEST = 1.0  # [rad or m] that a joint moves in one iteration
POSITION = 5e-3  # [m] from a goal that counts as reached
ANGLE = 0.03  # [rad] likewise
ROOM = 0.005  # clearance of a solution [m]
# [s] that a path counts longer by whose end is not at the goal, touches, or which is not free
UNSOLVED = 1e4
TOUCHING = 1e3
BARRED = 1e2
GROUND = Obstacles(ground=0.0)


def fill_unit_cube(n: int, count: int) -> np.ndarray:
    """Return points (count, n) that fill [0, 1) evenly in n dimensions, always the same ones."""
    ratio = 2.0
    for _ in range(50):
        ratio = (1.0 + ratio) ** (1.0 / (n + 1))
    return (0.5 + np.arange(1, count + 1)[:, None] * ratio ** -np.arange(1.0, n + 1)) % 1.0


def fill_limits(limits: Limits, count: int) -> np.ndarray:
    """Return joint positions (count, n) that fill the limits evenly."""
    return limits.lower + fill_unit_cube(limits.n, count) * (limits.upper - limits.lower)


def solve_goal(robot: Robot, q: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Return joint positions (n,) for a goal pose (7,): of those that are found the ones to which
    the straight path from q (n,) is shortest and free.
    """
    limits = robot.limits
    found, error = find_joints_at_goal(robot, q, goal, STARTS)
    apart = np.linalg.norm(error[:, :3], axis=1)
    turned = np.linalg.norm(error[:, 3:], axis=1)
    time = (np.abs(found - q) / limits.velocity).max(1)
    time += BARRED * ~_has_free_path(robot, q, found) + TOUCHING * ~_is_free(robot, found, ROOM)
    reached = (apart < POSITION) & (turned < ANGLE)
    time += np.where(reached, 0.0, UNSOLVED * (1.0 + apart + METRES_PER_RADIAN * turned))
    return found[time.argmin()]


class GoalSolver:
    """The solution of the current goal, solved again when another one comes."""

    names = ("solution",)

    def __init__(self, robot: Robot):
        self._robot = robot
        self._goal = np.zeros(0)
        self._solution = np.zeros(0)

    def __call__(self, q: np.ndarray, scene: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return `solution` (n,) for a goal (7,), from q (n,) if the goal is new."""
        if not np.array_equal(scene["goal"], self._goal):
            self._goal = scene["goal"].copy()
            self._solution = solve_goal(self._robot, q, self._goal)
        return {"solution": self._solution}


def find_joints_at_goal(
    robot: Robot, q: np.ndarray, goal: np.ndarray, starts: int, iterations: int = ITERATIONS
) -> tuple[np.ndarray, np.ndarray]:
    """Find joint positions for a goal, beginning at q (n,) and at so many others, without whole
    turns on the path from q.

    Args:
        goal: (7,) a pose, or (3,) a position.
        iterations: of each of them.

    Returns:
        (starts + 1, n), and the error of each, (starts + 1, 6) or (starts + 1, 3) [m, rad].
    """
    tcp = goal[:3]
    R = to_matrix(goal[3:]) if len(goal) > 3 else None
    found = np.concatenate((q[None], fill_limits(robot.limits, starts)))
    for _ in range(iterations):
        found = _iterate(robot, found, tcp, R)
    return _unwind(robot, q, found), _find_error(robot.chain.frames(found)[:, -1], tcp, R)


def _iterate(robot: Robot, q: np.ndarray, tcp: np.ndarray, R: np.ndarray | None) -> np.ndarray:
    """Return joint positions (m, n) after one iteration."""
    limits = robot.limits
    frames = robot.chain.frames(q)
    error = _find_error(frames[:, -1], tcp, R)
    J = robot.chain.jacobian(frames)[:, : error.shape[1]]
    left = np.linalg.norm(error[:, :3], axis=1) + METRES_PER_RADIAN * np.linalg.norm(
        error[:, 3:], axis=1
    )
    damping = DAMPING[0] + DAMPING[1] * left
    motion = _damp(J, error, damping)
    stopped = (q + motion < limits.lower) | (q + motion > limits.upper)
    held = np.where(
        stopped, np.minimum(np.maximum(q + motion, limits.lower), limits.upper) - q, 0.0
    )
    rest = error - np.einsum("mij,mj->mi", J, held)
    motion = np.where(stopped, held, _damp(J * ~stopped[:, None], rest, damping))
    motion *= np.minimum(LONGEST / np.maximum(np.abs(motion).max(1, keepdims=True), 1e-9), 1.0)
    return np.minimum(np.maximum(q + motion, limits.lower), limits.upper)


def find_pose_error(T: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Return the errors (m, 6) [m, rad] of TCP poses (m, 4, 4) to a goal (7,), or (m, 3) to a
    position (3,).
    """
    return _find_error(T, goal[:3], to_matrix(goal[3:]) if len(goal) > 3 else None)


def _find_error(T: np.ndarray, tcp: np.ndarray, R: np.ndarray | None) -> np.ndarray:
    """Return the errors (m, 6) [m, rad] of TCP poses (m, 4, 4), or (m, 3) without orientation."""
    if R is None:
        return tcp - T[:, :3, 3]
    turns = [rotation_vector(turn) for turn in R @ T[:, :3, :3].swapaxes(1, 2)]
    return np.concatenate((tcp - T[:, :3, 3], turns), 1)


def _damp(J: np.ndarray, error: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """Return the motions (m, n) by damped least squares."""
    square = J @ J.swapaxes(1, 2) + damping[:, None, None] ** 2 * np.eye(J.shape[1])
    return np.einsum("mji,mj->mi", J, np.linalg.solve(square, error[:, :, None])[:, :, 0])


def _unwind(robot: Robot, q: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return the positions less whole turns on the path from q, where the limits allow it."""
    turns = np.round((found - q) / (2.0 * np.pi)) * ~robot.chain.prismatic
    limits = robot.limits
    unwound = found - 2.0 * np.pi * turns
    return np.where((unwound >= limits.lower) & (unwound <= limits.upper), unwound, found)


def _has_free_path(robot: Robot, q: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return whether straight paths from q are free where they are looked at, (m,)."""
    share = np.arange(1, LOOKS + 1)[:, None, None] / (LOOKS + 1)
    points = (q + share * (found - q)).reshape(-1, len(q))
    return np.logical_and.reduce(_is_free(robot, points, 0.0).reshape(LOOKS, -1))


def _is_free(robot: Robot, q: np.ndarray, room: float) -> np.ndarray:
    """Return whether arms are more than `room` [m] from themselves and the ground, (m,)."""
    if robot.capsules is None:
        return np.ones(len(q), bool)
    return np.greater(robot.capsules.find_clearance(robot.chain.frames(q), GROUND, q), room)
