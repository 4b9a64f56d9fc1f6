"""Compare the capsules of robots with their drawn meshes: missed collisions and false alarms.

    python benchmarks/collision_accuracy.py                        # all installed robot models
    python benchmarks/collision_accuracy.py panda --count 20000 --seed 1

Random configurations inside the joint limits, the gripper at random openings; the meshes by coal. A
configuration is in collision if the meshes of two links touch that have more than one joint between
them. `missed` counts those that the capsules take for free, `false alarms` those that are free and
that the capsules take for a collision.
"""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.collision import measure_rates  # noqa: E402
from envs.collision import compile_collision, self_distance  # noqa: E402
from envs.robots import make_robot  # noqa: E402
from envs.robots.make import shipped_robots  # noqa: E402
from td3_robot.utils.console import exit_code  # noqa: E402
from td3_robot.utils.memory import keep_freed_memory  # noqa: E402


def measure(name: str, count: int, seed: int) -> str:
    """Measure one row of the table."""
    from envs.collision.fitting.meshes import Meshes, touch  # here: coal is an extra

    robot = make_robot(name)
    model = compile_collision(robot)
    hand = robot.gripper
    rng = np.random.default_rng(seed)
    q = rng.uniform(*robot.qlim, (count, robot.n))
    stroke = (hand.closed, hand.opened) if hand else (0.0, 0.0)
    drivers = rng.uniform(min(stroke), max(stroke), count)
    q_ = torch.tensor(q, dtype=torch.float32)
    drivers_ = torch.tensor(drivers, dtype=torch.float32)
    meshes = Meshes(robot)
    pairs = meshes.list_pairs()
    touching = np.zeros(count, bool)
    for row, placed in enumerate(map(meshes.place, q, drivers)):
        touching[row] = any(touch(placed[a], placed[b]) for a, b in pairs)
    jointed = model if model.at_opening is None else model.at_opening
    cells = [name, f"{len(jointed.radius)}, {len(jointed.first)}", f"{touching.mean():.1%}"]
    for gripper in (drivers_, None):
        alarm = (self_distance(model, q_, gripper) <= 0).numpy()
        cells += [
            f"{(touching & ~alarm).sum()}",
            f"{(alarm & ~touching).sum() / (~touching).sum():.1%}",
        ]
    some = q_[:4096]
    theirs = drivers_[:4096]
    speeds = [
        measure_rates(partial(self_distance, model, some, at), len(some), 50)[0]
        for at in (theirs, None)
    ]
    return "| " + " | ".join([*cells, *(f"{speed / 1e6:.2f} M" for speed in speeds)]) + " |"


def main(argv: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("robots", nargs="*", default=shipped_robots())
    parser.add_argument("--count", type=int, default=5000, help="configurations")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    keep_freed_memory()
    torch.set_num_threads(1)
    print(
        f"{options.count} configurations, seed {options.seed}; "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    print(
        "| robot | capsules, pairs | in collision | missed | false alarms "
        "| swept: missed | false alarms | /s | /s |"
    )
    print("| --- " * 9 + "|")
    for name in options.robots:
        print(measure(name, options.count, options.seed), flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
