"""A way among obstacles: the formulas of envs/planning/motion_planner.py, for one arm; and where on
its way the arm is.
"""

import functools
from collections.abc import Mapping
from statistics import NormalDist

import numpy as np

from td3_robot.deploy.observation.inverse_kinematics import joints_at_goal, shares
from td3_robot.deploy.observation.proximity import KINDS, there
from td3_robot.deploy.robot.description import Robot
from td3_robot.deploy.robot.obstacles import Obstacles

EFFORTS = ((32, 16, 8), (32, 64, 32), (64, 128, 64))  # starts, corners and looks
ASIDE, ROOM, NEAR, BARRED = 1.0, 0.01, 5e-3, 1e3  # [rad or m], [m], [m], [s]
COARSE, POINTS, FIRST, TIGHTER = 2, 14, 4, 8
AT_VIA = 0.15  # a corner is passed when every joint is this near to it [rad or m]


def way(
    robot: Robot, q: np.ndarray, goal: np.ndarray, obstacles: Obstacles
) -> tuple[np.ndarray, np.ndarray]:
    """The corner and the end (n,) of a way from q (n,) to a goal (3,), see
    envs/planning/motion_planner.py.
    """
    via, solution, found = _search(robot, q, goal, obstacles, *EFFORTS[0])
    for effort in EFFORTS[1:]:
        if found:
            break
        via, solution, found = _search(robot, q, goal, obstacles, *effort)
    return via, solution


def room(
    robot: Robot,
    q: np.ndarray,
    via: np.ndarray,
    ends: np.ndarray,
    obstacles: Obstacles,
    points: int,
):
    """(K,) the least clearance on ways from q (n,) over corners (K, n) to their ends (K, n), these
    left out [m].
    """
    share = np.linspace(0, 1, points + 1)[1:, None, None]
    legs = np.concatenate((q + share * (via - q), via + share[:-1] * (ends - via)))
    return clearance(robot, legs.reshape(-1, len(q)), obstacles).reshape(len(legs), -1).min(0)


def clearance(robot: Robot, q: np.ndarray, obstacles: Obstacles) -> np.ndarray:
    """(m,) of configurations (m, n) [m]."""
    assert robot.capsules is not None
    return robot.capsules.clearance(robot.chain.frames(q), obstacles)


class Led:
    """The way to the goal of the moment. It is looked for again when the goal is another one, and
    when what stands around has moved into what is left of it.
    """

    names = ("via", "solution", "passed")

    def __init__(self, robot: Robot):
        self._robot = robot
        self._around: dict[str, np.ndarray] = {}

    def __call__(self, q: np.ndarray, scene: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """`via` and `solution` (n,) and `passed` (1,), for a scene with a goal (3,) and obstacles
        in their slots.
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
                **{name: around[name][there(name, around[name])] for name in KINDS}, ground=0.0
            )
            if "goal" in changed or self._barred(q, obstacles):
                self._via, self._solution = way(self._robot, q, around["goal"], obstacles)
                self._passed = False
            self._around = {name: value.copy() for name, value in around.items()}
        self._passed = self._passed or bool(np.abs(q - self._via).max() < AT_VIA)
        return {
            "via": self._via,
            "solution": self._solution,
            "passed": np.array([float(self._passed)]),
        }

    def _barred(self, q: np.ndarray, obstacles: Obstacles) -> bool:
        """Whether what is left of the way is not free."""
        via = self._solution if self._passed else self._via
        end = self._solution[None]  # `room` leaves it out
        least = min(
            room(self._robot, q, via[None], end, obstacles, POINTS)[0],
            *clearance(self._robot, end, obstacles),
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
    solution, error = joints_at_goal(robot, q, goal, starts - 1)
    lacks, left = ROOM - clearance(robot, solution, obstacles), np.linalg.norm(error, axis=1)
    fault = np.where(lacks < 0, 0.0, BARRED * (1.0 + lacks)) + np.where(
        left < NEAR, 0.0, BARRED * (1.0 + left)
    )
    share = shares(len(q) + 1, corners)[:, 0, None]
    via = q + share * (solution[:, None] - q) + _aside(len(q), corners)
    via = np.minimum(np.maximum(via, robot.limits.lower), robot.limits.upper)
    legs = np.stack((via - q, solution[:, None] - via))
    time = ((np.abs(legs) / robot.limits.velocity).max(3).sum(0) + fault[:, None]).ravel()
    ends, via = np.repeat(solution, corners, 0), via.reshape(-1, len(q))
    for count, points in ((FIRST * looks, COARSE), (looks, POINTS)):
        quickest = np.argsort(time, kind="stable")[:count]
        ends, via = ends[quickest], via[quickest]
        lacks = ROOM - room(robot, q, via, ends, obstacles, points)
        time = time[quickest] + np.where(lacks < 0, 0.0, BARRED * (1.0 + lacks))
    best = time.argmin()
    if time[best] >= BARRED:
        return via[best], ends[best], False
    return _tightened(robot, q, via[best], ends[best], obstacles), ends[best], True


def _tightened(
    robot: Robot, q: np.ndarray, via: np.ndarray, end: np.ndarray, obstacles: Obstacles
) -> np.ndarray:
    there, on = (np.abs((b - a) / robot.limits.velocity).max() for a, b in ((q, via), (via, end)))
    straight = q + there / max(there + on, 1e-9) * (end - q)
    corners = via + np.arange(TIGHTER)[:, None] / TIGHTER * (straight - via)
    free = room(robot, q, corners, np.broadcast_to(end, corners.shape), obstacles, POINTS) > ROOM
    return corners[(free * np.arange(TIGHTER)).max()]


@functools.cache
def _aside(n: int, corners: int) -> np.ndarray:
    """(V, n) offsets of corners from the straight line, the first none."""
    share = np.clip(shares(n + 1, corners)[:, 1:], 1e-3, 1.0 - 1e-3)
    aside = ASIDE * np.vectorize(NormalDist().inv_cdf)(share)
    aside[0] = 0.0
    return aside
