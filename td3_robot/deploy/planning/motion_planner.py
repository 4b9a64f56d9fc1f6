"""A path among obstacles, as envs/planning/motion_planner.py plans it, for one arm."""

import functools
from collections.abc import Mapping
from statistics import NormalDist

import numpy as np

from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.planning.inverse_kinematics import fill_unit_cube, find_joints_at_goal
from td3_robot.deploy.robot.description import Robot
from td3_robot.deploy.robot.obstacles import KINDS, Obstacles, find_present

EFFORTS = ((32, 16, 8), (32, 64, 32), (64, 128, 64))  # starts, corners and looks
ASIDE = 1.0  # standard deviation of a corner about the straight line [rad or m]
ROOM = 0.01  # clearance all along a path [m]
NEAR = 5e-3  # from the goal, as a solution [m]
SAME = 1e-3  # difference of joint positions that are one solution [rad or m]
BARRED = 1e3  # by which a path that is not free counts longer, and for each metre it lacks [s]
COARSE = 2  # configurations on a leg of a path that may be free
POINTS = 14  # and of one that is looked at closely
FIRST = 4  # as many times more are looked at coarsely
TIGHTER = 8  # places between a corner and the straight line that it may move to
AT_VIA = 0.15  # a corner is passed when every joint is this near to it [rad or m]


def plan_path(
    robot: Robot, q: np.ndarray, goal: np.ndarray, obstacles: Obstacles
) -> tuple[np.ndarray, np.ndarray]:
    """Return the corner and the end (n,) of a path from q (n,) to a goal (3,)."""
    via, solution, found = _search(robot, q, goal, obstacles, *EFFORTS[0])
    for effort in EFFORTS[1:]:
        if found:
            break
        via, solution, found = _search(robot, q, goal, obstacles, *effort)
    return via, solution


def find_room(
    robot: Robot,
    q: np.ndarray,
    via: np.ndarray,
    ends: np.ndarray,
    obstacles: Obstacles,
    points: int,
):
    """Return the least clearance (K,) on paths from q (n,) over corners (K, n) to their ends
    (K, n), these left out [m].
    """
    share = np.linspace(0, 1, points + 1)[1:, None, None]
    legs = np.concatenate((q + share * (via - q), via + share[:-1] * (ends - via)))
    return find_clearance(robot, legs.reshape(-1, len(q)), obstacles).reshape(len(legs), -1).min(0)


def find_clearance(robot: Robot, q: np.ndarray, obstacles: Obstacles) -> np.ndarray:
    """Return the clearance (m,) of configurations (m, n) [m].

    Raises:
        DeployError: the robot's shape is not known.
    """
    if robot.capsules is None:
        raise DeployError(
            f"robot {robot.name!r} has no capsules, so no path among obstacles can be planned"
        )
    return robot.capsules.find_clearance(robot.chain.frames(q), obstacles, q)


def is_at_corner(q: np.ndarray, via: np.ndarray) -> bool:
    """Return whether an arm at q (n,) is near enough to the corner (n,) to continue from there."""
    return bool(np.abs(q - via).max() < AT_VIA)


