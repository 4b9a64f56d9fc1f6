"""Distances of an arm to itself, the ground and obstacles, for a few configurations together.

The arm is the capsules of its description: all points within a radius of a segment. The formulas
are those of the simulator's guard (envs/collision/geometry.py); a test holds both to the same
numbers. Vectors are component-first, (3, m, ...), and all segments are placed by one matrix
product: with so few numbers the calls are what takes time.
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from td3_robot.deploy.robot.kinematics import Chain
from td3_robot.deploy.robot.obstacles import Obstacles
from td3_robot.deploy.robot.rotations import to_matrix

MOST = 10.0  # [m] what is not there counts as this far
_TINY = 1e-12
_FLAT = 1e-7  # [m2] a slope that is rounding
_SKIN = 1e-6  # [m] within this of a face, a point counts as inside
_PARALLEL = 1e-9  # [m] added to an extent, which is zero where a segment is parallel to a face
_STEEPEST = 1e9  # [m2] more than any slope: it stands for one that falls or rises nowhere
_NO_RISE = 1e-30  # [m2] least divisor, for where the slope does not rise and the middle is taken


class CapsuleSegments(NamedTuple):
    """Capsules of an arm in m configurations, in the base frame [m].

    Attributes:
        p, d: (3, m, K) start and extent of every segment.
        r: (3, m, P) from the start of the second segment of each checked pair to the first's;
            first, second: their extents.
    """

    p: np.ndarray
    d: np.ndarray
    r: np.ndarray
    first: np.ndarray
    second: np.ndarray


@dataclass(frozen=True)
class Follower:
    """A link that follows a joint of the arm: one more body, after the arm's.

    Attributes:
        parent: the body that carries it, an earlier one.
        joint: the joint of the arm that it follows.
        multiplier, offset: its own joint is at multiplier * that joint's position + offset.
        prismatic: whether it slides along the z axis of its frame, or turns about it.
        constant: (4, 4) its frame in that of its parent with its own joint at 0.
    """

    parent: int
    joint: int
    multiplier: float
    offset: float
    prismatic: bool
    constant: np.ndarray

    def compute_step(self, q: np.ndarray) -> np.ndarray:
        """Compute its frames (m, 4, 4) in those of its parent, at joint positions (m, n)."""
        position = self.multiplier * q[:, self.joint] + self.offset
        step = np.tile(np.eye(4), (len(q), 1, 1))
        if self.prismatic:
            step[:, 2, 3] = position
        else:
            step[:, 0, 0] = step[:, 1, 1] = np.cos(position)
            step[:, 1, 0] = np.sin(position)
            step[:, 0, 1] = -step[:, 1, 0]
        return self.constant @ step


@dataclass(frozen=True)
class Capsules:
    """K capsules on the bodies of an arm; body i is what the first i joints carry, with frame i of
    its `Chain`. Those of links that follow joints come after the last of these.

    Attributes:
        bodies: (K,) the body each is on.
        ends: (K, 2, 3) both ends of its segment in the body's frame [m]; radius: (K,) [m].
        first, second: (P,) the pairs that are held against each other.
        over_ground: (G,) those that are held against the ground.
        followers: the links that follow joints.
    """

    bodies: np.ndarray
    ends: np.ndarray
    radius: np.ndarray
    first: np.ndarray
    second: np.ndarray
    over_ground: np.ndarray
    followers: tuple[Follower, ...] = ()

    @functools.cached_property
    def _columns(self) -> np.ndarray:
        """Matrix that takes the frames of all bodies, (3 m, 4 bodies), to `CapsuleSegments`."""
        capsules = np.arange(len(self.bodies))
        count = self.bodies.max(initial=0) + 1
        start, extent = np.zeros((2, count, 4, len(capsules)))
        start[self.bodies, :3, capsules] = self.ends[:, 0]
        start[self.bodies, 3, capsules] = 1.0
        extent[self.bodies, :3, capsules] = self.ends[:, 1] - self.ends[:, 0]
        p = start.reshape(4 * count, -1)
        d = extent.reshape(4 * count, -1)
        i = self.first
        j = self.second
        return np.concatenate((p, d, p[:, i] - p[:, j], d[:, i], d[:, j]), 1)

    @functools.cached_property
    def sizes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(P,) of every checked pair: both segments' squared lengths [m2], and the sum of their
        radii [m].
        """
        squared = np.maximum(((self.ends[:, 1] - self.ends[:, 0]) ** 2).sum(1), _TINY)
        return (
            squared[self.first],
            squared[self.second],
            self.radius[self.first] + self.radius[self.second],
        )

    def place(self, frames: np.ndarray, q: np.ndarray | None = None) -> CapsuleSegments:
        """Return the segments for `Chain.frames` (m, n+1, 4, 4) of joint positions q (m, n), which
        only an arm with followers needs.
        """
        if self.followers:
            assert q is not None
            frames = self._add_followers(frames, q)
        m = len(frames)
        K = len(self.bodies)
        P = len(self.first)
        beside = frames[:, : len(self._columns) // 4, :3].transpose(2, 0, 1, 3).reshape(3 * m, -1)
        found = (beside @ self._columns).reshape(3, m, -1)
        middle = 2 * K + P
        return CapsuleSegments(
            found[..., :K],
            found[..., K : 2 * K],
            found[..., 2 * K : middle],
            found[..., middle : middle + P],
            found[..., middle + P :],
        )

    def measure_self(self, at: CapsuleSegments) -> np.ndarray:
        """Return signed distances (m, P) of the checked pairs [m]."""
        dd, ee, radii = self.sizes
        gap, _ = find_segment_gap(at.r, at.first, at.second, dd, ee)
        return length(gap) - radii

    def measure_surroundings(self, at: CapsuleSegments, obstacles: Obstacles) -> np.ndarray:
        """Return signed distances (m, M) of capsules to obstacles and the ground [m]."""
        # against every obstacle
        p = at.p[..., None]
        d = at.d[..., None]
        found = []
        if len(obstacles.spheres):
            centre = obstacles.spheres[:, :3].T[:, None, None]
            radius = obstacles.spheres[:, 3]
            found.append(length(find_point_gap(p, d, centre)) - radius)
        if len(obstacles.walls):
            normal = obstacles.walls[:, :3].T[:, None, None]
            found.append(dot(normal, p) + np.minimum(dot(normal, d), 0.0) - obstacles.walls[:, 3])
        if len(obstacles.boxes):
            start, extent, _ = transform_to_boxes(p, d, obstacles.boxes)
            found.append(
                measure_box_distance(start, extent, obstacles.boxes[:, 3:6].T[:, None, None])[0]
            )
        m = len(at.p[0])
        radius = self.radius[:, None]
        distances = [(value - radius).reshape(m, -1) for value in found]
        if obstacles.ground is not None:
            lower = at.p[2] + np.minimum(at.d[2], 0.0) - self.radius
            distances.append(lower[:, self.over_ground] - obstacles.ground)
        return np.concatenate(distances, 1) if distances else np.zeros((m, 0))

    def _add_followers(self, frames: np.ndarray, q: np.ndarray) -> np.ndarray:
        """Return the frames of the arm's bodies and, after them, of the links that follow."""
        bodies = list(frames.swapaxes(0, 1))
        for follower in self.followers:
            bodies.append(bodies[follower.parent] @ follower.compute_step(q))
        return np.stack(bodies, 1)

    def find_clearance(
        self, frames: np.ndarray, obstacles: Obstacles, q: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the clearance (m,) from anything, at most `MOST` [m]; arguments as of `place`."""
        at = self.place(frames, q)
        own, around = (
            x.min(1, initial=MOST)
            for x in (self.measure_self(at), self.measure_surroundings(at, obstacles))
        )
        return np.minimum(own, around)

    def find_reach(self, chain: Chain, stroke: np.ndarray) -> np.ndarray:
        """Return the most by which a distance changes per unit of each joint's motion, (n,) [m/rad
        or 1].

        The farthest that a segment's end beyond a joint can be from its axis: the way to it along
        the chain. A link that follows a joint may come towards one that the joint itself moves, so
        there the two fastest count.

        Args:
            stroke: (n,) how far each joint slides at most [m]; those of joints that turn do not
                count.
        """
        links = np.linalg.norm(chain.constants[1:, :3, 3], axis=1) + np.where(
            chain.prismatic, stroke, 0.0
        )
        farthest = np.linalg.norm(self.ends, axis=2).max(1)  # of each capsule's ends
        # each row (n,): how far a unit of each joint's motion moves one capsule at most
        speeds = [np.where(chain.prismatic, 1.0, 0.0), np.zeros(chain.n)]
        for body, distance in zip(self.bodies, farthest):  # distance: of the end from its frame
            speed = np.zeros(chain.n)
            while body > chain.n:
                follower = self.followers[body - chain.n - 1]
                step = 1.0 if follower.prismatic else distance
                speed[follower.joint] += abs(follower.multiplier) * step
                distance = distance + np.linalg.norm(follower.constant[:3, 3])
                if follower.prismatic:
                    slide = abs(follower.multiplier) * stroke[follower.joint]
                    distance = distance + slide + abs(follower.offset)
                body = follower.parent
            for joint in range(body):
                slides = chain.prismatic[joint]
                speed[joint] += 1.0 if slides else links[joint:body].sum() + distance
            speeds.append(speed)
        second, first = np.sort(speeds, axis=0)[-2:]
        leaders = [follower.joint for follower in self.followers]
        return np.where(np.isin(np.arange(chain.n), leaders), first + second, first)


def find_segment_gap(
    r: np.ndarray, d: np.ndarray, e: np.ndarray, dd: np.ndarray, ee: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the vector (3, ...) from the nearest point of u + t e to that of p + s d [m], and s
    (...).

    Ericson, Real-Time Collision Detection (2005), section 5.1.9, each parameter once more the best
    for the other.

    Args:
        r: (3, ...) p - u.
        dd, ee: the squared lengths of d and e, not 0, in a shape that broadcasts [m2].
    """
    de = dot(d, e)
    dr = dot(d, r)
    er = dot(e, r)
    s = _clamp_to_unit((de * er - dr * ee) / np.maximum(dd * ee - de * de, _TINY**2))
    t = _clamp_to_unit((er + de * s) / ee)
    s = _clamp_to_unit((de * t - dr) / dd)
    return r + s * d - t * e, s


def find_point_gap(p: np.ndarray, d: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Return the vector (3, ...) from a point to the nearest of p + s d [m]."""
    r = p - point
    return r + _clamp_to_unit(-dot(d, r) / np.maximum(dot(d, d), _TINY)) * d


def transform_to_boxes(
    p: np.ndarray, d: np.ndarray, boxes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Transform segments p, d (3, m, K, 1) into the frames of boxes (N, 10): return (3, m, K, N)
    twice, and the axes (N, 3, 3).
    """
    R = to_matrix(boxes[:, 6:])

    def rotate(x):
        return np.einsum("nji,j...n->i...n", R, x)

    return (
        rotate(p - boxes[:, :3].T[:, None, None]),
        rotate(np.broadcast_to(d, (*d.shape[:-1], len(boxes)))),
        R,
    )


def measure_box_distance(
    p: np.ndarray, d: np.ndarray, half: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measure the signed distance (...) of the segment p + s d to the box |x_k| <= half_k, all
    (3, ...) in the box's own frame [m]; return it, the unit vector (3, ...) along which it grows,
    and s (...) of the nearest point.
    """
    nearest = _find_box_minimum(p, d, half)
    x = p + nearest * d
    beyond = np.abs(x) - half
    deepest = beyond.max(0)
    outside = np.maximum(beyond, 0.0)
    distance = length(outside)
    normal = np.where(distance > _SKIN, outside / np.maximum(distance, _SKIN), beyond >= deepest)
    return distance + np.minimum(deepest, 0.0), np.copysign(normal, x), nearest


def _find_box_minimum(p: np.ndarray, d: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Find the s (...) of the point p + s d of a segment that is nearest to a box.

    Half the squared distance has a slope along the segment that rises, and is linear between the
    planes of the faces; its zero is found by interpolation. Inside the box the middle of the way is
    taken, where the depth is at least half of the greatest.
    """
    # where the segment crosses the planes of the six faces, and both its ends
    step = d + np.copysign(_PARALLEL, d)
    s = np.concatenate(
        ((half - p) / step, (-half - p) / step, np.zeros_like(p[:1]), np.ones_like(p[:1]))
    )
    s = _clamp_to_unit(s)  # (8, ...)
    # the slope of half the squared distance there, which rises along s
    x = p[:, None] + s * d[:, None]
    side = half[:, None]
    slope = dot(x - np.minimum(np.maximum(x, -side), side), d[:, None])
    # its zero, between the last s at which it falls and the first at which it rises
    falls = slope < _FLAT
    rises = slope > -_FLAT
    lower = (s * falls).max(0)
    upper = np.where(rises, s, 1.0).min(0)
    before = np.minimum(np.where(falls, slope, -np.inf).max(0), 0.0)
    after = np.maximum(np.where(rises, slope, np.inf).min(0), 0.0)
    before = np.maximum(before, -_STEEPEST)
    after = np.minimum(after, _STEEPEST)
    share = np.where(before < after, -before / np.maximum(after - before, _NO_RISE), 0.5)
    return lower + share * (upper - lower)


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute the inner product over the first axis of two (3, ...)."""
    return np.add.reduce(a * b)


def length(a: np.ndarray) -> np.ndarray:
    """Compute the Euclidean norm over the first axis, (3, ...) -> (...)."""
    return np.sqrt(dot(a, a))


def _clamp_to_unit(x: np.ndarray) -> np.ndarray:
    """Clamp to [0, 1]."""
    return np.minimum(np.maximum(x, 0.0), 1.0)
