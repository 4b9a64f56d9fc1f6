"""Measure trainings on a GPU: gradient steps with CUDA graphs and eager, beside Stable-Baselines3.

    python benchmarks/gpu.py                          # writes benchmarks/results/gpu.csv
    python benchmarks/gpu.py --only reach HalfCheetah-v5 --seconds 60
    python benchmarks/gpu.py --device cpu --only reach --steps 100_000 --csv trial.csv
    python benchmarks/gpu.py --only HalfCheetah-v5 --leanrl PATH/OF/LEANRL/SCRIPT.py

Tasks train by configs/gpu/TASK.yaml, environments of Gymnasium with the settings of
benchmarks/gymnasium_envs.py, but 5,000 random steps. Each run ends after `--seconds`; one that
fails leaves its last line in the column `note`. Speeds are means from the second evaluation on
(Stable-Baselines3: from 1,000 gradient steps on), without imports, evaluations and random steps;
`seconds` and `solved_s` count from the start of the training and include evaluations. The script
of LeanRL (https://github.com/meta-pytorch/LeanRL, 760837e) has to be adapted to Gymnasium 1 first:
same-step autoreset, `final_info` and `final_obs`. Its speed is what it prints itself.
"""

import argparse
import csv
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gymnasium_envs
import rows
import torch
from training import ROOT

from td3_robot.errors import require_packages
from td3_robot.utils.console import exit_code

TASKS = ("reach", "reach_pose", "pick_place")
LIBRARIES = ("td3_robot", "sb3")
KEY = ("name", "library", "updates", "card")
FIGURES = ("env_steps", "gradient_steps", "seconds", "env_steps_per_s", "updates_per_s")
FIGURES += ("solved_s", "solved_at_env_steps", "success_rate", "note")
COLUMNS = (*KEY, "torch", *FIGURES)
RANDOM_STEPS = 5000  # of Gymnasium environments, so that a short run learns most of its time


def train(name: str, updates: str, options: argparse.Namespace) -> rows.Row:
    """Train with train.py and return the figures of its metrics.csv."""
    words = ["--device", options.device, "--cuda_graph", str(updates == "graph").lower()]
    words += ["--seed", str(options.seed)]
    if name in TASKS:
        words += ["--config", str(ROOT / "configs" / "gpu" / f"{name}.yaml")]
    else:
        words += [
            "--env",
            name,
            *gymnasium_envs.make_train_flags(gymnasium_envs.get_settings(name)),
        ]
        words += ["--exploration.start_steps", str(RANDOM_STEPS)]
        words += ["--evaluation.every", str(RANDOM_STEPS), "--evaluation.episodes", "1"]
    words += ["--steps", str(options.steps)] if options.steps else []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "train.py"), *words, "--run", "r", *options.words]
        note = run(command, folder, options.seconds)
        found = list(Path(folder).rglob("metrics.csv"))
        curve = read(found[0]) if found else []
    return {**summarise(curve), "note": note}


def run(command: list[str], folder: str, seconds: float) -> str:
    """Run a command for so many seconds at most; return what went wrong or ""."""
    log = Path(folder) / "log"
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()  # the rows that it has written are all that counts
            process.wait()
            return ""
    if code == 0:
        return ""
    lines = log.read_text().strip().splitlines()
    print("\n".join(lines[-20:]), flush=True)
    return f"exit {code}: {lines[-1] if lines else ''}"


def read(path: Path) -> list[dict[str, float]]:
    """Return the rows of a metrics.csv."""
    with path.open(newline="") as file:
        return [
            {name: float(value) for name, value in row.items() if value}
            for row in csv.DictReader(file)
        ]


