"""What delay, lag and noise cost the shipped policies and the classical controllers, with foresight and without.

    python benchmarks/robustness.py                          # all tasks, 1,000 episodes each: about 20 minutes
    python benchmarks/robustness.py --tasks reach --episodes 200
    python benchmarks/robustness.py --speed                  # what it costs the simulator

The results go to benchmarks/results/robustness.csv.
"""

import argparse
import csv
import time
from pathlib import Path

import torch

import envs
from envs.evaluation import Evaluation
from envs.options import EnvOptions
from envs.simulation.disturbances import Disturbances
from td3_robot import TD3
from td3_robot.arguments import config_of

SHIPPED = {"reach": "run1", **{task: task for task in ("reach_pose", "reach_avoid", "track", "pick_place")}}
CLASSICAL = {"reach_avoid": "neo+guard", "pick_place": "pick"}  # of other tasks rrmc
CONDITIONS = {
    "none": {},
    "25 ms": {"latency": 0.025},
    "50 ms": {"latency": 0.05},
    "100 ms": {"latency": 0.1},
    "50 ms, 1 mrad, 20 ms lag": {"latency": 0.05, "noise": 0.001, "servo_lag": 0.02},
    "25 to 75 ms, one for each episode": {"latency": 0.05, "latency_spread": 0.025},
    "50 ms taken for 25": {"latency": 0.05, "assumed_latency": 0.025},
    "50 ms taken for 75": {"latency": 0.05, "assumed_latency": 0.075},
    "50 ms taken for none": {"latency": 0.05, "assumed_latency": 0.0},
}
ROOT = Path(__file__).resolve().parent.parent


def evaluation_of(task: str, episodes: int) -> Evaluation:
    """The shipped policy, and beside it a classical controller."""
    folder = ROOT / "checkpoints" / SHIPPED[task]
    evaluation, agent = Evaluation(config_of(folder, EnvOptions)[1], episodes), TD3.from_checkpoint(folder)
    evaluation.add("policy", lambda env: agent.select_action)
    evaluation.add_baseline(CLASSICAL.get(task, "rrmc"))
    return evaluation


def speed(arms: int = 256, steps: int = 300) -> None:
    """Milliseconds of a control step, in turns."""
    conditions = {name: CONDITIONS[name] for name in ("none", "25 ms", "50 ms", "50 ms, 1 mrad, 20 ms lag")}
    for task in SHIPPED:
        made = {
            name: envs.make("panda", task, arms, disturbances=Disturbances(**given))
            for name, given in conditions.items()
        }
        action, spent = torch.zeros(arms, made["none"].a_dim), dict.fromkeys(made, 0.0)
        for _ in range(steps):
            for name, env in made.items():
                began = time.perf_counter()
                env.step(action)
                spent[name] += time.perf_counter() - began
        print(task, {name: f"{1000 * seconds / steps:.2f} ms" for name, seconds in spent.items()}, flush=True)


def main() -> None:
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(SHIPPED), choices=list(SHIPPED))
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "robustness.csv")
    parser.add_argument("--speed", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.speed:
        return speed()
    with asked.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, ("task", "disturbances", "episodes", "policy", "classical"))
        writer.writeheader()
        for task in asked.tasks:
            evaluation = evaluation_of(task, asked.episodes)
            for name, given in CONDITIONS.items():
                policy, classical = evaluation.success_behind(given, asked.episodes).values()
                row = {"task": task, "disturbances": name, "episodes": asked.episodes}
                row |= {"policy": round(policy, 4), "classical": round(classical, 4)}
                writer.writerow(row)
                file.flush()
                print(row, flush=True)


if __name__ == "__main__":
    main()
