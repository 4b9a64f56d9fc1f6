"""Measure what each randomisation costs policies and the scripted pick in contact physics.

    python benchmarks/randomization.py           # pick_place: some 15 minutes of a core
    python benchmarks/randomization.py --checkpoints checkpoints/a --episodes 1000

A row for each controller and every key of configs/randomization/lab.yaml; the results go to
benchmarks/results/randomization.csv, in place of those of the same.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import rows
import torch

import envs
from envs.config.env_options import EnvOptions
from envs.controllers import make_baseline
from envs.simulation.disturbances import Disturbances
from envs.simulation.randomization import read_randomization
from envs.simulation.variation import Variation
from td3_robot import TD3
from td3_robot.cli.arguments import load_run_config
from td3_robot.evaluation.rollout import draw_round_seeds, evaluate
from td3_robot.utils.console import exit_code

ROOT = Path(__file__).resolve().parent.parent
KEY = ("task", "controller", "randomized")


def iter_conditions(named: Disturbances) -> Iterator[tuple[str, Disturbances]]:
    """Return no randomisation, each one alone, and all together."""
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


def main(argv: list[str]) -> None:
    """Parse, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--checkpoints", nargs="*", type=Path, default=[ROOT / "checkpoints" / "pick_place"]
    )
    parser.add_argument("--task", default="pick_place", help="that all of them do")
    parser.add_argument("--randomize", default="lab")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=rows.UNSEEN_SEED)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "benchmarks" / "results" / "randomization.csv"
    )
    asked = parser.parse_args(argv)
    torch.set_num_threads(1)
    guards = {path.name: load_run_config(path, EnvOptions)[1].guard for path in asked.checkpoints}
    agents = {path.name: TD3.from_checkpoint(path) for path in asked.checkpoints}
    for name, given in iter_conditions(read_randomization(asked.randomize)):
        for who in (*agents, "pick"):
            guard = guards.get(who, False)
            env = envs.make(
                "panda",
                asked.task,
                asked.episodes,
                engine="mujoco",
                guard=guard,
                disturbances=given,
            )
            policy = agents[who].select_action if who in agents else make_baseline(who, env)
            success = evaluate(policy, env, draw_round_seeds(env, asked.episodes, asked.seed)[0])[
                "success_rate"
            ]
            row: rows.Row = {
                "task": asked.task,
                "controller": who,
                "randomized": name,
                "episodes": asked.episodes,
            }
            row |= {"success_rate": round(success, 4)}
            rows.write_rows(asked.out, tuple(row), KEY, [row])
            print(row, flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
