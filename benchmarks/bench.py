"""Measure what is fast and what became slower: `make bench`, three minutes.

    python benchmarks/bench.py                               # compared with Stable-Baselines3
    python benchmarks/bench.py --against HEAD~5              # and with an older commit
    python benchmarks/bench.py --only "time to 99%" --turns 5 --against v0.1

Each tree has a process that does its parts, a fraction of a second in turns with the others, so
that a busy machine slows all alike; ratios are of neighbouring turns, above 1 if this tree is the
faster one. Trainings are whole commands, cold, of the same seed in a turn. One thread. Writes
benchmarks/results/bench.csv, img/bench.png and the tables of benchmarks/notes/throughput.md;
the exit code is 1 if a part has become slower than 0.9 of the older commit.
"""

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import benchmark_pages
import probes
from benchmark_pages import ROOT
from training import run_script

from td3_robot.utils.console import exit_code

SLOWER = 0.9  # of the older commit's rate: reported, and the exit code is 1
TURN_S = 0.25
SB3 = "Stable-Baselines3"
RESULT = benchmark_pages.RESULTS / "bench.csv"


@dataclass(frozen=True)
class Part:
    """Part of the benchmark that is timed.

    Attributes:
        name: as it is shown; of a probe, or a key of COMMANDS.
        unit: of its figure.
        each: units that a repetition of its probe does; None: the figure is the seconds of a
            command.
        sb3: Stable-Baselines3 does it, too.
        turns: of every tree.
    """

    name: str
    unit: str
    each: float | None = None
    sb3: bool = False
    turns: int = 12


PARTS = (
    Part("update 2x128", "updates/s", 1, sb3=True, turns=20),
    Part("update 2x256", "updates/s", 1, sb3=True, turns=20),
    Part("update CrossQ", "updates/s", 1, turns=4),
    Part("update CrossQ medium", "updates/s", 1, turns=4),
    *(Part(f"simulator {task}", "steps/s", probes.ARMS, turns=8) for task in probes.TASKS),
    Part("collision", "queries/s", probes.ARMS),
    Part("product", "GFLOP/s", 2 * 1024**3 / 1e9),
    Part("cold start", "s", turns=2),
    Part("time to 99%", "s", turns=1),
)


class Probes:
    """Process that times the parts with the package of one tree."""

    def __init__(self, tree: Path):
        environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(ROOT / "benchmarks/probes.py")]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=tree, env=environment, stdin=pipe, stdout=pipe
        )

    def begin(self, name: str) -> None:
        """Prepare another part, and drop the one before.

        Raises:
            RuntimeError: the tree's package cannot do it.
        """
        if (answer := self._answer(name)) != "ready":
            raise RuntimeError(answer)

    def time_repetitions(self, count: int) -> float:
        """Return the seconds of so many repetitions."""
        return float(self._answer(str(count)))

    def _answer(self, line: str) -> str:
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
        return self._process.stdout.readline().decode().strip()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def time_cold_start(tree: Path, turn: int) -> float:
    """Return the seconds of a training of one step, from process start to end."""
    began = time.perf_counter()
    _train(tree, turn, "--steps", "64", "--evaluation.episodes", "1")
    return time.perf_counter() - began


def time_until_99(tree: Path, turn: int) -> float:
    """Return the seconds from process start to the first evaluation at 99%, or infinity."""
    return _train(tree, turn).get("solved_at_s") or float("inf")


