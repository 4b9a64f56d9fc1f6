"""The weights of a robot's bodies: from its file and model, repaired or estimated if they must be.

A row (10,) is the inertia of a link in a frame: mass [kg], centre of mass [m], and ixx, iyy, izz,
ixy, ixz, iyz about it [kg m2]; see `envs.robots.physics.Physics`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.robots import Robot
from envs.robots.followers import is_moved
from envs.robots.urdf.rtb_model import find_file_name
from td3_robot.errors import ConfigError

# A link without a known inertia is estimated as a solid cylinder from its joint to the next.
PER_METRE = 12.0  # [kg/m]: arms of 5 to 15 kg payload have 10 to 20
_RADIUS = 0.05  # [m]
_SHORTEST = 0.05  # [m]
_FINGER = (0.05, 0.02)  # a link of a gripper: [kg], radius of gyration [m]

LIGHTEST = 1e-3  # [kg] less is no link's weight, but a number for programs that refuse 0
WIDEST = 3.0  # [m] no link of an arm has a greater radius of gyration
_ALUMINIUM = 2700.0  # [kg/m3] of the ball that a mass without inertia is taken for
# [kg/m3] the densest metal: Arblaster 2014, Johnson Matthey Technology Review 58 (3), 137
_OSMIUM = 22590.0
_FLAT = 1e-6  # least second moment along an axis, in parts of the greatest
_LEAST = 1e-12  # [kg m2] well above the 1e-15 that MuJoCo takes for none
_ROUNDING = 1e-6  # of a moment in a file, in parts


@dataclass(frozen=True)
class Weights:
    """The masses and inertias of a robot's bodies.

    Attributes:
        rows: (10,) by link, in its frame; links without weigh nothing by themselves.
        estimated: links whose inertia is an estimate.
        mended: links whose inertia no rigid body has, and which have the nearest that one has.
    """

    rows: dict[str, np.ndarray]
    estimated: tuple[str, ...]
    mended: tuple[str, ...]


def weigh(robot: Robot) -> Weights:
    """Find the weights of a robot's links.

    Links that move together are one rigid body. Where each of their inertias is a body's own, they
    stay as they are; otherwise they are merged into the one that the joint moves, as MuJoCo's own
    reader of URDF does, and what is still no body's inertia is mended. The base never moves, so
    that what is wrong with its inertia does not matter.

    Raises:
        ConfigError: a link that moves has a mass that is negative or no number.
    """
    links = [*robot.rtb.links, *(link for tool in robot.rtb.grippers for link in tool.links)]
    rows: dict[str, np.ndarray] = {}
    estimated = []
    mended = []
    for body in _group_links(links):
        carrier = body[0]
        known = {link.name: row for link in body if (row := _find_row(robot, link)) is not None}
        light = [name for name, row in known.items() if not _is_weight(row)]
        whole = {name: row for name, row in known.items() if name not in light and is_rigid(row)}
        if not is_moved(carrier):
            rows |= whole
            continue
        if light:
            mass = f"a mass that is not positive, {known[light[0]][0]:g} kg"
            raise ConfigError(f"{robot.owner}: link {light[0]!r} has {mass}")
        mass = sum(row[0] for row in known.values())
        moved = find_file_name(carrier)
        if mass < LIGHTEST and not (moved in known and _is_connector(body, links)):
            rows[carrier.name] = _estimate(robot, body, links)
            estimated.append(carrier.name)
        elif len(whole) == len(known):
            rows |= whole
        else:
            poses = {link.name: T for link, T in _place(body)}
            row = merge_inertias([(poses[name], row) for name, row in known.items()])
            rows[carrier.name] = mend_inertia(row)
            if not np.allclose(rows[carrier.name][4:], row[4:], _ROUNDING, 0.0):
                mended.append(moved)
    return Weights(rows, tuple(estimated), tuple(mended))


def _group_links(links: list[Any]) -> list[list[Any]]:
    """Group links that move together; the first of each group is what a joint moves, or a base."""
    groups: dict[str, list[Any]] = {}
    of: dict[str, list[Any]] = {}
    for link in links:
        if is_moved(link) or link.parent is None:
            groups[link.name] = of[link.name] = [link]
        else:
            of[link.name] = of[link.parent.name]
            of[link.name].append(link)
    return list(groups.values())


def _place(body: list[Any]) -> list[tuple[Any, np.ndarray]]:
    """Place the links of a body in the frame of its first, (4, 4) each."""
    placed = {body[0].name: np.eye(4)}
    for link in body[1:]:
        placed[link.name] = placed[link.parent.name] @ link.A(0.0).A
    return [(link, placed[link.name]) for link in body]


def _is_connector(body: list[Any], links: list[Any]) -> bool:
    """Tell if the next joint is where the last one is: a link of two axes weighs next to nothing.

    Such links stand between the axes of a joint that turns two ways.
    """
    return any(np.linalg.norm(place) < _SHORTEST for place in _list_joints_below(body, links))


def _list_joints_below(body: list[Any], links: list[Any]) -> list[np.ndarray]:
    """List where the next joints are, (3,) each in the frame of a body's first link [m]."""
    placed = {link.name: T for link, T in _place(body)}
    below = [link for link in links if is_moved(link) and link.parent]
    return [
        (placed[link.parent.name] @ link.A(0.0).A)[:3, 3]
        for link in below
        if link.parent.name in placed
    ]


