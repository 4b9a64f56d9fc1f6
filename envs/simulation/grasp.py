"""Grasping in the kinematic engine: contact of a cube with a table and the two pads of B grippers.

All is computed in the frame g of the hand: at the TCP, x across, y along the direction in which the
pads close, z along the approach. The cube lies level on the table and is assumed to be turned as
the hand is. The model and its limits are described in docs/explanation/simulator-and-timing.md.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from envs.robots.gripper import Gripper
from td3_robot.errors import ConfigError

T = TypeVar("T", float, Tensor)

OVERLAP = 0.01  # [m] by which pads and cube must overlap for a grasp, across and along the approach
# sine of the tilt up to which the closing direction counts as level for a grasp: 30 degrees
LEVEL = 0.5
SOFTNESS = 1e-3  # [m] by which the pads may be wider apart than the cube and still touch it, both
TURNED = 2.0**0.5  # how much wider a level cube can be than its side, turned about the vertical
# a hand at 1.6 m/s moves 27 mm in each at 20 Hz: half of a finger and the cube together
SUBSTEPS = 3


@dataclass(frozen=True)
class Hand:
    """The touching parts of a gripper, and a cube for it.

    Attributes:
        axes: (3, 3) R_eg, the axes of g in the TCP frame.
        stroke: driver coordinate when shut and when open [rad or m].
        gap: distance between the pads when shut, half way, and when open [m].
        pad: half of a pad's width across [m]; pad_height: its size along the approach, which ends
            at the tip [m].
        tip: of the fingers, beyond the TCP [m]; finger: their thickness along y [m].
        palm: behind the TCP, half of its width across, and along y [m].
        half: of a side of the cube [m].
        slips: whether a cube that is pushed off its middle slips round the edge of what pushes it,
            as a disc of that width would; else it stays where it is in front of it.
    """

    axes: Tensor
    stroke: tuple[float, float]
    gap: tuple[float, float, float]
    pad: float
    pad_height: float
    tip: float
    finger: float
    palm: tuple[float, float, float]
    half: float
    slips: bool = False

    @property
    def room(self) -> float:
        """By how much the open pads are wider than the cube [m]."""
        return self.gap[2] - 2.0 * self.half


def compile_hand(gripper: Gripper, cube: float, device: torch.device | str = "cpu") -> Hand:
    """Compile a gripper for a cube of a given side [m].

    Raises:
        ConfigError: its pads are unknown or too near together for the cube.
    """
    pads = gripper.pads
    if pads is None:
        raise ConfigError(
            f"a cube to grasp needs the pads of gripper {gripper.name!r}, and its file has none"
        )
    shut, _, opened = pads.gap
    if not shut < cube < opened:
        limits = f"it opens from {shut:g} to {opened:g} m"
        raise ConfigError(f"gripper {gripper.name!r} cannot grasp a cube of {cube:g} m: {limits}")
    return Hand(
        axes=torch.as_tensor(pads.axes, dtype=torch.float32, device=device),
        stroke=(gripper.closed, gripper.opened),
        gap=tuple(pads.gap.tolist()),
        pad=pads.size[0].item() / 2.0,
        pad_height=pads.size[1].item(),
        tip=pads.tip,
        finger=pads.finger,
        palm=tuple(pads.palm.tolist()),
        half=cube / 2.0,
    )


def compute_gap(hand: Hand, driver: Tensor) -> Tensor:
    """Compute the distance between the pads (B,) [m] at driver coordinates (B,).

    It is the parabola through the three known distances.
    """
    closed, opened = hand.stroke
    slope, bend = _fit_parabola(hand)
    u = (driver - closed) / (opened - closed)
    return hand.gap[0] + u * (slope + bend * u)


def find_driver(hand: Hand, gap: T) -> T:
    """Return the driver coordinate [rad or m] at which the pads are `gap` [m] apart."""
    closed, opened = hand.stroke
    slope, bend = _fit_parabola(hand)
    rise = gap - hand.gap[0]
    u = 2.0 * rise / (slope + (slope**2 + 4.0 * bend * rise) ** 0.5)
    return closed + u * (opened - closed)  # type: ignore[return-value]


def _fit_parabola(hand: Hand) -> tuple[float, float]:
    shut, half_way, opened = hand.gap
    return 4.0 * half_way - 3.0 * shut - opened, 2.0 * (shut + opened) - 4.0 * half_way


def compute_hand_axes(hand: Hand, T_be: Tensor) -> Tensor:
    """Return R_bg (..., 3, 3) of TCP poses (..., 4, 4): columns across, closing, approach."""
    return T_be[..., :3, :3] @ hand.axes


def transform_to_hand(R_bg: Tensor, tcp: Tensor, cube: Tensor) -> Tensor:
    """Return the cube centre in g (B, 3), from it and the TCP in the base frame [m]."""
    return ((cube - tcp)[:, :, None] * R_bg).sum(1)


def compute_overlap(hand: Hand, p: Tensor) -> Tensor:
    """Compute the pads' overlap (B,) with a cube at p (B, 3) in g [m].

    It is the lesser of those across and along the fingers.
    """
    x, _, z = p.unbind(1)
    across = hand.half + hand.pad - x.abs()
    below = hand.tip + hand.half - z
    return torch.minimum(torch.minimum(across, below), z + hand.half - (hand.tip - hand.pad_height))


def compute_tip_height(hand: Hand, T_be: Tensor, driver: Tensor) -> Tensor:
    """Compute the height (B,) of the finger tips' lowest corner over the table [m]."""
    across, closing, approach = compute_hand_axes(hand, T_be)[:, 2].unbind(1)
    reach = compute_gap(hand, driver) / 2.0 + hand.finger
    return T_be[:, 2, 3] + hand.tip * approach - hand.pad * across.abs() - reach * closing.abs()


