"""Time self-collision queries of a whole arm, compared with coal through roboticstoolbox.

    python benchmarks/collision.py                 # the Panda with its hand
    python benchmarks/collision.py --robot ur5e

One thread. A query is one configuration: forward kinematics and the distance of every checked pair.
The load printed with the figures tells whether the machine was doing anything else; then the best
is nearer to the truth than the median.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from td3_robot.errors import require_packages
from td3_robot.utils.console import exit_code

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def measure_rates(work: Callable[[], object], queries: int, repeats: int) -> tuple[float, float]:
    """Return the best and median queries/s of some work, after one warm-up."""
    work()
    took = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return queries / min(took), queries / statistics.median(took)


def measure_ours(robot, batch: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Return the rates of the batched queries, with and without obstacles."""
    import torch

    from envs.collision import Obstacles, clearance, compile_collision, self_distance
    from td3_robot.utils.memory import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = compile_collision(robot)
    print(
        f"{robot.name}: {len(model.radius)} capsules, {len(model.pairs)} pairs of them checked, "
        f"batches of {batch}"
    )
    lower, upper = torch.tensor(robot.qlim, dtype=torch.float32)
    q = lower + (upper - lower) * torch.rand(batch, robot.n)
    spheres = torch.rand(batch, 5, 4) * torch.tensor([1.0, 1, 1, 0.1])
    boxes = torch.cat(
        (torch.rand(batch, 5, 6) * 0.5, torch.tensor([1.0, 0, 0, 0]).expand(batch, 5, 4)), 2
    )
    wall = torch.tensor([[[0.0, 1, 0, -0.6]]])
    return {
        "self": measure_rates(lambda: self_distance(model, q), batch, repeats),
        "self, ground, 5 spheres, wall": measure_rates(
            lambda: clearance(model, q, Obstacles(spheres, walls=wall), 0.0), batch, repeats
        ),
        "and 5 boxes": measure_rates(
            lambda: clearance(model, q, Obstacles(spheres, boxes, wall), 0.0), batch, repeats
        ),
    }


def measure_roboticstoolbox(robot, queries: int = 200) -> tuple[float, float]:
    """Return the rates of roboticstoolbox's own check with coal, which only says yes or no."""
    import numpy as np

    qs = np.random.default_rng(0).uniform(*robot.qlim, (queries, robot.n))
    return measure_rates(lambda: [robot.rtb.isselfcollided(q) for q in qs], queries, 3)


def main(argv: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robot", default="panda")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=50)
    options = parser.parse_args(argv)

    from envs.robots import make_robot

    require_packages("the comparison with roboticstoolbox", "coal")
    robot = make_robot(options.robot)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    rows = measure_ours(robot, options.batch, options.repeats)
    rows["roboticstoolbox with coal: isselfcollided"] = measure_roboticstoolbox(robot)
    print(f"{'queries/s':50} {'best':>12} {'median':>12}")
    for name, (best, median) in rows.items():
        print(f"{name:50} {best:12,.0f} {median:12,.0f}")


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
