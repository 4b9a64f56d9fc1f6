"""What a policy among obstacles sees of them, of the ground and of the arm itself: the formulas of
envs/collision/proximity.py, envs/tasks/reach_avoid.py and envs/controllers/reactive.py, for one
arm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.robot.capsules import (
    MOST,
    Placed,
    box_gap,
    dot,
    in_boxes,
    length,
    point_gap,
    segment_gap,
)
from td3_robot.deploy.robot.description import Robot
from td3_robot.deploy.robot.obstacles import FAR

TINY = 1e-9  # [m] not to divide by no distance
GAIN, EFFORT, SWEEPS, LEAST_ERROR, LEAST_EFFECT = (
    8.0,
    0.01,
    4,
    1e-4,
    1e-9,
)  # of envs/controllers/reactive.py
JOINT, AROUND, ITSELF = (
    (0.05, 0.9, 1.0),
    (0.02, 0.3, 1.0),
    (0.01, 0.1, 1.0),
)  # its dampers: stop, influence, gain
KINDS = {"spheres": 4, "boxes": 10, "walls": 4}  # of obstacles, and how many numbers each has
IDENTITY = np.eye(3)
GROUND = np.array([[0.0, 0.0, 1.0, 0.0]])  # as a wall
SHOWN = {"spheres": 5, "boxes": 9, "walls": 5}  # and how many columns show it


@dataclass(frozen=True)
class Links:
    """Which capsules are on which link of an arm.

    Attributes:
        capsules: (L, C) those on each; one that has fewer than others repeats its first.
        bodies: (L,) how many joints move each.
        moving: which rows of a `Nearest` change by the arm's motion.
        pushed: which elements of its gradient are not always zero.
    """

    capsules: np.ndarray
    bodies: np.ndarray
    moving: np.ndarray
    pushed: np.ndarray

    @classmethod
    def of(cls, links: Sequence[int], robot: Robot, position_joints: int) -> "Links":
        """From a policy's metadata: the link of each capsule."""
        if robot.capsules is None:
            raise DeployError(
                f"robot {robot.name!r} has no capsules, so that nothing says what it is near to"
            )
        on = [np.flatnonzero(np.array(links) == link) for link in range(max(links) + 1)]
        most = max(map(len, on))
        capsules = np.array([np.append(some, np.repeat(some[0], most - len(some))) for some in on])
        bodies, n = robot.capsules.bodies[capsules[:, 0]], robot.limits.n
        moving = [row for row, body in enumerate((*bodies, position_joints)) if body > 1]
        pushed = [row * n + joint for row in moving for joint in range((*bodies, n)[row])]
        return cls(capsules, bodies, np.array(moving), np.array(pushed))


@dataclass(frozen=True)
class Nearest:
    """How far each link is from obstacles and the ground, and, the last row, the arm from itself.

    Attributes:
        distance: (L + 1,) at most `MOST` [m].
        gradient: (L + 1, n) of that by the joint positions [m/rad or m/m].
    """

    distance: np.ndarray
    gradient: np.ndarray


def nearest(
    robot: Robot, links: Links, frames: np.ndarray, scene: Mapping[str, np.ndarray]
) -> Nearest:
    """What an arm is near to.

    Args:
        frames: (1, n+1, 4, 4) of `Chain.frames`.
        scene: `spheres` (S, 4), `boxes` (N, 10) and `walls` (W, 4), spare ones parked, see
            `Obstacles.in_slots`.
    """
    assert robot.capsules is not None
    at, joints = robot.capsules.placed(frames), np.arange(robot.limits.n)
    distances, normals, points = _surroundings(robot, at, scene)
    capsule = np.arange(len(distances))
    best = distances.argmin(1)
    least = distances[capsule, best]
    rows = np.arange(len(links.bodies))
    chosen = links.capsules[rows, least[links.capsules].argmin(1)]
    own, own_u, own_x, by = _itself(robot, at, joints)
    to = best[chosen]
    u = np.concatenate((normals[:, chosen, to], own_u), 1)
    x = np.concatenate((points[:, chosen, to], own_x), 1)
    distance = np.minimum(np.concatenate((least[chosen], (own,))), MOST)
    z, o = frames[0, :-1, :3, 2].T, frames[0, :-1, :3, 3].T
    linear, angular = _cross(o, z), z
    if robot.chain.prismatic.any():
        slides = robot.chain.prismatic
        linear, angular = np.where(slides, z, linear), np.where(slides, 0.0, z)
    rates = u.T @ linear + _cross(x, u).T @ angular
    moved = np.concatenate((joints < links.bodies[:, None], by))
    return Nearest(distance, rates * moved * (distance < MOST)[:, None])


