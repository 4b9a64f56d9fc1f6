"""Pegs and the holes that they fit, as convex geoms of bodies; a hole is a ring of walls.

A peg's frame is in its middle, with z along it. A hole's is in the middle of its mouth, with z out
of the hole.
"""

import math

import numpy as np

from envs.kinematics.rotations import to_quaternion
from envs.simulation.bodies import Geom

SQUARE = "square"
ROUND = "round"
_SIDES = {SQUARE: 4, ROUND: 16}  # walls of a hole; a round one's touch the circle from outside
_OUTER = 0.04  # [m] from the middle of a hole to the outside of its block
_BOTTOM = 0.01  # [m] thickness of the block under a hole


def make_peg(shape: str, width: float, length: float, friction: float) -> Geom:
    """Make a peg of a width (or diameter) and length [m]."""
    if shape == ROUND:
        return Geom("cylinder", (width / 2.0, length / 2.0), friction=friction)
    return Geom("box", (width / 2.0, width / 2.0, length / 2.0), friction=friction)


def make_hole(
    shape: str, width: float, depth: float, chamfer: float, friction: float
) -> tuple[Geom, ...]:
    """Make a block with a hole of a width (or diameter) and depth [m], open at its mouth.

    Args:
        chamfer: height and breadth of the bevel around the mouth, at 45 degrees [m].
    """
    count = _SIDES[shape]
    walls = [
        geom
        for side in range(count)
        for geom in _make_wall(width / 2.0, depth, chamfer, friction, 2.0 * math.pi * side / count)
    ]
    half = (_OUTER, _OUTER, _BOTTOM / 2.0)
    bottom = Geom("box", half, (0.0, 0.0, -depth - _BOTTOM / 2.0), friction=friction)
    return (*walls, bottom)


def _make_wall(
    inner: float, depth: float, chamfer: float, friction: float, angle: float
) -> list[Geom]:
    """Make the wall at an angle about z: below the bevel, behind it, and the bevel.

    The bevel is the upper face of a bar, whose other faces lie inside the wall.
    """
    thick = chamfer  # of the bar
    broad = _OUTER * math.tan(math.pi / 4.0)
    rim = (_OUTER - inner - chamfer) / 2.0
    low = (_OUTER - inner) / 2.0
    down = (depth - chamfer) / 2.0
    middle = inner + chamfer / 2.0 + thick / 2.0 / math.sqrt(2.0)
    under = -chamfer / 2.0 - thick / 2.0 / math.sqrt(2.0)
    parts = (
        ((low, broad, down), (inner + low, 0.0, -chamfer - down), 0.0),
        ((rim, broad, depth / 2.0), (inner + chamfer + rim, 0.0, -depth / 2.0), 0.0),
        ((chamfer / math.sqrt(2.0), broad, thick / 2.0), (middle, 0.0, under), -math.pi / 4.0),
    )
    turned = _turn(2, angle)
    made = []
    for half, position, tilt in parts:
        place = tuple((turned @ np.array(position)).tolist())
        quaternion = _convert_quaternion(turned @ _turn(1, tilt))
        made.append(Geom("box", half, place, quaternion, friction))
    return made


def _turn(axis: int, angle: float) -> np.ndarray:
    """Return the rotation (3, 3) about an axis of the frame."""
    c, s = math.cos(angle), math.sin(angle)
    first, second = [k for k in range(3) if k != axis]
    R = np.eye(3)
    sign = -1.0 if axis == 1 else 1.0
    R[first, first] = R[second, second] = c
    R[first, second] = -sign * s
    R[second, first] = sign * s
    return R


def _convert_quaternion(R: np.ndarray) -> tuple[float, ...]:
    import torch

    return tuple(to_quaternion(torch.from_numpy(R)[None])[0].tolist())
