"""Compare with Stable-Baselines3's TD3 on Gymnasium environments: same settings and seeds.

    python benchmarks/gymnasium_envs.py --envs Hopper-v5 Ant-v5 --seeds 0 1 2 --steps 100000
    python benchmarks/gymnasium_envs.py --libraries crossq --envs Ant-v5 --steps 100000
    python benchmarks/gymnasium_envs.py --table

Runs follow each other, seed by seed, each in a process of its own on `--threads` threads. A run's
evaluations are the rows of benchmarks/results/ENV/LIBRARY-seedN.csv. Started again, the script
leaves out what is finished, goes on with what was stopped, and trains finished runs on where
`--steps` is larger. What that needs lies in checkpoints/bench-*; without it a run that was stopped
begins anew.

`--table` writes the tables of benchmarks/notes/gymnasium-td3-vs-sb3.md and img/benchmarks.png from
the CSV files alone.

The settings are those of the authors' code (https://github.com/sfujim/TD3, main.py), but for
`crossq`, which is this package with configs/gymnasium/crossq.yaml. CleanRL publishes the same ones
(https://github.com/vwxyzjn/cleanrl, cleanrl/td3_continuous_action.py, class Args), so they have no
run of their own. `td3_robot_gpu` and `crossq_gpu` have the same settings too, but step eight
environments at a time and take eight gradient steps on a GPU afterwards.
"""

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path

import benchmark_pages
from sb3_gymnasium import COLUMNS

from td3_robot.errors import require_packages
from td3_robot.utils.console import exit_code

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = tuple(benchmark_pages.NAMES)
CROSSQ = ROOT / "configs" / "gymnasium" / "crossq.yaml"

AUTHORS = {
    "hidden": (256, 256),
    "learning_rate": 3e-4,
    "batch_size": 256,
    "buffer": 1_000_000,
    "gamma": 0.99,
    "tau": 0.005,
    "policy_noise": 0.2,
    "noise_clip": 0.5,
    "policy_delay": 2,
    "start_steps": 25_000,
    "exploration_noise": 0.1,
    "hindsight_goals": 0,
    "normalize_observations": False,
}
# Sparse goals: the values of configs/gymnasium/FetchReach.yaml, which says where they come from.
GOALS = AUTHORS | {"learning_rate": 1e-3, "gamma": 0.95, "tau": 0.05, "start_steps": 1000}
GOALS |= {"hindsight_goals": 4, "normalize_observations": True}
GOAL_IDS = ("Fetch", "Panda")
GPU = {"device": "cuda", "cuda_graph": "true", "num_envs": 8, "updates_per_step": 8}


def get_settings(env: str) -> dict:
    """Return the settings of an environment."""
    return GOALS if env.startswith(GOAL_IDS) else AUTHORS


def make_train_flags(settings: dict) -> list[str]:
    """Return `settings` as flags of train.py."""
    flags = {
        "num_envs": 1,
        "updates_per_step": 1,
        "td3.hidden": ",".join(map(str, settings["hidden"])),
        "td3.actor_lr": settings["learning_rate"],
        "td3.critic_lr": settings["learning_rate"],
        **{
            f"td3.{name}": settings[name]
            for name in ("gamma", "tau", "policy_noise", "noise_clip", "policy_delay")
        },
        "replay.capacity": settings["buffer"],
        "replay.batch_size": settings["batch_size"],
        "td3.normalize_observations": str(settings["normalize_observations"]).lower(),
        "exploration.start_steps": settings["start_steps"],
        "exploration.noise": settings["exploration_noise"],
    }
    if goals := settings["hindsight_goals"]:
        flags |= {"replay.hindsight": "future", "replay.hindsight_ratio": goals / (goals + 1)}
    return _list_words(flags)


def _list_words(flags: dict) -> list[str]:
    return [word for name, value in flags.items() for word in (f"--{name}", str(value))]


