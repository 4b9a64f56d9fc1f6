"""Measure the guard among obstacles: off, on, and on with a stop that is kept.

    python benchmarks/guard.py                  # five minutes of a core
    python benchmarks/guard.py --stale          # nothing if all rows are of today's inputs
    python benchmarks/guard.py --cost           # only the time of a step
    python benchmarks/guard.py --constants      # print what other constants do

`reach_avoid` with the Panda, the shipped policy and other controllers, the same scenes for all. The
results go to benchmarks/results/guard.csv, where they replace those of the same controller.
"""

import argparse
import dataclasses
import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import figures
import rows
import torch
from torch import Tensor

import envs
from envs.arm_env.arm_env import ArmEnv
from envs.controllers.experts import make_expert
from envs.controllers.guard import DEFAULTS, GuardConstants
from td3_robot import TD3
from td3_robot.checkpoint.provenance import find_commit
from td3_robot.evaluation.rollout import Policy, compute_episode_statistics, rollout
from td3_robot.utils.console import exit_code
from td3_robot.utils.memory import keep_freed_memory

TASK = "reach_avoid"
STOPS = dataclasses.replace(DEFAULTS, stops=True)
GUARDS = {"off": None, "on": DEFAULTS, "stops": STOPS}  # as guard.csv names them
COLUMNS = ("task", "controller", "guard", "contact", "success", "step_ms")
COLUMNS += ("episodes", "seed", "commit", "inputs")
CONSTANTS = (
    DEFAULTS,
    dataclasses.replace(DEFAULTS, stop=0.005),
    dataclasses.replace(DEFAULTS, stop=0.015, least=0.0075),
    dataclasses.replace(DEFAULTS, share=0.05),
    dataclasses.replace(DEFAULTS, share=0.25),
    dataclasses.replace(DEFAULTS, share=0.5),
    dataclasses.replace(DEFAULTS, sweeps=1),
    dataclasses.replace(DEFAULTS, sweeps=10),
    STOPS,
)


def play_episodes(policy: Policy, env: ArmEnv) -> tuple[float, float]:
    """Return the shares of the episodes with a contact and with success."""
    played = rollout(policy, env, env.reset(rows.UNSEEN_SEED), keep=("success", "touched"))
    contact = (played.info["touched"] & played.alive).any(0).float().mean()
    success = compute_episode_statistics(played)["success"].float().mean()
    return round(float(contact), 4), round(float(success), 4)


def make_full_speed(env: ArmEnv) -> Policy:
    """Make a policy that drives every joint at full speed, one way an episode."""
    generator = torch.Generator().manual_seed(rows.UNSEEN_SEED)
    action = torch.sign(torch.rand(env.num_envs, env.a_dim, generator=generator) - 0.5)
    return lambda observation: action


def list_controllers() -> dict[str, Callable[[ArmEnv], Policy]]:
    """Return a function for each controller that makes it for an environment."""

    def load_policy(env: ArmEnv) -> Policy:
        return TD3.from_checkpoint(figures.ROOT / "checkpoints" / TASK).select_action

    named = {"rrmc": "rrmc", "ik": "solution"}
    experts = {name: functools.partial(make_expert, named[name]) for name in named}
    return {"full speed one way": make_full_speed, **experts, "policy": load_policy}


def make_row(controller: str, guard: str, episodes: int, **found: float) -> rows.Row:
    """Return a row of guard.csv."""
    row: rows.Row = {"task": TASK, "controller": controller, "guard": guard, **found}
    row |= {"episodes": episodes, "seed": rows.UNSEEN_SEED, "commit": (find_commit() or "")[:7]}
    return row | {"inputs": figures.hash_shipped({"task": TASK})}


def store(out: Path, row: rows.Row) -> None:
    """Write a row and print it."""
    rows.write_rows(out, COLUMNS, ("controller", "guard"), [row])
    print(row, flush=True)


def measure_controllers(out: Path, episodes: int) -> None:
    """Store a row for each controller and each guard."""
    bare, safe = (
        envs.make("panda", TASK, episodes, seed=rows.UNSEEN_SEED, guard=on) for on in (False, True)
    )
    for name, make in list_controllers().items():
        for guard, constants in GUARDS.items():
            env = safe if constants else bare
            env.guard_constants = constants or DEFAULTS
            contact, success = play_episodes(make(env), env)
            store(out, make_row(name, guard, episodes, contact=contact, success=success))


def measure_cost(out: Path, count: int = 256, steps: int = 20, turns: int = 5) -> None:
    """Store the least CPU time of a step of random actions with each guard, measured in turns."""
    made = {guard: envs.make("panda", TASK, count, seed=rows.UNSEEN_SEED, guard=guard != "off")
            for guard in GUARDS}  # fmt: skip
    generator = torch.Generator().manual_seed(rows.UNSEEN_SEED)
    actions: list[Tensor] = [
        2 * torch.rand(count, made["on"].a_dim, generator=generator) - 1 for _ in range(steps)
    ]
    spent = dict.fromkeys(GUARDS, float("inf"))
    for _ in range(turns):
        for guard, env in made.items():
            env.guard_constants = GUARDS[guard] or DEFAULTS
            env.reset(rows.UNSEEN_SEED)
            start = time.process_time()
            for action in actions:
                env.moment = env._advance(action)
            spent[guard] = min(spent[guard], (time.process_time() - start) / steps)
    for guard, seconds in spent.items():
        store(out, make_row(f"{count} arms", guard, count, step_ms=round(1000 * seconds, 2)))


def print_constants(episodes: int) -> None:
    """Print what other constants do to a policy trained with the default ones."""
    makers = list_controllers()
    safe = envs.make("panda", TASK, episodes, seed=rows.UNSEEN_SEED, guard=True)
    names = [field.name for field in dataclasses.fields(GuardConstants)]
    print(f"| {' | '.join(names)} | full speed: contact [%] | policy: contact [%] | success [%] |")
    print("| --- " * (len(names) + 3) + "|")
    for constants in CONSTANTS:
        safe.guard_constants = constants
        shares = (
            play_episodes(makers["full speed one way"](safe), safe)[0],
            *play_episodes(makers["policy"](safe), safe),
        )
        values = (
            *(f"{value:g}" for value in dataclasses.astuple(constants)),
            *(f"{100 * share:.1f}" for share in shares),
        )
        print(f"| {' | '.join(values)} |", flush=True)


def main(argv: list[str]) -> None:
    """Parse, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=figures.RESULTS / "guard.csv")
    parser.add_argument("--stale", action="store_true", help="leave out what is of today's inputs")
    parser.add_argument("--cost", action="store_true", help="measure only the time of a step")
    parser.add_argument("--constants", action="store_true", help="print what other constants do")
    asked = parser.parse_args(argv)
    keep_freed_memory()
    torch.set_num_threads(1)
    if asked.constants:
        return print_constants(asked.episodes)
    stored = rows.read_rows(asked.out)
    if asked.stale and stored and not any(figures.is_stale("guard", row) for row in stored):
        return
    measure_cost(asked.out)
    if not asked.cost:
        measure_controllers(asked.out, asked.episodes)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