def summarise(curve: list[dict[str, float]]) -> rows.Row:
    """Return the figures of a curve, speeds from the second row on: the first has random steps."""
    if not curve:
        return {}
    last = curve[-1]
    figures: rows.Row = {name: int(last[name]) for name in ("env_steps", "gradient_steps")}
    figures["seconds"] = round(last["wall_s"], 1)
    for name, count in (("env_steps_per_s", "env_steps"), ("updates_per_s", "gradient_steps")):
        pairs = [(now[count] - before[count], now[name]) for before, now in zip(curve, curve[1:])]
        spent = sum(made / speed for made, speed in pairs if speed > 0)
        if spent:
            figures[name] = round(sum(made for made, _ in pairs) / spent, 1)
    if "success_rate" in last:
        figures["success_rate"] = round(last["success_rate"], 4)
        if solved := [row for row in curve if row["success_rate"] >= 0.99]:
            figures["solved_s"] = round(solved[0]["wall_s"], 1)
            figures["solved_at_env_steps"] = int(solved[0]["env_steps"])
    return figures


def time_sb3(name: str, options: argparse.Namespace) -> rows.Row:
    """Time Stable-Baselines3's TD3, in this process."""
    require_packages("this comparison", "stable_baselines3")
    from gpu_sb3_learner import train  # here: Stable-Baselines3 is an extra

    steps = options.steps or 1_000_000
    return train(name, options.device, steps, options.seconds, RANDOM_STEPS, options.seed)


def time_leanrl(name: str, options: argparse.Namespace) -> rows.Row:
    """Run LeanRL's TD3 with its compiler and CUDA graphs, and read the speed that it prints."""
    words = ["--env-id", name, "--learning-starts", str(RANDOM_STEPS), "--seed", str(options.seed)]
    words += ["--total-timesteps", str(options.steps or 1_000_000), "--compile", "--cudagraphs"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(options.leanrl), *words]
        note = run(command, folder, options.seconds)
        printed = (Path(folder) / "log").read_text()
    found = re.findall(r"([\d.]+) sps, global_step=(\d+)", printed)
    if not found:
        return {"note": note or "it printed no speed: --seconds may be too few for its compiler"}
    speed, env_steps = found[-1]
    row: rows.Row = {"env_steps": env_steps, "gradient_steps": int(env_steps) - RANDOM_STEPS}
    speeds = dict.fromkeys(("env_steps_per_s", "updates_per_s"), round(float(speed), 1))
    return {**row, "seconds": options.seconds, **speeds, "note": note}


def name_card(device: str) -> str:
    """Return the name of the GPU, or cpu."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def main(argv: list[str]) -> int:
    """Run everything that was asked for, and write each row as soon as it is known."""
    names = (*TASKS, "HalfCheetah-v5")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=names, metavar="NAME", help="tasks and ids")
    parser.add_argument("--updates", nargs="+", choices=("graph", "eager"))
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of each run")
    parser.add_argument("--steps", type=int, help="env steps of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--csv", type=Path, default=ROOT / "benchmarks" / "results" / "gpu.csv")
    parser.add_argument("--leanrl", type=Path, help="script of LeanRL to measure as well")
    parser.add_argument("words", nargs="*", help="more words for train.py, after --")
    options = parser.parse_args(argv)
    kinds = options.updates or (["graph", "eager"] if options.device != "cpu" else ["eager"])
    same = {"card": name_card(options.device), "torch": torch.__version__}
    gymnasium_ids = [name for name in options.only if name not in TASKS]
    jobs = [(name, "td3_robot", kind) for name in options.only for kind in kinds]
    jobs += [(name, "sb3", "eager") for name in gymnasium_ids]
    jobs = [job for job in jobs if job[1] in options.libraries]
    jobs += [(name, "leanrl", "graph") for name in gymnasium_ids if options.leanrl]
    for name, library, kind in jobs:
        began = time.perf_counter()
        if library == "sb3":
            figures = time_sb3(name, options)
        elif library == "leanrl":
            figures = time_leanrl(name, options)
        else:
            figures = train(name, kind, options)
        row = {"name": name, "library": library, "updates": kind, **same, **figures}
        print(f"{time.perf_counter() - began:.0f} s: {row}", flush=True)
        rows.write_rows(options.csv, COLUMNS, KEY, [row])
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