def run_td3_robot(options: argparse.Namespace, env: str, seed: int, result: Path) -> int:
    """Train with train.py and copy its metrics; return the exit code."""
    crossq = result.name.startswith("crossq")
    gpu = "_gpu" in result.name
    run = f"bench-{result.parent.name}-{'crossq-' * crossq}{'gpu-' * gpu}seed{seed}"
    folder = ROOT / "checkpoints" / run
    if (folder / "last").exists():
        arguments = ["--resume", run]
    else:
        arguments = [
            "--env",
            env,
            "--seed",
            str(seed),
            "--run",
            run,
            "--threads",
            str(options.threads),
        ]
        arguments += ["--config", str(CROSSQ)] if crossq else make_train_flags(get_settings(env))
        arguments += _list_words(GPU) if gpu else []
        arguments += _list_words(
            {"evaluation.every": options.every, "evaluation.episodes": options.episodes}
        )
    command = [sys.executable, str(ROOT / "train.py"), *arguments, "--steps", str(options.steps)]
    code = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode
    if (folder / "metrics.csv").exists():
        with (
            (folder / "metrics.csv").open(newline="") as source,
            result.open("w", newline="") as target,
        ):
            writer = csv.DictWriter(target, COLUMNS, restval="", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(csv.DictReader(source))
    return code


def run_sb3(options: argparse.Namespace, env: str, seed: int, result: Path) -> int:
    """Train with benchmarks/sb3_gymnasium.py, which writes `result`; return the exit code."""
    job = {
        "env": env,
        "seed": seed,
        "steps": options.steps,
        "every": options.every,
        "episodes": options.episodes,
        "settings": {**get_settings(env), "threads": options.threads},
        "csv": str(result),
        "state": str(ROOT / "checkpoints" / f"bench-{result.parent.name}-seed{seed}-sb3"),
    }
    command = [sys.executable, str(ROOT / "benchmarks" / "sb3_gymnasium.py"), json.dumps(job)]
    return subprocess.run(command, cwd=ROOT).returncode


def run(options: argparse.Namespace) -> int:
    """Run every training that is not finished; return how many failed."""
    failed = 0
    for seed in options.seeds:
        for env in options.envs:
            for library in options.libraries:
                result = (
                    benchmark_pages.RESULTS / env.replace("/", "-") / f"{library}-seed{seed}.csv"
                )
                result.parent.mkdir(parents=True, exist_ok=True)
                rows = benchmark_pages.read(result)
                if rows and rows[-1]["env_steps"] >= options.steps:
                    continue
                print(f"{env} seed {seed} {library} ...", flush=True)
                train = run_sb3 if library == "sb3" else run_td3_robot
                code = train(options, env, seed, result)
                rows = benchmark_pages.read(result)
                outcome = (
                    f"return {rows[-1]['episode_return']:,.1f}, {rows[-1]['wall_s']:,.0f} s"
                    if rows
                    else "no row"
                )
                print(f"{env} seed {seed} {library}: exit {code}, {outcome}", flush=True)
                if code == 130:
                    raise KeyboardInterrupt
                failed += code != 0
    return failed


def main(argv: list[str]) -> int:
    """Run, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--envs", nargs="+", default=["HalfCheetah-v5", "Hopper-v5", "Walker2d-v5"], metavar="ID"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=100_000, help="env steps of each run")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=["td3_robot", "sb3"])
    parser.add_argument("--every", type=int, default=5000, help="env steps between evaluations")
    parser.add_argument("--episodes", type=int, default=10, help="episodes of an evaluation")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of torch")
    parser.add_argument(
        "--table", action="store_true", help="write docs and plot in place of running"
    )
    parser.add_argument(
        "--marks",
        nargs="+",
        type=int,
        default=[100_000, 300_000],
        help="env steps of the table of returns",
    )
    goal_marks = [2_000, 10_000, 20_000]
    parser.add_argument(
        "--goal-marks", nargs="+", type=int, default=goal_marks, help="... of success rates"
    )
    options = parser.parse_args(argv)
    if options.table:
        benchmark_pages.write_learning(options.marks, options.goal_marks)
        return 0
    if "sb3" in options.libraries:
        require_packages("library sb3", "stable_baselines3")
    return 1 if run(options) else 0


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
