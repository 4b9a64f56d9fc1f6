"""How near an arm is to itself, to the ground and to obstacles, for a few configurations at once.

The arm is the capsules of its description: all points within a radius of a segment. The formulas are those of the
simulator's guard (envs/collision/geometry.py); a test holds both to the same numbers.
"""

from dataclasses import dataclass

import numpy as np

from td3_robot.deploy.kinematics import Chain
from td3_robot.deploy.obstacles import Obstacles
from td3_robot.deploy.rotations import to_matrix

MOST = 10.0  # [m] what is not there counts as this far
_TINY = 1e-12
_FLAT = 1e-7  # [m2] a slope that is rounding


@dataclass(frozen=True)
class Capsules:
    """K capsules on the bodies of an arm; body i is what the first i joints carry, with frame i of its `Chain`.

    Attributes:
        bodies: (K,) the body each is on.
        ends: (K, 2, 3) both ends of its segment in the body's frame [m]; radius: (K,) [m].
        first, second: (P,) the pairs that are held against each other.
        over_ground: (G,) those that are held against the ground.
    """

    bodies: np.ndarray
    ends: np.ndarray
    radius: np.ndarray
    first: np.ndarray
    second: np.ndarray
    over_ground: np.ndarray

    def segments(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Start and extent of every segment in the base frame, each (m, K, 3) [m], from `Chain.frames`."""
        T = frames[:, self.bodies]  # (m, K, 4, 4)
        points = T[..., :3, :3] @ self.ends.swapaxes(1, 2) + T[..., :3, 3:]
        return points[..., 0], points[..., 1] - points[..., 0]

    def to_itself(self, p: np.ndarray, d: np.ndarray) -> np.ndarray:
        """(m, P) signed distances of the checked pairs [m], from `segments`."""
        i, j = self.first, self.second
        gap = segment_distance(p[:, i], d[:, i], p[:, j], d[:, j])
        return gap - (self.radius[i] + self.radius[j])

    def to_surroundings(self, p: np.ndarray, d: np.ndarray, obstacles: Obstacles) -> np.ndarray:
        """(m, M) signed distances of capsules to obstacles and the ground [m]."""
        found, radius = [], self.radius[:, None]
        q, e = p[:, :, None], d[:, :, None]  # against every obstacle
        if len(obstacles.spheres):
            centre = obstacles.spheres[:, :3]
            r = q - centre
            s = _unit(-_dot(e, r) / np.maximum(_dot(e, e), _TINY))
            found.append(_length(r + s[..., None] * e) - obstacles.spheres[:, 3] - radius)
        if len(obstacles.walls):
            normal = obstacles.walls[:, :3]
            found.append(_dot(q, normal) + np.minimum(_dot(e, normal), 0.0) - obstacles.walls[:, 3] - radius)
        if len(obstacles.boxes):
            R = to_matrix(obstacles.boxes[:, 6:])
            start = np.einsum("nji,mknj->mkni", R, q - obstacles.boxes[:, :3])
            extent = np.einsum("nji,mknj->mkni", R, np.broadcast_to(e, start.shape))
            found.append(box_distance(start, extent, obstacles.boxes[:, 3:6]) - radius)
        if obstacles.ground is not None:
            lower = p[..., 2] + np.minimum(d[..., 2], 0.0) - self.radius - obstacles.ground
            found.append(lower[:, self.over_ground, None])
        none = np.zeros((len(p), 0))
        return np.concatenate([none, *(value.reshape(len(p), -1) for value in found)], 1)

    def clearance(self, frames: np.ndarray, obstacles: Obstacles) -> np.ndarray:
        """(m,) how far the arm is from touching anything, at most `MOST` [m], from `Chain.frames`."""
        p, d = self.segments(frames)
        distances = (self.to_itself(p, d), self.to_surroundings(p, d, obstacles))
        return np.concatenate([np.full((len(p), 1), MOST), *distances], 1).min(1)

    def reach(self, chain: Chain, stroke: np.ndarray) -> np.ndarray:
        """(n,) by how much a distance can change at most per unit of each joint's motion [m/rad or 1].

        The farthest that a segment's end beyond a joint can be from its axis: the way to it along the chain.

        Args:
            stroke: (n,) how far each joint slides at most [m]; of one that turns it does not count.
        """
        links = np.linalg.norm(chain.constants[1:, :3, 3], axis=1) + np.where(chain.prismatic, stroke, 0.0)
        out = np.linalg.norm(self.ends, axis=2).max(1)
        most = np.zeros(chain.n)
        for body, beyond in zip(self.bodies, out):
            for joint in range(body):
                most[joint] = max(most[joint], links[joint:body].sum() + beyond)
        return np.where(chain.prismatic, 1.0, most)


def segment_distance(p: np.ndarray, d: np.ndarray, u: np.ndarray, e: np.ndarray) -> np.ndarray:
    """Distance of the segments p + s d and u + t e, all (..., 3) [m].

    Ericson, Real-Time Collision Detection (2005), section 5.1.9, each parameter once more the best for the other.
    """
    r = p - u
    dd, ee = np.maximum(_dot(d, d), _TINY), np.maximum(_dot(e, e), _TINY)
    de, dr, er = _dot(d, e), _dot(d, r), _dot(e, r)
    s = _unit((de * er - dr * ee) / np.maximum(dd * ee - de * de, _TINY**2))
    t = _unit((er + de * s) / ee)
    s = _unit((de * t - dr) / dd)
    return _length(r + s[..., None] * d - t[..., None] * e)


def box_distance(p: np.ndarray, d: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Signed distance of the segment p + s d to the box |x_k| <= half_k, all (..., 3) in the box's own frame.

    Half the squared distance has a slope along the segment that rises, and is linear between the planes of the faces;
    its zero is found by interpolation. Inside the box the middle of the way is taken, where the depth is at least half
    of the greatest.
    """
    step = d + np.copysign(1e-9, d)
    s = np.concatenate(((half - p) / step, (-half - p) / step, np.zeros_like(p[..., :1]), np.ones_like(p[..., :1])), -1)
    s = _unit(s)[..., None]  # (..., 8, 1)
    x = p[..., None, :] + s * d[..., None, :]
    side = half[..., None, :]
    slope, s = _dot(x - np.minimum(np.maximum(x, -side), side), d[..., None, :]), s[..., 0]
    falls, rises = slope < _FLAT, slope > -_FLAT
    lower, upper = (s * falls).max(-1), np.where(rises, s, 1.0).min(-1)
    before = np.minimum(np.where(falls, slope, -np.inf).max(-1), 0.0)
    after = np.maximum(np.where(rises, slope, np.inf).min(-1), 0.0)
    before, after = np.maximum(before, -1e9), np.minimum(after, 1e9)
    share = np.where(before < after, -before / np.maximum(after - before, 1e-30), 0.5)
    nearest = lower + share * (upper - lower)
    beyond = np.abs(p + nearest[..., None] * d) - half
    return _length(np.maximum(beyond, 0.0)) + np.minimum(beyond.max(-1), 0.0)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("...i,...i->...", a, b)


def _length(a: np.ndarray) -> np.ndarray:
    return np.sqrt(_dot(a, a))


def _unit(x: np.ndarray) -> np.ndarray:
    """x, not below 0 nor above 1."""
    return np.minimum(np.maximum(x, 0.0), 1.0)