def _surroundings(
    robot: Robot, at: Placed, scene: Mapping
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every capsule and all there is: distance (K, M), the direction in which it grows and the
    nearest point of the capsule's segment, (3, K, M).
    """
    assert robot.capsules is not None
    p, d = at.p[:, 0, :, None], at.d[:, 0, :, None]
    spheres, boxes, walls = (scene[name][there(name, scene[name])] for name in KINDS)
    planes = np.concatenate((walls, GROUND))  # one more
    normal = planes[:, :3].T[:, None]
    point = p + (dot(normal, d) < 0) * d
    distance = dot(normal, point) - planes[:, 3]
    over, height = robot.capsules.over_ground, distance[:, -1].copy()
    distance[:, -1] = 2.0 * MOST
    distance[over, -1] = height[over]
    found = [(distance, normal + np.zeros_like(point), point)]
    if len(spheres):
        centre = spheres[:, :3].T[:, None]
        gap = point_gap(p, d, centre)
        far = length(gap)
        found.append((far - spheres[:, 3], gap / np.maximum(far, TINY), centre + gap))
    if len(boxes):
        start, extent, R = in_boxes(at.p[..., None], at.d[..., None], boxes)
        distance, normal, s = box_gap(start[:, 0], extent[:, 0], boxes[:, 3:6].T[:, None])
        found.append((distance, np.einsum("nij,jkn->ikn", R, normal), p + s * d))
    distances, normals, points = (np.concatenate(parts, -1) for parts in zip(*found))
    return distances - robot.capsules.radius[:, None], normals, points


def _itself(
    robot: Robot, at: Placed, joints: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Of the nearest checked pair: distance, direction and point (3, 1), and by which joints (1,
    n).
    """
    capsules = robot.capsules
    assert capsules is not None
    if not len(capsules.first):
        return MOST, np.zeros((3, 1)), np.zeros((3, 1)), np.zeros((1, len(joints)))
    dd, ee, radii = capsules.sizes
    gap, s = segment_gap(at.r[:, 0], at.first[:, 0], at.second[:, 0], dd, ee)
    far = length(gap)
    pair = int((far - radii).argmin())
    i, j = capsules.first[pair], capsules.second[pair]
    by = (joints < capsules.bodies[i]) * 1.0 - (joints < capsules.bodies[j])
    point = at.p[:, 0, i] + s[pair] * at.d[:, 0, i]
    return (
        far[pair] - radii[pair],
        (gap[:, pair] / max(far[pair], TINY))[:, None],
        point[:, None],
        by[None],
    )


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Over the first axis; np.cross takes several times as long."""
    return np.array(
        (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
    )


def reactive(
    J: np.ndarray, error: np.ndarray, near: Nearest, q: np.ndarray, robot: Robot
) -> np.ndarray:
    """(n,) the action in [-1, 1] of the simulator's reactive controller.

    Args:
        J: (3, n) of the TCP's position; error: (3,) to the goal [m].
    """
    e, limits = max(np.abs(error).sum(), LEAST_ERROR), robot.limits
    inverse = np.linalg.solve(J @ J.T + EFFORT * e * IDENTITY, J).T
    qd = inverse @ (GAIN * error)
    dampers = [AROUND] * (len(near.distance) - 1) + [ITSELF]
    rows = [row for row, damper in enumerate(dampers) if near.distance[row] < damper[1]]
    if rows:
        h = [_damped(near.distance[row], *dampers[row]) for row in rows]
        qd = _behind(-near.gradient[rows], h, qd, inverse, J)
    low, high = _slowed(np.array((q - limits.lower, limits.upper - q)), limits.velocity)
    return np.minimum(np.maximum(qd, -low), high) / limits.velocity


def _behind(
    G: np.ndarray, h: list[float], qd: np.ndarray, inverse: np.ndarray, J: np.ndarray
) -> np.ndarray:
    """(n,) speeds led into the half-spaces G qd <= h by Hildreth's sweeps, see
    envs/controllers/halfspaces.py.

    The sweeps go by what each damper has of G qd, and by what a step along one changes in the
        others: plain numbers.
    """
    direction = G - (G @ inverse) @ J
    across = direction @ G.T
    step = direction / np.maximum(across.diagonal(), LEAST_EFFECT)[:, None]
    effect, over = (step @ G.T).tolist(), (G @ qd - h).tolist()
    so_far = [0.0] * len(h)
    for _ in range(SWEEPS):
        for k, beyond in enumerate(effect):
            further = max(over[k], -so_far[k])
            if further:
                so_far[k] += further
                over = [value - further * change for value, change in zip(over, beyond)]
    return qd - so_far @ step


def _slowed(room: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """(2, n) how fast joints may go towards limits that are `room` away."""
    return np.minimum(np.where(room < JOINT[1], _damped(room, *JOINT), np.inf), velocity)


def _damped(distance, stop: float, influence: float, gain: float):
    """The speed at which a damper lets a distance fall that is below `influence`."""
    return gain * (distance - stop) / (influence - stop)


def shape_of(name: str, width: int) -> tuple[int, ...]:
    """Of what a policy is told by a name, from how many columns show it."""
    return (width // SHOWN[name], KINDS[name]) if name in KINDS else (width,)


def shown(kind: str, value: np.ndarray, tcp: np.ndarray, sight: float) -> np.ndarray:
    """The columns of all obstacles of a kind, see `ReachAvoid.observe`."""
    flag = there(kind, value)[:, None]
    if not flag.any():
        return np.zeros(len(value) * SHOWN[kind])
    if kind == "spheres":
        row = np.concatenate((value[:, :3] - tcp, value[:, 3:]), 1) / sight
    elif kind == "walls":
        row = np.concatenate((value[:, :3], (value[:, :3] @ tcp - value[:, 3])[:, None] / sight), 1)
    else:
        cos, sin = value[:, 6:7], value[:, 9:]  # of half the yaw
        cos, sin = cos * cos - sin * sin, 2.0 * cos * sin  # of the yaw
        place = np.concatenate((value[:, :3] - tcp, value[:, 3:6]), 1) / sight
        row = np.concatenate((place, cos * cos - sin * sin, 2.0 * cos * sin), 1)
    return np.where(flag, np.concatenate((row, flag), 1), 0.0).ravel()


def there(kind: str, value: np.ndarray) -> np.ndarray:
    """Which obstacles are not parked."""
    return value[:, 3] > -FAR / 2 if kind == "walls" else value[:, 0] < FAR / 2