def compute_press_depth(
    hand: Hand, T_before: Tensor, T_after: Tensor, scene: dict[str, Tensor], gap: Tensor
) -> Tensor:
    """Compute the depth of a finger that came from above in the top of a free cube; 0 without one.

    The cube may be turned anyhow.

    Args:
        T_before, T_after: (B, 4, 4) TCP poses in the base frame.
        scene: `object` (B, 3), the cube's centre in the base frame [m], `held` (B,), and the result
            of the last control step, `contact_depth` (B,) [m].
        gap: (B,) distance between the pads [m].

    Returns:
        (B,) [m].
    """

    def locate_cube(T):
        return transform_to_hand(compute_hand_axes(hand, T), T[:, :3, 3], scene["object"])

    share = torch.linspace(0.0, 1.0, SUBSTEPS + 1, dtype=gap.dtype, device=gap.device)
    share = share[:, None, None]
    # (SUBSTEPS + 1, B)
    x, y, z = torch.lerp(locate_cube(T_before), locate_cube(T_after), share).unbind(2)
    around = TURNED * hand.half
    inner = gap / 2.0 - around
    outer = gap / 2.0 + hand.finger + around
    over = (x.abs() < hand.pad + around) & (y.abs() > inner) & (y.abs() < outer)
    depth = hand.tip + hand.half - z
    pressed = scene["contact_depth"] > 0.0
    for i in range(1, SUBSTEPS + 1):
        pressed = over[i] & (depth[i] > 0.0) & (pressed | (depth[i - 1] <= 0.0))
    return torch.where(pressed & ~scene["held"], depth[-1], 0.0)


