"""Measure the guard among obstacles, with several controllers and constants.

    python benchmarks/guard.py                                  # ten minutes or more
    python benchmarks/guard.py --checkpoint checkpoints/run5    # with another policy

Prints Markdown tables of `reach_avoid` with the Panda; the same scenes for all.
"""

import argparse
import dataclasses
import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import envs
from envs.arm_env.arm_env import ArmEnv
from envs.controllers.experts import make_expert
from envs.controllers.guard import DEFAULTS, GuardConstants
from td3_robot import TD3
from td3_robot.errors import require_packages
from td3_robot.evaluation.rollout import Policy, compute_episode_statistics, rollout
from td3_robot.utils.console import exit_code
from td3_robot.utils.memory import keep_freed_memory

SEED = 12345
CONSTANTS = (
    DEFAULTS,
    dataclasses.replace(DEFAULTS, stop=0.005),
    dataclasses.replace(DEFAULTS, stop=0.015, least=0.0075),
    dataclasses.replace(DEFAULTS, share=0.05),
    dataclasses.replace(DEFAULTS, share=0.25),
    dataclasses.replace(DEFAULTS, share=0.5),
    dataclasses.replace(DEFAULTS, sweeps=1),
    dataclasses.replace(DEFAULTS, sweeps=10),
    dataclasses.replace(DEFAULTS, stops=True),
)


def outcome(policy: Policy, env: ArmEnv) -> tuple[float, float]:
    """Return the shares of the episodes with a contact and with success [%]."""
    played = rollout(policy, env, env.reset(SEED), keep=("success", "touched"))
    contact = (played.info["touched"] & played.alive).any(0).float().mean()
    return 100 * float(contact), 100 * float(
        compute_episode_statistics(played)["success"].float().mean()
    )


def full_speed(env: ArmEnv) -> Policy:
    """Drive every joint at full speed, one way an episode: what no controller should do."""
    generator = torch.Generator().manual_seed(SEED)
    action = torch.sign(torch.rand(env.num_envs, env.a_dim, generator=generator) - 0.5)
    return lambda observation: action


def controllers(checkpoint: Path) -> dict[str, Callable[[ArmEnv], Policy]]:
    """Return a function for each controller that makes it for an environment."""

    def policy(env: ArmEnv) -> Policy:
        return TD3.from_checkpoint(checkpoint).select_action

    named = {name: functools.partial(make_expert, name) for name in ("rrmc", "neo", "solution")}
    return {"full speed one way": full_speed, **named, "policy": policy}


def print_controllers(
    makers: dict[str, Callable[[ArmEnv], Policy]], bare: ArmEnv, safe: ArmEnv
) -> None:
    """Print each controller with and without the guard."""
    print("| controller | contact [%] | success [%] | guarded: contact [%] | success [%] |")
    print("| --- | --- | --- | --- | --- |")
    for name, make in makers.items():
        figures = (*outcome(make(bare), bare), *outcome(make(safe), safe))
        print(f"| {name} | {' | '.join(f'{figure:.1f}' for figure in figures)} |", flush=True)


def print_constants(makers: dict[str, Callable[[ArmEnv], Policy]], safe: ArmEnv) -> None:
    """Print what other constants do to a policy trained with the default ones."""
    names = [field.name for field in dataclasses.fields(GuardConstants)]
    print(
        f"\n| {' | '.join(names)} | full speed: contact [%] | policy: contact [%] | success [%] |"
    )
    print("| --- " * (len(names) + 3) + "|")
    for constants in CONSTANTS:
        safe.guard_constants = constants
        figures = (
            outcome(makers["full speed one way"](safe), safe)[0],
            *outcome(makers["policy"](safe), safe),
        )
        values = (
            *(f"{value:g}" for value in dataclasses.astuple(constants)),
            *(f"{figure:.1f}" for figure in figures),
        )
        print(f"| {' | '.join(values)} |", flush=True)
    safe.guard_constants = DEFAULTS


def print_cost(count: int = 256, steps: int = 50, rounds: int = 5) -> None:
    """Print the least time of an environment step, without and with the guard."""
    taken = {}
    for guard in (False, True):
        env = envs.make("panda", "reach_avoid", count, seed=SEED, guard=guard)
        actions: list[Tensor] = [2 * torch.rand(count, env.a_dim) - 1 for _ in range(steps)]
        seconds = []
        for _ in range(rounds):
            env.reset(SEED)
            start = time.perf_counter()
            for action in actions:
                env.moment = env._advance(action)
            seconds.append((time.perf_counter() - start) / steps)
        taken[guard] = 1000 * min(seconds)
    print(
        f"\nmoving {count} arms and looking around: {taken[False]:.1f} ms, "
        f"guarded {taken[True]:.1f} ms, one thread"
    )


def main(argv: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoints/reach_avoid"))
    parser.add_argument("--episodes", type=int, default=1000)
    arguments = parser.parse_args(argv)
    require_packages("controller neo", "qpsolvers", "quadprog")
    keep_freed_memory()
    torch.set_num_threads(1)
    bare, safe = (
        envs.make("panda", "reach_avoid", arguments.episodes, seed=SEED, guard=guard)
        for guard in (False, True)
    )
    makers = controllers(arguments.checkpoint)
    print_controllers(makers, bare, safe)
    print_constants(makers, safe)
    print_cost()


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
