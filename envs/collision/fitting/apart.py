"""Pairs of an arm's links whose meshes never touch, though their capsules do; for files.

Capsules are larger than the links: the Panda's shoulder and upper arm overlap in a quarter of all
configurations, where the real ones never touch. The meshes decide, by coal.
"""

from collections.abc import Iterable

import numpy as np

from envs.collision.fitting.meshes import Meshes, measure_gap, touch
from envs.robots import Robot
from td3_robot.utils.progress import iter_with_progress

SAMPLES = 10_000
MARGIN = 0.002  # [m] meshes that come closer are taken to touch
# of a search for where two links are closest, and as many steps from the best of them in each round
STARTS = 100
ROUNDS = (0.3, 0.1, 0.03, 0.01)  # their spread in parts of each joint's range


def find_separated_pairs(robot: Robot, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Find the pairs of the arm's own links that stay more than `MARGIN` apart.

    They do so in `SAMPLES` configurations, and in a search from where they are closest. The meshes
    are what is drawn of each link, and its collision shapes where nothing is.
    """
    meshes = Meshes(robot)
    own = {link.name for link in robot.rtb.links}
    rng = np.random.default_rng(0)
    left = {pair for pair in pairs if own >= set(pair)}
    drawn = rng.uniform(robot.qlim[0], robot.qlim[1], (SAMPLES, robot.n))
    for q in iter_with_progress(drawn, "links that never touch", SAMPLES, "configurations"):
        placed = meshes.place(q)
        left = {(a, b) for a, b in left if not touch(placed[a], placed[b], MARGIN)}
    pairs = iter_with_progress(sorted(left), "their least distances", len(left), "pairs")
    return [pair for pair in pairs if _search_closest(meshes, *pair, rng) > MARGIN]


def _search_closest(meshes: Meshes, first: str, second: str, rng: np.random.Generator) -> float:
    """Search for the least distance of two links [m]; only the joints between them matter."""
    (lower, upper) = meshes.robot.qlim
    least = np.inf
    best = meshes.robot.home
    between = slice(*sorted((meshes.body[first], meshes.body[second])))
    for spread in (None, *ROUNDS):
        drawn = rng.uniform(lower, upper, (STARTS, len(lower)))
        if spread is not None:
            drawn = np.clip(rng.normal(best, spread * (upper - lower), drawn.shape), lower, upper)
        for row in drawn[:, between]:
            q = best.copy()
            q[between] = row
            placed = meshes.place(q)
            if (found := measure_gap(placed[first], placed[second])) < least:
                least = found
                nearest = q
        best = nearest
    return least
