"""Measure what contact physics costs the shipped policies, and the simulator.

    python benchmarks/physics.py                               # all tasks, 1,000 episodes each
    python benchmarks/physics.py --tasks reach --episodes 200
    python benchmarks/physics.py --speed                       # control steps a second

Episodes are those of `evaluate.py`. The results go to benchmarks/results/physics.csv, where they
replace those of the same task, controller and engine.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import rows
import torch
from torch import Tensor

from envs.arm_env.arm_env import ArmEnv
from envs.config.env_options import EnvOptions
from envs.controllers import make_baseline
from envs.robots import make_robot
from envs.tasks.registry import make_task
from td3_robot import TD3
from td3_robot.cli.arguments import load_run_config
from td3_robot.errors import require_packages
from td3_robot.evaluation.rollout import draw_round_seeds
from td3_robot.utils.console import exit_code

TASKS = ("reach", "reach_pose", "reach_avoid", "track", "pick_place", "pick_turned", "push")
CLASSICAL = {
    "reach_pose": "ik",
    "reach_avoid": "neo+guard",
    "pick_place": "pick",
    "pick_turned": "pick",
    "push": "push",
}
PHYSICS = {"mujoco": {}, "mujoco, servos alone": {"feed_forward": False}}  # options of engines
ENGINES = ("kinematic", *PHYSICS)
KEY = ("task", "controller", "engine")
_FIGURES = (
    "episodes",
    "success_rate",
    "success_rate_with_contact",
    "touched",
    "force_N_p95",
    "force_N_max",
    "unstable",
)
COLUMNS = (*KEY, *_FIGURES)
ROOT = Path(__file__).resolve().parent.parent


def make(
    task_name: str, engine: str, arms: int, seed: int, guard: bool = False, threads: int = 1
) -> ArmEnv:
    """Make the Panda at a task."""
    robot = make_robot("panda")
    task = make_task(task_name)
    moved_by = None
    if engine in PHYSICS:
        from envs.simulation.mujoco import MujocoEngine  # here: it is an extra

        moved_by = MujocoEngine(
            robot, task.dt, task.cube_side, threads=threads, cubes=task.cubes, **PHYSICS[engine]
        )
    return ArmEnv(robot, task, arms, "cpu", seed, guard=guard, engine=moved_by)


@torch.no_grad()
def play(env: ArmEnv, policy: Callable[[Tensor], Tensor], seed: int) -> dict[str, object]:
    """Play one episode on every arm; return successes and undue contacts."""
    observation = env.reset(draw_round_seeds(env, env.num_envs, seed)[0])
    force = torch.zeros(env.num_envs)
    touched, success, with_contact, over = (
        torch.zeros(env.num_envs, dtype=torch.bool) for _ in range(4)
    )
    for _ in range(env.task.horizon):
        step = env.step(policy(observation))
        observation = step.observation
        scene = env.arrived.scene
        now = lambda old, new: torch.where(over, old, new)  # noqa: B023, E731
        touched = now(touched, scene["touched"])
        success = now(success, step.info["success"])
        with_contact = now(with_contact, step.info["success_with_contact"])
        force = now(force, torch.maximum(force, scene.get("contact_force", force)))
        over |= step.terminated | step.truncated
    shares = {
        "success_rate": success,
        "success_rate_with_contact": with_contact,
        "touched": touched,
    }
    row: dict[str, object] = {
        name: round(share.double().mean().item(), 4) for name, share in shares.items()
    }
    if env.engine is None:
        return row
    forces = {"force_N_p95": force.quantile(0.95), "force_N_max": force.max()}
    return (
        row
        | {name: round(newton.item(), 1) for name, newton in forces.items()}
        | {"unstable": env.engine.unstable}
    )


def transfer(asked: argparse.Namespace) -> None:
    """Evaluate every shipped policy and a classical controller, kinematic and in physics."""
    for task in asked.tasks:
        folder = ROOT / "checkpoints" / ("run1" if task == "reach" else task)
        guarded = load_run_config(folder, EnvOptions)[1].guard
        agent = TD3.from_checkpoint(folder)
        for engine in asked.engines:
            for name in ("policy", CLASSICAL.get(task, "rrmc")):
                env = make(
                    task,
                    engine,
                    asked.episodes,
                    asked.seed,
                    guarded if name == "policy" else "+" in name,
                )
                policy = (
                    agent.select_action
                    if name == "policy"
                    else make_baseline(name.removesuffix("+guard"), env)
                )
                row: rows.Row = {
                    "task": task,
                    "controller": name,
                    "engine": engine,
                    "episodes": asked.episodes,
                }
                row |= play(env, policy, asked.seed)
                rows.write_rows(asked.out, COLUMNS, KEY, [row])
                print(row, flush=True)


def measure_speed(steps: int = 40) -> None:
    """Measure control steps a second, by the clock and by processor time."""
    for task in ("reach", "pick_place"):
        for threads in (1, 2):
            for arms in (64, 256):
                _time_arms(task, arms, threads, steps)
    _time_others(steps)


def _time_arms(task: str, arms: int, threads: int, steps: int) -> None:
    """Make free arms that move slowly, or arms that hold a cube."""
    env = make(task, "mujoco", arms, 0, threads=threads)
    if task == "reach":
        return _print_speed(
            f"free, {arms} arms, {threads} threads",
            arms,
            steps,
            lambda: env.step(_draw_slow_action(env)),
        )
    pick = make_baseline("pick", env)
    observation = env.reset(0)
    for _ in range(50):  # until the cubes are in the hands
        observation = env.step(pick(observation)).observation
    _print_speed(
        f"grasping, {arms} arms, {threads} threads",
        arms,
        steps,
        lambda: env.step(pick(observation)),
    )


def _draw_slow_action(env: ArmEnv) -> Tensor:
    return 0.2 * (2.0 * torch.rand(env.num_envs, env.a_dim) - 1.0)


def _time_others(steps: int) -> None:
    """Make one environment of other packages, each with physics of its own."""
    import gymnasium
    import gymnasium_robotics
    import panda_gym

    gymnasium.register_envs(gymnasium_robotics)
    gymnasium.register_envs(panda_gym)
    for name in ("FetchReach-v4", "FetchPush-v4", "PandaReach-v3"):
        env = gymnasium.make(name)
        env.reset(seed=0)
        _print_speed(name, 1, steps, lambda env=env: env.step(env.action_space.sample()))


def _print_speed(name: str, arms: int, steps: int, step: Callable[[], object]) -> None:
    wall = time.perf_counter()
    processor = time.process_time()
    for _ in range(steps):
        step()
    wall = time.perf_counter() - wall
    processor = time.process_time() - processor
    print(
        f"{name}: {arms * steps / wall:,.0f} a second, "
        f"{arms * steps / processor:,.0f} a CPU-second",
        flush=True,
    )


def main(argv: list[str]) -> None:
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--engines", nargs="+", default=ENGINES[:2], choices=ENGINES)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=rows.UNSEEN_SEED)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "physics.csv")
    parser.add_argument("--speed", action="store_true")
    asked = parser.parse_args(argv)
    torch.set_num_threads(1)
    if asked.speed:
        require_packages("--speed", "mujoco", "gymnasium_robotics", "panda_gym")
    measure_speed() if asked.speed else transfer(asked)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
