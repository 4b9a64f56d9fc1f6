"""What each randomisation costs a policy in contact physics, alone and all together, and the scripted pick.

    python benchmarks/randomization.py                                         # pick_turned: some 15 minutes of a core
    python benchmarks/randomization.py --checkpoints checkpoints/a checkpoints/b --episodes 1000

A row for every key of configs/randomization/lab.yaml; the results go to benchmarks/results/randomization.csv.
"""

import argparse
import csv
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import torch

import envs
from envs.controllers import make_baseline
from envs.options import EnvOptions
from envs.simulation.disturbances import Disturbances
from envs.simulation.randomization import read_randomization
from envs.simulation.variation import Variation
from td3_robot import TD3
from td3_robot.arguments import config_of
from td3_robot.evaluation import evaluate

ROOT = Path(__file__).resolve().parent.parent


def rows(named: Disturbances) -> Iterator[tuple[str, Disturbances]]:
    """Nothing, each alone, all."""
    yield "none", Disturbances()
    for item in fields(Disturbances):
        value = getattr(named, item.name)
        if item.name == "latency_spread":
            yield "latency", Disturbances(latency=named.latency, latency_spread=value)
        elif value and item.name not in ("latency", "physics"):
            yield item.name, Disturbances(**{item.name: value})
    plain = Variation()
    for name, given in named.physics.ranges.items():
        if given != getattr(plain, name):
            yield name, Disturbances(physics=replace(plain, **{name: given}))
    yield "all", named


def main() -> None:
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoints", nargs="+", type=Path, default=[ROOT / "checkpoints" / "pick_turned"])
    parser.add_argument("--randomize", default="lab")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=777)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "randomization.csv")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    options = config_of(asked.checkpoints[0], EnvOptions)[1]
    agents = {path.name: TD3.from_checkpoint(path) for path in asked.checkpoints}
    with asked.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, ("randomized", "episodes", *agents, "pick"))
        writer.writeheader()
        for name, given in rows(read_randomization(asked.randomize)):
            row = {"randomized": name, "episodes": asked.episodes}
            for who, guard in {**dict.fromkeys(agents, options.guard), "pick": False}.items():
                env = envs.make(
                    options.robot, options.task, asked.episodes, engine="mujoco", guard=guard, disturbances=given
                )
                policy = agents[who].select_action if who in agents else make_baseline(who, env)
                row[who] = round(evaluate(policy, env, asked.seed)["success_rate"], 4)
            writer.writerow(row)
            file.flush()
            print(row, flush=True)


if __name__ == "__main__":
    main()