def move_cube(
    hand: Hand,
    T_before: Tensor,
    T_after: Tensor,
    cube: Tensor,
    held: Tensor,
    gap_before: Tensor,
    gap_after: Tensor,
    support: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Move the cube by a control step: first the hand moves with its old gap, then the pads do.

    Args:
        T_before, T_after: (B, 4, 4) TCP poses in the base frame.
        cube: (B, 3) centre in the base frame [m].
        held: (B,) bool.
        gap_before, gap_after: (B,) distance between the pads, the latter as without the cube [m].
        support: (B, 3) centre of a cube that this one can lie on, in the base frame [m]; None:
            there is none.

    Returns:
        cube (B, 3), held (B,) and gap (B,) after the step.
    """
    before = compute_hand_axes(hand, T_before)
    after = compute_hand_axes(hand, T_after)
    tcp = T_after[:, :3, 3]
    lowest = partial(_find_lowest, hand, cube, support)
    offset = transform_to_hand(before, T_before[:, :3, 3], cube)
    carried = tcp + (after * offset[:, None]).sum(2)
    # it slips in the pads
    carried[:, 2] = torch.maximum(carried[:, 2], lowest(carried, 2.0 * hand.half))
    cube = torch.where(held[:, None], carried, push_cube(hand, T_before, T_after, cube, gap_before))
    p = transform_to_hand(after, tcp, cube)
    x, y, z = p.unbind(1)
    across = hand.half + hand.pad - x.abs()
    below = hand.tip + hand.half - z
    between = (
        (across > 0) & (below > 0) & (held | (y.abs() <= gap_before / 2.0 - hand.half + SOFTNESS))
    )
    wide = _measure_width(hand, held, gap_before)
    gap = torch.where(between, torch.maximum(gap_after, wide), gap_after)

    room = (gap / 2.0 - hand.half).clamp_min(0.0)
    shift = torch.where(between, torch.maximum(torch.minimum(y, room), -room) - y, 0.0)
    cube = cube + shift[:, None] * after[:, :, 1]
    grasp = (compute_overlap(hand, p) >= OVERLAP) & ((after[:, 2, 1].abs() <= LEVEL) | held)
    held = between & grasp & (gap <= wide + SOFTNESS)
    resting = torch.maximum(cube[:, 2], lowest(cube, 2.0 * hand.half))
    height = torch.where(held, resting, lowest(cube, hand.half))  # let go, it falls within the step
    return torch.cat((cube[:, :2], height[:, None]), 1), held, gap


def _find_lowest(
    hand: Hand, before: Tensor, support: Tensor | None, cube: Tensor, within: float
) -> Tensor:
    """Find the lowest possible centre (B,) of a cube [m]: on the table, or on a support below it.

    Args:
        before, cube: (B, 3) where it comes from, and where it is; one that was beside the support
            is not over it.
        support: (B, 3), or None.
        within: horizontally of the support's centre, what counts as over it [m].
    """
    table = torch.full_like(cube[:, 2], hand.half)
    if support is None:
        return table
    over = torch.linalg.vector_norm((cube - support)[:, :2], dim=1) < within
    return torch.where(
        over & (before[:, 2] > support[:, 2] + hand.half), support[:, 2] + 2.0 * hand.half, table
    )


def _measure_width(hand: Hand, held: Tensor, gap: Tensor) -> Tensor:
    """Return the cube's width (B,) between pads that are `gap` apart [m].

    Here its faces always lie against the pads. Where forces hold it, it may be turned, or be larger
    or smaller than the task's: then it is as wide as the pads are apart.
    """
    side = torch.full_like(gap, 2.0 * hand.half)
    return torch.where(held & ((gap - side).abs() > SOFTNESS), gap, side)


def push_cube(hand: Hand, T_before: Tensor, T_after: Tensor, cube: Tensor, gap: Tensor) -> Tensor:
    """Move the free cube (B, 3) along the table out of fingers and palm, by the least distance."""
    share = torch.linspace(0.0, 1.0, SUBSTEPS + 1, dtype=cube.dtype, device=cube.device)
    first, last = (T[:, :3].permute(1, 2, 0).contiguous() for T in (T_before, T_after))
    # (SUBSTEPS, 3, 4, B), near enough a rotation between poses so close
    T = first + share[1:, None, None, None] * (last - first)
    axes = _add_up([T[:, :, k, None] * axis[:, None] for k, axis in enumerate(hand.axes)])
    sides = torch.cat((axes, -axes), 2)  # (SUBSTEPS, 3, 6, B) outward from a box
    # of a metre out, along the table
    reach = (sides[:, 0].square() + sides[:, 1].square()).sqrt().clamp_min(1e-6)
    ways = sides[:, :2] / reach[:, None]  # (SUBSTEPS, 2, 6, B) horizontal unit vectors
    # (SUBSTEPS, 3, 6, B) from the base's origin
    bounds = _make_boxes(hand, gap) + _add_up((T[:, :, 3, None] * sides).unbind(1))[:, None]
    place, height = cube[:, :2].T, cube[:, 2]
    for i in range(SUBSTEPS):
        x, y, z = sides[i]
        # (3, 6, B) how deep the cube is in each box, from each side
        depth = bounds[i] - (place[0] * x + place[1] * y + height * z)
        distance, side = (depth / reach[i]).min(1)
        out = ways[i].gather(1, side.expand(2, -1, -1))
        if hand.slips:
            distance, out = _move_round_edges(hand, depth, ways[i], distance, out)
        distance = torch.where(depth.amin(1) > 0.0, distance, 0.0)
        place = place + _add_up((out * distance).unbind(1))
    return torch.stack((*place, height), 1)


def _add_up(parts: Sequence[Tensor]) -> Tensor:
    """Add tensors in their order."""
    return functools.reduce(torch.add, parts)


def _move_round_edges(
    hand: Hand, depth: Tensor, ways: Tensor, distance: Tensor, out: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the distance (3, B) and direction (2, 3, B) to move a disc out of each box.

    Near an edge, with its middle off both faces that meet there, it is pushed straight away from
    the edge; elsewhere as a cube is. A real cube that is pushed beside a finger turns, and is lost
    similarly.

    Args:
        depth: (3, 6, B), of the middle in each box that is wider by half a cube, from each side
            [m].
        ways: (2, 6, B) out of each side, along the table.
        distance, out: the same of a cube.
    """
    # (3, 2, B): of x, of y
    nearest, side = depth.unflatten(1, (2, 3))[:, :, :2].min(1)
    off = (hand.half - nearest).clamp(0.0, hand.half)  # boxes that are nowhere are infinitely far
    length = _add_up(off.square().unbind(1)).sqrt()
    sides = ways.unflatten(1, (2, 3))[:, None, :, :2].expand(-1, 3, -1, -1, -1)
    faces = sides.gather(2, side[:, None].expand(2, -1, -1, -1, -1))[:, :, 0]  # (2, 3, 2, B)
    away = _add_up((off * faces).unbind(2)) / length.clamp_min(1e-9)
    beside = (off > 0.0).all(1)
    return torch.where(beside, (hand.half - length).clamp_min(0.0), distance), torch.where(
        beside, away, out
    )


def _make_boxes(hand: Hand, gap: Tensor) -> Tensor:
    """Return the boxes (3, 6, B) in g that the cube's centre may not enter: both fingers and the
    palm [m].

    The first three of six are the upper corner, the others the lower one, negated. A corner at
    infinity closes the way out on that side. Pads that are closer together than the cube is wide
    have no inside: then the first finger stands for both, and the second is nowhere.
    """
    behind, palm_x, palm_y = hand.palm
    one = torch.ones_like(gap)
    inf = torch.full_like(gap, torch.inf)
    apart = gap >= 2.0 * hand.half - SOFTNESS
    inner = -gap / 2.0
    outer = gap / 2.0 + hand.finger
    pad = hand.pad * one
    tip = hand.tip * one
    right = (pad, outer, tip, pad, torch.where(apart, inner, outer), inf)
    left = (pad, torch.where(apart, inner, -inf), tip, pad, outer, inf)
    palm = (palm_x * one, palm_y * one, -behind * one, palm_x * one, palm_y * one, inf)
    return torch.stack((*right, *left, *palm)).unflatten(0, (3, 6)) + hand.half
