"""Distances between simple shapes: by hand, against a search over points of the shapes, and against
coal.
"""

import coal
import numpy as np
import pytest
import torch
from spatialmath import UnitQuaternion

from envs.collision.geometry import BOX_STEPS, box_gap, plane_gap, point_gap, segment_distance
from envs.kinematics.rotations import build_rotations

ROWS = 2000
RADIUS = 0.01


def column(*xyz: float) -> torch.Tensor:
    return torch.tensor(xyz, dtype=torch.float64)[:, None]


def between(p, d, u, e) -> torch.Tensor:
    return segment_distance(p, d, u, e, (d * d).sum(0), (e * e).sum(0))


def random_segments(count: int = ROWS, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Start and extent, (3, count); every tenth is a point, and every tenth lies along x."""
    generator = torch.Generator().manual_seed(seed)
    p, d = torch.rand(2, 3, count, generator=generator, dtype=torch.float64) - 0.5
    d[:, ::10] = 0
    d[1:, 5::10] = 0
    return p, d


def signed_box_distance(x: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Of points x (..., 3) to a box about the origin, from its definition."""
    beyond = np.abs(x) - half
    return np.where(
        (beyond <= 0).all(-1), beyond.max(-1), np.linalg.norm(np.maximum(beyond, 0), axis=-1)
    )


@pytest.mark.parametrize(
    "u, e, expected",
    [
        ((0.5, 0, 2), (0, 1, 0), 2.0),  # crossing above
        ((0.2, 0.3, 0), (0.5, 0, 0), 0.3),  # parallel, beside
        ((3, 4, 0), (1, 0, 0), np.hypot(2, 4)),  # parallel, apart
        ((-1, 0, 0), (-1, 0, 0), 1.0),  # on one line, running away
        ((0.5, 0.5, 0), (0, 0, 0), 0.5),  # a point beside
        ((4, 4, 0), (0, 0, 0), 5.0),  # a point beyond the end
        ((0.5, -1, 0), (0, 2, 0), 0.0),  # crossing
        ((0, 0, 0), (1, 0, 0), 0.0),  # the same
    ],
)
def test_segments_by_hand(u, e, expected):
    """Against the segment from the origin to (1, 0, 0), either first, and either running either
    way.
    """
    p = column(0, 0, 0)
    d = column(1, 0, 0)
    u = column(*u)
    e = column(*e)
    for first, second in [
        ((p, d), (u, e)),
        ((u, e), (p, d)),
        ((p + d, -d), (u, e)),
        ((p, d), (u + e, -e)),
    ]:
        assert between(*first, *second).item() == pytest.approx(expected, abs=1e-9)


def test_segments_are_as_near_as_a_search_over_them_finds():
    (p, d) = random_segments(seed=1)
    (u, e) = random_segments(seed=2)
    best = torch.full((ROWS,), torch.inf, dtype=torch.float64)
    for s in np.linspace(0, 1, 101):
        gap = point_gap(u, e, (e * e).sum(0), p + s * d)
        best = torch.minimum(best, torch.linalg.vector_norm(gap, dim=0))
    found = between(p, d, u, e)
    assert (found <= best + 1e-9).all()
    # half a step of the search along the longest segment
    assert (best - found).max() < 0.005 * np.sqrt(0.75)


def test_segments_agree_with_coal():
    (p, d) = random_segments(seed=1)
    (u, e) = random_segments(seed=2)
    found = between(p, d, u, e).numpy() - 2 * RADIUS
    expected = [coal_distance(capsule(p, d, row), capsule(u, e, row)) for row in range(ROWS)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_nearly_parallel_segments_keep_their_precision_in_float32():
    p, d = random_segments()
    turn = 1e-4 * torch.randn(3, ROWS, dtype=torch.float64)
    u = p + torch.rand(3, ROWS, dtype=torch.float64) * 0.2
    e = d + turn
    exact = between(p, d, u, e)
    found = between(*(x.float() for x in (p, d, u, e)))
    assert (exact - found).abs().max() < 1e-5


def test_the_gap_to_a_point_is_that_to_a_segment_of_no_length():
    p, d = random_segments()
    point = torch.rand(3, ROWS, dtype=torch.float64)
    torch.testing.assert_close(
        torch.linalg.vector_norm(point_gap(p, d, (d * d).sum(0), point), dim=0),
        between(p, d, point, torch.zeros_like(point)),
        atol=1e-12,
        rtol=0,
    )


def test_the_distance_to_a_plane_is_that_of_the_lower_end():
    p, d = random_segments()
    normal = torch.nn.functional.normalize(torch.randn(3, ROWS, dtype=torch.float64), dim=0)
    heights = [(normal * end).sum(0) - 0.2 for end in (p, p + d)]
    found, point = plane_gap(p, d, normal, torch.full((ROWS,), 0.2, dtype=torch.float64))
    torch.testing.assert_close(found, torch.minimum(*heights))
    torch.testing.assert_close((normal * point).sum(0) - 0.2, found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_distance_to_a_box_is_never_below_the_least_and_hardly_above(dtype):
    p, d = random_segments()
    half = 0.05 + 0.3 * torch.rand(3, ROWS, dtype=torch.float64)
    length = torch.linalg.vector_norm(d, dim=0)
    found = box_gap(*(x.to(dtype) for x in (p, d, half)))[0].double().numpy()
    steps = 4001
    least = np.full(ROWS, np.inf)
    for s in np.linspace(0, 1, steps):
        least = np.minimum(least, signed_box_distance((p + s * d).T.numpy(), half.T.numpy()))
    search = length.numpy() / (steps - 1) / 2
    bound = length.numpy() / 2 ** (BOX_STEPS + 1)
    assert (least < -0.05).any() and (least > 0.05).any()
    assert (found >= least - search - 1e-6).all()
    assert (found <= least + bound + 1e-6).all()
    outside = least > 0.01
    assert np.quantile((found - least)[outside], 0.99) < 1e-6


@pytest.mark.parametrize(
    "p, d, expected",
    [
        ((2, 0, 0), (1, 0, 0), 1.0),  # away from a face
        ((2, 5, 0), (0, -10, 0), 1.0),  # along a face
        ((4, 6, 0), (0, 0, 0), 5.0),  # a point off an edge
        ((0.5, 0, 0), (0, 0, 0), -0.5),  # a point inside
        ((-5, 0, 0), (10, 0, 0), -1.0),  # through the middle: a depth of one to the sides
        ((-5, 1.75, 0), (10, 0, 0), -0.25),  # through, near one side
    ],
)
def test_boxes_by_hand(p, d, expected):
    """A box that reaches to 1 along x and z and to 2 along y."""
    half = column(1, 2, 1)
    found = box_gap(column(*p), column(*d), half)[0].item()
    bound = np.linalg.norm(d) / 2 ** (BOX_STEPS + 1)
    assert expected - 1e-12 <= found <= expected + bound + 1e-12


def test_rotations_are_spatialmaths():
    quaternions = torch.nn.functional.normalize(torch.randn(4, 20, dtype=torch.float64), dim=0)
    found = build_rotations(quaternions)
    for column in range(20):
        expected = UnitQuaternion(quaternions[:, column].numpy()).R
        np.testing.assert_allclose(found[..., column], expected, atol=1e-12)


def capsule(p: torch.Tensor, d: torch.Tensor, row: int) -> tuple[coal.Capsule, coal.Transform3s]:
    """Coal's capsule about one of the segments, and where it lies."""
    start = p[:, row].numpy()
    extent = d[:, row].numpy()
    basis = np.linalg.svd(extent[None])[2]  # the first row is along the extent
    turn = np.stack((basis[1], np.cross(basis[0], basis[1]), basis[0]), 1)
    return coal.Capsule(RADIUS, float(np.linalg.norm(extent))), coal.Transform3s(
        turn, start + extent / 2
    )


def coal_distance(first, second) -> float:
    return coal.distance(*first, *second, coal.DistanceRequest(), coal.DistanceResult())