def _train(tree: Path, seed: int, *flags: str) -> dict:
    """Train `reach` with its preset; return the summary."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("--robot", "panda", "--run", "run", "--seed", str(seed), *flags)
        run_script("train.py", *words, folder=folder, tree=tree, threads=1)
        return json.loads(Path(folder, "checkpoints", "run", "summary.json").read_text())


COMMANDS: dict[str, Callable[[Path, int], float]] = {
    "cold start": time_cold_start,
    "time to 99%": time_until_99,
}


def measure_rates(part: Part, probes_of: dict[str, Probes], turns: int) -> dict[str, list[float]]:
    """Return the units a second of each turn, by tree."""
    workers = {}
    for name, worker in probes_of.items():
        try:
            worker.begin(f"sb3 {part.name}" if name == SB3 else part.name)
            workers[name] = worker
        except RuntimeError as error:
            print(f"{part.name}: nothing of {name}: {error}", file=sys.stderr)
    counts = {
        name: max(1, round(TURN_S / worker.time_repetitions(1))) for name, worker in workers.items()
    }
    counts = {
        name: max(1, round(TURN_S * count / workers[name].time_repetitions(count)))
        for name, count in counts.items()
    }
    rates: dict[str, list[float]] = {name: [] for name in workers}
    for turn in range(turns):
        for name in list(workers)[
            :: 1 if turn % 2 else -1
        ]:  # whoever is first in one turn is last in the next
            rates[name].append(
                part.each * counts[name] / workers[name].time_repetitions(counts[name])
            )
    return rates


def measure_part(
    part: Part, trees: dict[str, Path], probes_of: dict[str, Probes], turns: int
) -> list[dict]:
    """Return a row for each of the other trees, or one if there are none."""
    if part.each is None:
        work = COMMANDS[part.name]
        values = {name: [] for name in trees}
        for turn in range(turns):
            for name, tree in list(trees.items())[:: 1 if turn % 2 else -1]:
                values[name].append(work(tree, turn))
    else:
        known = {name: probe for name, probe in probes_of.items() if name != SB3 or part.sb3}
        values = measure_rates(part, known, turns)
    here = values.pop("here")
    middle = statistics.median
    load = round(os.getloadavg()[0], 1)
    base = {
        "part": part.name,
        "unit": part.unit,
        "here": middle(here),
        "turns": len(here),
        "load": load,
    }
    rows = []
    for name, others in values.items():
        pairs = [mine / other if part.each else other / mine for mine, other in zip(here, others)]
        low, ratio, high = statistics.quantiles(pairs, n=4) if len(pairs) > 1 else pairs * 3
        rows.append(
            base
            | {"other": name, "theirs": middle(others), "ratio": ratio, "low": low, "high": high}
        )
    return rows or [base]


def unpack_commit(commit: str, folder: Path) -> Path:
    """Unpack the files of a commit of this repository into a folder."""
    done = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True)
    if done.returncode:
        raise SystemExit(f"--against {commit}: {done.stderr.decode().strip().splitlines()[0]}")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def describe_machine() -> str:
    """Describe the machine."""
    import torch

    names = [
        line
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    processor = names[0].partition(": ")[2] if names else platform.processor()
    system = f"{platform.system()}, torch {torch.__version__}"
    return f"{os.cpu_count()} cores of {processor}, {system}, one thread"


def format_row(row: dict) -> str:
    """Format a row for the terminal."""
    line = f"{row['part']:24}{row['here']:>14,.4g} {row['unit']:10}"
    if "other" in row:
        slow = "   SLOWER" if is_slower(row) else ""
        line += f"{row['theirs']:>14,.4g}  {row['other']:18} ratio {row['ratio']:.2f}"
        line += f" ({row['low']:.2f} to {row['high']:.2f}){slow}"
    return f"{line}   load {row['load']}"


def is_slower(row: dict) -> bool:
    """Return True if this tree is slower, by more than noise, than its older commit."""
    return row.get("other", SB3) != SB3 and row["ratio"] < SLOWER


def main(argv: list[str]) -> int:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", help="an older commit of this repository")
    parser.add_argument("--only", nargs="+", metavar="PART", default=[part.name for part in PARTS])
    parser.add_argument(
        "--turns", type=int, help="of every part; by default 1 to 24, as long as they take"
    )
    options = parser.parse_args(argv)
    if unknown := set(options.only) - {part.name for part in PARTS}:
        names = ", ".join(part.name for part in PARTS)
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {names}")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        trees = {"here": ROOT}
        if options.against:
            trees[options.against] = unpack_commit(options.against, Path(scratch))
        parts = [part for part in PARTS if part.name in options.only]
        probed = trees | ({SB3: ROOT} if any(part.sb3 for part in parts) else {})
        probes_of = {
            name: Probes(tree) for name, tree in probed.items() if any(part.each for part in parts)
        }
        for part in parts:
            for row in measure_part(part, trees, probes_of, options.turns or part.turns):
                rows.append(row)
                print(format_row(row), flush=True)
        for probe in probes_of.values():
            probe.close()
    print(describe_machine())
    if options.only == [part.name for part in PARTS]:
        write(rows)
    return int(any(map(is_slower, rows)))


def write(rows: list[dict]) -> None:
    """Write the CSV, the picture and the page."""
    with RESULT.open("w", newline="") as file:
        columns = (
            "part",
            "unit",
            "here",
            "other",
            "theirs",
            "ratio",
            "low",
            "high",
            "turns",
            "load",
        )
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    benchmark_pages.write_speed(rows, describe_machine())


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
