"""Small capsules around balls and triangles, found by optimisation; for files, not for the hot
path.
"""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import trimesh
from scipy.optimize import minimize
from scipy.spatial import KDTree

GRID = 1e-4  # [m] ends and radii in a file are rounded to this, the radius upwards
CUTS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)  # where a body may be cut, in parts of its extent
WORTH = 0.9  # a further capsule must reduce the bulge to less than this part
SURFACE_POINTS = 20_000  # to measure how far capsules stand out
_SIZES = (0.02, 0.005, 0.001)  # [m] of the simplices of the search, one after the other
_FIRST_STEPS = 120  # of the search from each first guess, at most
_STEPS = 500  # of each later search, at most

Piece = tuple[trimesh.Trimesh, np.ndarray]  # a part of a surface and the capsule around it


def spread_directions(count: int) -> np.ndarray:
    """Return unit vectors (count, 3) spread evenly over the sphere, on a golden-angle spiral."""
    z = (np.arange(count) + 0.5) / count * 2 - 1
    angle = np.arange(count) * np.pi * (3 - np.sqrt(5))
    return np.stack((np.sqrt(1 - z**2) * np.cos(angle), np.sqrt(1 - z**2) * np.sin(angle), z), 1)


DIRECTIONS = spread_directions(256)  # the search looks at what is outermost in these


def compute_reach(ends: np.ndarray, centres: np.ndarray, radii: np.ndarray | float = 0.0) -> float:
    """Compute the radius of a capsule with ends (2, 3) around balls (N, 3) of radii (N,) [m]."""
    return float((compute_distances(ends, centres) + radii).max())


