"""Compare contact physics by an MJCF file's own plant with ours of the same arm.

    python benchmarks/mjcf_plants.py menagerie/franka_emika_panda/panda.xml --robot panda --tcp hand

Both arms have our kinematics, home and goals; masses, servos and friction differ. The same
controllers play `reach` on both, with the same starts and goals, and for Panda the shipped policy.
The share of episodes that end within 1 cm goes to mjcf_plants.csv in benchmarks/results.
Contacts do not count: the file's arm has no capsules.
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import rows
from training import ROOT

import envs
from envs.arm_env.arm_env import ArmEnv
from envs.controllers import make_baseline
from envs.robots import Robot
from td3_robot import TD3
from td3_robot.checkpoint.provenance import find_commit
from td3_robot.errors import require_packages
from td3_robot.utils.console import exit_code

KEY = ("file", "robot", "controller")
WITHIN = 0.01  # [m] of the goal
POLICIES = {"panda": ROOT / "checkpoints" / "run1"}


def make_arms(path: str, name: str, tcp: str | None) -> dict[str, Robot]:
    """Make our arm, and one with our kinematics and the file's bodies and servos."""
    ours = envs.make_robot(name, None if name in POLICIES else "none")
    theirs = envs.make_robot(path, tcp=tcp, velocity=tuple(ours.qdlim))
    same = ("chain", "home", "qlim", "qdlim", "qddlim", "qdddlim", "workspace")
    kept = {key: getattr(ours, key) for key in same}
    return {"our": ours, "file": dataclasses.replace(theirs, **kept)}


def measure(robot: Robot, engine: str, make: Callable[[ArmEnv], Callable], count: int) -> float:
    """Return the share of `count` episodes of `reach` that end within `WITHIN` of the goal."""
    env = envs.make(robot, "reach", count, seed=rows.UNSEEN_SEED, engine=engine)
    act = make(env)
    observation = env.reset(rows.UNSEEN_SEED)
    step = None
    for _ in range(env.task.horizon):
        step = env.step(act(observation))
        observation = step.observation
    assert step is not None and bool(step.truncated.all())
    return float((step.info["position_error"] < WITHIN).float().mean())


def main(argv: list[str]) -> None:
    """Parse, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="the arm's MJCF file")
    parser.add_argument("--robot", required=True, help="the same arm of ours")
    parser.add_argument("--tcp", help="as of train.py")
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--source", default="", help="where the file is from")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "benchmarks" / "results" / "mjcf_plants.csv"
    )
    asked = parser.parse_args(argv)
    require_packages("an MJCF file", "mujoco")
    controllers: dict[str, Callable[[ArmEnv], Callable]] = {
        "rrmc": lambda env: make_baseline("rrmc", env)
    }
    if asked.robot in POLICIES:
        agent = TD3.from_checkpoint(POLICIES[asked.robot], device="cpu")
        controllers["policy"] = lambda env: agent.select_action
    arms = make_arms(asked.file, asked.robot, asked.tcp)
    name = f"{Path(asked.file).parent.name}/{Path(asked.file).name}"
    for controller, make in controllers.items():
        row: rows.Row = {"file": name, "robot": asked.robot, "controller": controller}
        row["kinematic"] = round(measure(arms["our"], "kinematic", make, asked.episodes), 4)
        for plant, robot in arms.items():
            row[f"{plant}_plant"] = round(measure(robot, "mujoco", make, asked.episodes), 4)
        row |= {"episodes": asked.episodes, "source": asked.source}
        row["commit"] = (find_commit() or "")[:7]
        rows.write_rows(asked.out, tuple(row), KEY, [row])
        print(row, flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