class PathFollower:
    """The path to the current goal, planned again for another goal, and when an obstacle has moved
    into what is left of it.
    """

    names = ("via", "solution", "passed")

    def __init__(self, robot: Robot):
        self._robot = robot
        self._around: dict[str, np.ndarray] = {}

    def __call__(self, q: np.ndarray, scene: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return `via` and `solution` (n,) and `passed` (1,), for a scene with a goal (3,) and
        obstacles in their slots.
        """
        around = {name: scene[name] for name in ("goal", *KINDS)}
        known = self._around
        changed = [
            name
            for name in around
            if name not in known or not np.array_equal(around[name], known[name])
        ]
        if changed:
            obstacles = Obstacles(
                **{name: around[name][find_present(name, around[name])] for name in KINDS},
                ground=0.0,
            )
            if "goal" in changed or self._is_barred(q, obstacles):
                self._via, self._solution = plan_path(self._robot, q, around["goal"], obstacles)
                self._passed = False
            self._around = {name: value.copy() for name, value in around.items()}
        self._passed = self._passed or is_at_corner(q, self._via)
        return {
            "via": self._via,
            "solution": self._solution,
            "passed": np.array([float(self._passed)]),
        }

    def _is_barred(self, q: np.ndarray, obstacles: Obstacles) -> bool:
        """Return whether what is left of the path is not free."""
        via = self._solution if self._passed else self._via
        end = self._solution[None]  # `find_room` leaves it out
        least = min(
            find_room(self._robot, q, via[None], end, obstacles, POINTS)[0],
            *find_clearance(self._robot, end, obstacles),
        )
        return bool(least < ROOM)


def _search(
    robot: Robot,
    q: np.ndarray,
    goal: np.ndarray,
    obstacles: Obstacles,
    starts: int,
    corners: int,
    looks: int,
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return the corner and the end (n,) of the best path, and whether it is free."""
    solution, error = find_joints_at_goal(robot, q, goal, starts - 1)
    lacks = ROOM - find_clearance(robot, solution, obstacles)
    left = np.linalg.norm(error, axis=1)
    fault = np.where(lacks < 0, 0.0, BARRED * (1.0 + lacks)) + np.where(
        left < NEAR, 0.0, BARRED * (1.0 + left)
    )
    apart = np.abs(solution[:, None] - solution).max(2)
    fault[np.tril(apart < SAME, -1).any(1)] = np.inf  # the same corners are looked at once
    share = fill_unit_cube(len(q) + 1, corners)[:, 0, None]
    via = q + share * (solution[:, None] - q) + _draw_offsets(len(q), corners)
    via = np.minimum(np.maximum(via, robot.limits.lower), robot.limits.upper)
    legs = np.stack((via - q, solution[:, None] - via))
    time = ((np.abs(legs) / robot.limits.velocity).max(3).sum(0) + fault[:, None]).ravel()
    ends = np.repeat(solution, corners, 0)
    via = via.reshape(-1, len(q))
    for count, points in ((FIRST * looks, COARSE), (looks, POINTS)):
        quickest = np.argsort(time, kind="stable")[:count]
        ends = ends[quickest]
        via = via[quickest]
        lacks = ROOM - find_room(robot, q, via, ends, obstacles, points)
        time = time[quickest] + np.where(lacks < 0, 0.0, BARRED * (1.0 + lacks))
    best = time.argmin()
    if time[best] >= BARRED:
        return via[best], ends[best], False
    return _tighten(robot, q, via[best], ends[best], obstacles), ends[best], True


def _tighten(
    robot: Robot, q: np.ndarray, via: np.ndarray, end: np.ndarray, obstacles: Obstacles
) -> np.ndarray:
    """Return the corner (n,) of a free path, moved to the farthest of `TIGHTER` places towards the
    straight line where the path is free; nearer places may be blocked.
    """
    first, second = (
        np.abs((b - a) / robot.limits.velocity).max() for a, b in ((q, via), (via, end))
    )
    straight = q + first / max(first + second, 1e-9) * (end - q)
    corners = via + np.arange(TIGHTER)[:, None] / TIGHTER * (straight - via)
    free = (
        find_room(robot, q, corners, np.broadcast_to(end, corners.shape), obstacles, POINTS) > ROOM
    )
    return corners[np.flatnonzero(free).max(initial=0)]  # 0: the corner as it was


@functools.cache
def _draw_offsets(n: int, corners: int) -> np.ndarray:
    """Return offsets (V, n) of corners from the straight line, the first none."""
    share = np.clip(fill_unit_cube(n + 1, corners)[:, 1:], 1e-3, 1.0 - 1e-3)
    aside = ASIDE * np.vectorize(NormalDist().inv_cdf)(share)
    aside[0] = 0.0
    return aside