def _find_row(robot: Robot, link: Any) -> np.ndarray | None:
    """Return the inertia (10,) of a link from its file, else from its model; None without one."""
    owner: Any = robot if link in robot.rtb.links else robot.gripper
    row = owner.physics.inertias.get(link.name.removeprefix(f"{owner.name}/"))
    if row is None:
        if not link.m:
            return None
        (xx, xy, xz), (_, yy, yz), (_, _, zz) = np.asarray(link.I)
        row = np.array([link.m, *link.r, xx, yy, zz, xy, xz, yz])
    return row


def _is_weight(row: np.ndarray) -> bool:
    """Tell if an inertia (10,) has a positive mass and finite numbers."""
    return bool(row[0] > 0.0 and np.isfinite(row).all())


def make_matrix(row: np.ndarray) -> np.ndarray:
    """Make the inertia (3, 3) about the centre of mass of a row (10,)."""
    xx, yy, zz, xy, xz, yz = row[4:]
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def make_row(mass: float, centre: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """Make the row (10,) of a mass, its centre (3,) and the inertia (3, 3) about that."""
    moments = *np.diag(inertia), inertia[0, 1], inertia[0, 2], inertia[1, 2]
    return np.array([mass, *centre, *moments])


def is_rigid(row: np.ndarray) -> bool:
    """Tell if a rigid body can have an inertia (10,): no principal moment exceeds the others' sum.

    MuJoCo asks for that, and that each is positive. Their sum is the least for a ball, so that one
    below that of the densest ball is a number that stands for none.
    """
    moments = np.linalg.eigvalsh(make_matrix(row))
    whole = moments[0] > _LEAST and moments[0] + moments[1] >= moments[2]
    return bool(whole and moments.sum() >= 3.0 * _compute_ball_moment(row[0], _OSMIUM))


def _compute_ball_moment(mass: float, density: float) -> float:
    """Compute the moment of inertia of a ball, 2/5 m r2 [kg m2]."""
    radius = (3.0 * mass / (4.0 * np.pi * density)) ** (1.0 / 3.0)
    return 0.4 * mass * radius**2


def compute_gyration(row: np.ndarray) -> float:
    """Compute the greatest radius of gyration of an inertia (10,) [m]."""
    return float(np.sqrt(np.linalg.eigvalsh(make_matrix(row))[-1] / row[0]))


def merge_inertias(parts: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Merge the inertias of parts of a rigid body, by the parallel axis theorem.

    Args:
        parts: pose (4, 4) of each part's frame in that of the body, and its row (10,).

    Returns:
        (10,) in the frame of the body.
    """
    mass = sum(row[0] for _, row in parts)
    centres = [T[:3, :3] @ row[1:4] + T[:3, 3] for T, row in parts]
    centre = np.sum([row[0] * c for c, (_, row) in zip(centres, parts)], 0) / mass
    inertia = np.zeros((3, 3))
    for (T, row), c in zip(parts, centres):
        arm = c - centre
        turned = T[:3, :3] @ make_matrix(row) @ T[:3, :3].T
        inertia += turned + row[0] * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    return make_row(mass, centre, inertia)


def mend_inertia(row: np.ndarray) -> np.ndarray:
    """Change an inertia (10,) to the nearest one that a rigid body has; mass and centre stay.

    The second moments of the mass along the principal axes, s = trace / 2 - moment, are not
    negative for a rigid body (Wensing, Kim and Slotine 2018, https://arxiv.org/abs/1701.04395).
    Those that are, become as good as zero; a mass without any, or less than that of any matter, is
    taken for a ball of aluminium.
    """
    moments, axes = np.linalg.eigh(make_matrix(row))
    spread = moments.sum() / 2.0 - moments
    if np.maximum(spread, 0.0).sum() < 1.5 * _compute_ball_moment(row[0], _OSMIUM):
        spread = np.full(3, _compute_ball_moment(row[0], _ALUMINIUM) / 2.0)
    spread = np.maximum(spread, max(_FLAT * spread.max(), _LEAST))
    inertia = axes @ np.diag(spread.sum() - spread) @ axes.T
    return make_row(row[0], row[1:4], inertia)


def _estimate(robot: Robot, body: list[Any], links: list[Any]) -> np.ndarray:
    """Estimate the inertia (10,) of a body in the frame of its first link, see `Physics`.

    It reaches to the farthest joint below, or else to the farthest frame of its own.
    """
    if body[0] not in robot.rtb.links:
        mass, radius = _FINGER
        return np.array([mass, 0, 0, 0, *[mass * radius**2] * 3, 0, 0, 0])
    ends = _list_joints_below(body, links) or [T[:3, 3] for _, T in _place(body)]
    end = max(ends, key=lambda place: float(np.linalg.norm(place)))
    length = max(float(np.linalg.norm(end)), _SHORTEST)
    mass = PER_METRE * length
    axis = end / np.linalg.norm(end) if end.any() else np.array([0.0, 0.0, 1.0])
    along = mass * _RADIUS**2 / 2.0
    across = mass * (3.0 * _RADIUS**2 + length**2) / 12.0
    I = across * np.eye(3) + (along - across) * np.outer(axis, axis)  # noqa: E741
    return make_row(mass, end / 2.0, I)