def compute_distances(ends: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Compute the distances (N,) of points (N, 3) from the segment between ends (2, 3) [m]."""
    start = ends[0]
    extent = ends[1] - start
    along = np.clip((points - start) @ extent / max(extent @ extent, 1e-12), 0, 1)
    return np.linalg.norm(points - start - along[:, None] * extent, axis=1)


def compute_volume(capsule: np.ndarray) -> float:
    """Compute the volume [m3] of a capsule (7,): both ends and the radius [m]."""
    r = capsule[6]
    return np.pi * r**2 * (np.linalg.norm(capsule[3:6] - capsule[:3]) + 4 / 3 * r)


def fit_capsule(
    centres: np.ndarray, radii: np.ndarray | float = 0.0, thorough: bool = True
) -> np.ndarray:
    """Fit a capsule of little volume around balls, by a local search from the principal axes.

    Args:
        centres: (N, 3) [m].
        radii: (N,) [m]; zero makes points of the balls.
        thorough: search; otherwise the best of three first guesses.

    Returns:
        (7,) both ends and the radius [m], on the grid of a file. It holds every ball.
    """
    outer = _find_outermost(centres, radii)  # these decide, or nearly
    balls = centres[outer], radii[outer] if isinstance(radii, np.ndarray) else radii

    def cost(ends: np.ndarray) -> float:
        ends = ends.reshape(2, 3)
        return compute_volume(np.append(ends, compute_reach(ends, *balls)))

    starts = [_guess_ends(*balls, axis).ravel() for axis in find_principal_axes(balls[0])]
    if thorough:
        starts = [_search(cost, ends, _SIZES[0], _FIRST_STEPS) for ends in starts]
    best = min(starts, key=cost)
    if thorough:
        for size in _SIZES:  # anew, since a simplex may collapse early
            best = _search(cost, best, size, _STEPS)
    ends = np.round(best.reshape(2, 3) / GRID) * GRID
    if np.linalg.norm(ends[1] - ends[0]) < 10 * GRID:
        ends[:] = np.round(ends.mean(0) / GRID) * GRID  # a sphere
    return np.append(ends, max(np.ceil(compute_reach(ends, centres, radii) / GRID), 1.0) * GRID)


def _find_outermost(centres: np.ndarray, radii: np.ndarray | float = 0.0) -> np.ndarray:
    """Find the balls that are outermost in `DIRECTIONS`."""
    return np.unique((DIRECTIONS @ centres.T + radii).argmax(1))


def _search(
    cost: Callable[[np.ndarray], float], ends: np.ndarray, size: float, steps: int
) -> np.ndarray:
    """Minimise a cost by Nelder and Mead's simplex method, from a simplex of one size [m]."""
    options = {
        "initial_simplex": np.vstack((ends, ends + size * np.eye(6))),
        "maxiter": steps,
        "xatol": GRID / 10,
    }
    return minimize(cost, ends, method="Nelder-Mead", options=options | {"fatol": 0.0}).x


def find_principal_axes(points: np.ndarray) -> np.ndarray:
    """Return the unit axes (3, 3), as rows, along which points (N, 3) spread most to least."""
    return np.linalg.svd(points - points.mean(0), full_matrices=False)[2]


def _guess_ends(centres: np.ndarray, radii: np.ndarray | float, axis: np.ndarray) -> np.ndarray:
    """Guess the ends (2, 3) of a capsule along an axis."""
    across = np.linalg.svd(axis[None])[2][1:]
    middle = np.array([(x.min() + x.max()) / 2 for x in (centres @ across.T).T]) @ across
    r = compute_reach(np.stack((middle - 10 * axis, middle + 10 * axis)), centres, radii)
    along = centres @ axis
    low = (along - radii).min() + r
    high = (along + radii).max() - r
    if low > high:
        low = high = (low + high) / 2
    return np.stack((middle + low * axis, middle + high * axis))


def fit_mesh(mesh: trimesh.Trimesh, most: int, closer: bool = False) -> list[np.ndarray]:
    """Fit capsules that together hold every point of a surface.

    Args:
        mesh: triangles [m]; need not be closed.
        most: how many capsules there may be; one more must reduce the `measure_bulge` of all to
            less than `WORTH` of what it was.
        closer: up to twice as many, wherever they stand out less at all. Each of the first ones is
            replaced for itself, so that no part of the surface takes them all.

    Returns:
        (7,) capsules, as `fit_capsule`'s.
    """
    surface = KDTree(mesh.sample(SURFACE_POINTS, seed=0))
    cover = _find_cover(mesh, most, 1.0 if closer else WORTH, surface)
    if closer:
        cover = [piece for part, _ in cover for piece in _find_cover(part, 2, 1.0, surface)]
    return [capsule for _, capsule in cover]


def _find_cover(mesh: trimesh.Trimesh, most: int, worth: float, surface: KDTree) -> list[Piece]:
    """Cut a surface where capsules around its parts then stand out least, and the parts again.

    The best of all these covers is taken. A cut is one plane, or two across the longest axis: of a
    link with a housing at each end, one plane leaves the tube between them with a housing.
    Triangles are cut too, so none reaches out between two capsules.

    Args:
        worth: one capsule more must reduce their bulge to less than this part.
        surface: points all over what they stand out of.
    """

    def rate(cover: list[Piece]) -> float:
        return measure_bulge([capsule for _, capsule in cover], surface) / worth ** len(cover)

    best = cover = [(mesh, fit_capsule(mesh.vertices))]
    while len(cover) < most:
        cuts = (
            (cover[:index], pieces, cover[index + 1 :])
            for index, (part, _) in enumerate(cover)
            for pieces in _iter_cuts(part, most - len(cover))
        )
        found = min(cuts, key=lambda cut: rate([*cut[0], *cut[1], *cut[2]]), default=None)
        if found is None:
            break
        before, pieces, after = found
        fresh = [(piece, fit_capsule(piece.vertices)) for piece, _ in pieces]
        cover = [*before, *fresh, *after]
        best = min(best, cover, key=rate)
    return best


def measure_bulge(cover: list[np.ndarray], surface: KDTree) -> float:
    """Measure by how much capsules stand out of what they hold [m4]: the integral of the square of
    that over their common surface.

    Args:
        surface: points all over what they hold.
    """
    total = 0.0
    for index, capsule in enumerate(cover):
        points, area = _sample_surface(capsule)
        for other in cover[:index] + cover[index + 1 :]:
            out = compute_distances(other[:6].reshape(2, 3), points) > other[6]
            points = points[out]
            area = area[out]
        total += float(area @ surface.query(points)[0] ** 2) if len(points) else 0.0
    return total


def _sample_surface(capsule: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return points (N, 3) all over a capsule's surface, and the area (N,) that each stands for."""
    ends = capsule[:6].reshape(2, 3)
    r = capsule[6]
    length = np.linalg.norm(ends[1] - ends[0])
    axis = ends[1] - ends[0]
    caps = ends[(DIRECTIONS @ axis > 0).astype(int)] + r * DIRECTIONS
    around = np.linalg.svd(axis[None])[2][1:] if length else np.eye(3)[:2]
    angle, along = np.meshgrid(
        np.linspace(0, 2 * np.pi, 24, endpoint=False), (np.arange(16) + 0.5) / 16
    )
    ring = np.stack((np.cos(angle), np.sin(angle)), -1).reshape(-1, 2) @ around
    side = ends[0] + along.reshape(-1, 1) * axis + r * ring
    areas = 4 * np.pi * r**2 / len(caps), 2 * np.pi * r * length / len(side)
    return np.concatenate((caps, side)), np.repeat(areas, (len(caps), len(side)))


def _iter_cuts(mesh: trimesh.Trimesh, planes: int) -> Iterator[list[Piece]]:
    """Yield the pieces of a surface, with roughly fitted capsules, for all cuts at `CUTS`.

    Args:
        planes: how many there may be; more than two do not cut at once.
    """
    axes = find_principal_axes(mesh.vertices[_find_outermost(mesh.vertices)])
    cuts = [*itertools.product(axes, itertools.combinations(CUTS, 1))]
    if planes > 1:
        cuts += itertools.product(axes[:1], itertools.combinations(CUTS, 2))
    for axis, places in cuts:
        pieces = _cut_mesh(mesh, axis, places)
        if all(len(piece.faces) for piece in pieces):
            yield [(piece, fit_capsule(piece.vertices, thorough=False)) for piece in pieces]


def _cut_mesh(
    mesh: trimesh.Trimesh, axis: np.ndarray, places: tuple[float, ...]
) -> list[trimesh.Trimesh]:
    """Cut a surface by planes across an axis, at places in parts of its extent, in order."""
    along = mesh.vertices @ axis
    pieces = []
    for place in places:
        origin = axis * (along.min() + place * np.ptp(along))
        pieces.append(_slice_mesh(mesh, -axis, origin))
        mesh = _slice_mesh(mesh, axis, origin)
    return [*pieces, mesh]


def _slice_mesh(mesh: trimesh.Trimesh, normal: np.ndarray, origin: np.ndarray) -> trimesh.Trimesh:
    """Return the part of a surface on one side of a plane."""
    vertices, faces, _ = trimesh.intersections.slice_faces_plane(
        mesh.vertices, mesh.faces, normal, origin
    )
    return trimesh.Trimesh(vertices, faces, process=False)
