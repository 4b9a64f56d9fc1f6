"""Figures of the documentation, read from benchmarks/results/*.csv.

    python benchmarks/figures.py            # name the stale rows; exit code 1 if there are any
    python benchmarks/figures.py --write    # write the tables of README.md and of the pages
    make results                            # measure the stale rows of what ships, then both

A page has a table between `<!-- table of NAME -->` and `<!-- end -->`; TABLES has the names.

A row holds the commit that it was measured at and a hash of what it depends on: the preset, the
constants of task and robot, and the checkpoint where one is shipped. A row whose hash is another
one today is stale, and the pages do not build with a table of stale rows, or of other rows.
"""

import argparse
import functools
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import rows
import yaml

from td3_robot.errors import Td3RobotError
from td3_robot.utils.console import exit_code

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
RUNS = {  # task -> shipped run
    "reach": "run1",
    **{
        name: name
        for name in (
            "reach_pose",
            "reach_avoid",
            "track",
            "pick_place",
            "pick_turned",
            "push",
            "stack",
            "insert",
            "insert_tight",
        )
    },
}
ROBOT = ("robots/panda", "grippers/panda_hand", "collision/panda", "collision/panda_hand")
MUJOCO = (
    "physics/contacts",
    "randomization/lab",
    "randomization/lab_calibrated",
)  # what the kinematic engine does not read
SEEDS = RESULTS / "laboratory_seeds.csv"
WHO = ("policy", "classical")
GOALS = {  # task -> what it asks for
    "reach": "bring the tool centre point (TCP) to a point: 1 cm",
    "reach_pose": "to a position and an orientation: 1 cm, 5°",
    "reach_avoid": "to a point among 1 to 5 obstacles: 1 cm, no contact",
    "track": "follow a goal that moves at 0.2 m/s: mean error 1 cm",
    "pick_place": "grasp a cube and bring it to a goal: 2 cm",
    "pick_turned": "the same, the cube turned by any angle: 2 cm",
    "push": "slide a cube over the table to a goal: 2 cm",
    "stack": "put a cube on another and let it go: at rest on it",
    "insert": "put a peg into a hole known to 3 mm: 15 mm deep, at most 60 N",
    "insert_tight": "the same with 0.1 instead of 0.5 mm of clearance",
}


class StaleFigure(Td3RobotError):
    """A row of results that is missing, or measured with other inputs than today's."""


@functools.cache
def hash_inputs(task: str, run: str | None = None, mujoco: bool = False) -> str:
    """Return 12 hexadecimal digits of what a figure of the Panda at a task depends on.

    Args:
        task: a task with a preset.
        run: the shipped run that was measured; None for trainings, whose networks are not kept.
        mujoco: whether the MuJoCo engine was used.
    """
    names = (task, f"tasks/{task}", *ROBOT, *(MUJOCO if mujoco else ()))
    values: list[object] = [
        yaml.safe_load((ROOT / "configs" / f"{name}.yaml").read_text()) for name in names
    ]
    if run is not None:
        description = json.loads((ROOT / "checkpoints" / run / "checkpoint.json").read_text())
        values.append(description["sha256"]["actor"])
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def hash_shipped(row: dict[str, str]) -> str:
    """Return today's hash for a row that measures a shipped run in the kinematic engine."""
    return hash_inputs(row["task"], RUNS[row["task"]])


def hash_in_mujoco(row: dict[str, str]) -> str:
    """Return today's hash for a row that measures a shipped run in the MuJoCo engine."""
    return hash_inputs(row["task"], RUNS[row["task"]], mujoco=True)


def hash_training(row: dict[str, str]) -> str:
    """Return today's hash for a row that measures another training in the MuJoCo engine."""
    return hash_inputs(row["task"], mujoco=True)


# The files that pages use -> today's hash of one of their rows. Notes name the commit instead.
HASHES: dict[str, Callable[[dict[str, str]], str]] = {
    "guard": hash_shipped,
    "laboratory": hash_in_mujoco,
    "laboratory_seeds": hash_training,
}


def is_stale(file: str, row: dict[str, str]) -> bool:
    """Return whether a row was measured with other inputs than today's, or does not say which."""
    return row.get("inputs") != HASHES[file](row)


def list_stale() -> list[str]:
    """Return a line for each stale row of the files that pages use."""
    return [
        f"{file}.csv: {', '.join(list(row.values())[:3])} (commit {row.get('commit') or 'unknown'})"
        for file in HASHES
        for row in rows.read_rows(RESULTS / f"{file}.csv")
        if is_stale(file, row)
    ]


def find_row(file: str, **where: object) -> dict[str, str]:
    """Return the one row of a file whose columns have the given values.

    Raises:
        StaleFigure: there is none, there are several, or it is stale.
    """
    found = [
        row
        for row in rows.read_rows(RESULTS / f"{file}.csv")
        if all(row[name] == str(value) for name, value in where.items())
    ]
    if len(found) != 1:
        raise StaleFigure(f"{file}.csv has {len(found)} rows with {where}, expected one")
    if is_stale(file, found[0]):
        raise StaleFigure(f"{file}.csv: the row with {where} is stale; run `make results`")
    return found[0]


def figure(file: str, column: str, **where: object) -> str:
    """Return a cell as a page shows it, with its unit.

    Args:
        file: name of a file in benchmarks/results/, without its ending.
        column: name of the column; its last part is the unit, a share has none.
        where: values of other columns that pick out one row.
    """
    row = find_row(file, **where)
    return format_cell(column, row[column], int(row["episodes"]))


def format_cell(column: str, text: str, episodes: int) -> str:
    """Return the text of a cell with its unit, or a dash for an empty one."""
    if not text:
        return "–"
    value = float(text)
    if column.endswith("_ms"):
        return f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms"
    if column.endswith("_mm"):
        return f"{value:.2g} mm" if value < 10 else f"{value:.0f} mm"
    if column == "train_s" or column.endswith("wall_s"):
        return f"{value:.0f} s" if value < 100 else f"{value / 60:.0f} min"
    if column.endswith("_s"):
        return f"{value:.2f} s"
    return format_share(value, episodes)


def format_share(share: float, episodes: int) -> str:
    """Return a share of episodes in percent: 100% is all of them, and 0% none.

    >>> format_share(1.0, 300), format_share(0.9999, 10_000), format_share(0.9967, 300)
    ('100%', '99.99%', '99.7%')
    """
    count = round(share * episodes)
    if count in (0, episodes):
        return f"{100 * count // episodes}%"
    digits = 1
    while round(100 * share, digits) in (0.0, 100.0):
        digits += 1
    return f"{100 * share:.{digits}f}%"


def format_table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown.

    >>> print(format_table(("task", "time"), [("`reach`", "0.5 s")]))
    | task | time |
    | --- | --- |
    | `reach` | 0.5 s |
    """
    lines = (head, ["---"] * len(head), *body)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def format_shipped(task: str) -> list[str]:
    """Return success and median time to the goal of a task's policy and controller: of both in the
    exact world, then of both under `lab`.
    """
    return [
        f"{figure('laboratory', who, task=task, world=world)}, "
        f"{figure('laboratory', f'{who}_time_s', task=task, world=world)}"
        for world in ("exact", "lab")
        for who in WHO
    ]


def make_shipped_table() -> str:
    """Return the table of the shipped policies and the best classical controller of each task."""
    head = ("task", "policy", "classical", "policy, lab", "classical, lab", "classical controller")
    body = []
    for task in RUNS:
        controller = find_row("laboratory", task=task, world="exact")["controller"]
        body.append((f"`{task}`", *format_shipped(task), f"`{controller}`"))
    return format_table(head, body)


def make_seeds_table() -> str:
    """Return the table of success under `lab` by the seed of the training."""
    body = []
    measured = [row for row in rows.read_rows(SEEDS) if row["world"] == "lab"]
    trained = [(row["task"], row["train_seed"]) for row in measured]
    for task, run in RUNS.items():
        options = yaml.safe_load((ROOT / "checkpoints" / run / "config.yaml").read_text())
        cells = [f"`{task}`"]
        for seed in ("0", "1", "2"):
            where = {"task": task, "world": "lab", "train_seed": seed}
            if seed == str(options["seed"]):
                cells.append(figure("laboratory", "policy", task=task, world="lab"))
            elif (task, seed) in trained:
                cells.append(figure(SEEDS.stem, "success", **where))
            else:
                cells.append("–")
        body.append(cells)
    return format_table(("task", "seed 0", "seed 1", "seed 2"), body)


def make_training_table() -> str:
    """Return the table of the shipped trainings: what each took, as its summary.json has it."""
    body = []
    for task, run in RUNS.items():
        folder = ROOT / "checkpoints" / run
        summary = json.loads((folder / "summary.json").read_text())
        options = yaml.safe_load((folder / "config.yaml").read_text())
        words = [f"python train.py --robot panda --task {task}"]
        if options.get("randomize", "none") != "none":
            words.append(f"--randomize {options['randomize']}")
        if options.get("start_from"):
            words.append(f"--start_from {options['start_from']}")
        if options["seed"]:
            words.append(f"--seed {options['seed']}")
        seconds = format_cell("wall_s", str(summary["wall_s"]), 1)
        steps = f"{summary['env_steps']:,}"
        memory = f"{summary['peak_memory_gb']:.1f} GB"
        body.append((f"`{task}`", steps, seconds, memory, f"`{' '.join(words)}`"))
    return format_table(("task", "environment steps", "time", "memory", "command"), body)


def make_mjcf_table() -> str:
    """Return the table of the arms that were trained from their MJCF files."""
    engines = ("policy", "classical", "policy, MuJoCo", "classical, MuJoCo")
    body = []
    columns = [f"{world}_{who}" for world in ("kinematic", "mujoco") for who in WHO]
    for row in rows.read_rows(RESULTS / "mjcf_arms.csv"):
        cells = [format_cell(name, row[name], int(row["episodes"])) for name in columns]
        cells.append(format_cell("train_s", row["training_cpu_s"], 1))
        body.append((f"`{row['arm']}`", f"`{row['task']}`", *cells))
    return format_table(("file", "task", *engines, "training"), body)


def make_gpu_table() -> str:
    """Return the table of trainings on a GPU, see benchmarks/gpu.py."""
    head = ("training", "library", "updates", "env steps/s", "updates/s", "99% after")
    body = []
    for row in rows.read_rows(RESULTS / "gpu.csv"):
        speeds = [f"{float(row[name]):,.0f}" for name in ("env_steps_per_s", "updates_per_s")]
        solved = f"{float(row['solved_s']):.0f} s" if row["solved_s"] else "–"
        body.append((f"`{row['name']}`", row["library"], row["updates"], *speeds, solved))
    return format_table(head, body)


def make_readme_table() -> str:
    """Return the table of the tasks for README.md: success in both worlds, and times in `lab`."""
    head = ("`--task`", "goal, tolerance", *WHO, *(f"{who}, lab" for who in WHO))
    body = []
    for task, goal in GOALS.items():
        exact = [figure("laboratory", who, task=task, world="exact") for who in WHO]
        in_lab = [cell.removesuffix(" s") for cell in format_shipped(task)[2:]]
        body.append((f"`{task}`", goal, *exact, *in_lab))
    return format_table(head, body)


def make_readme_training() -> str:
    """Return what the shipped training of `reach` printed: its first evaluations and its end."""
    folder = ROOT / "checkpoints" / RUNS["reach"]
    summary = json.loads((folder / "summary.json").read_text())
    lines = ["```text", "panda learns reach (seed 0) in checkpoints/run2"]
    lines.append(" env steps  updates  success   return  seconds")
    for row in rows.read_rows(folder / "metrics.csv")[:5]:
        success = f"{100 * float(row['success_rate']):.1f}%"
        lines.append(
            f"{int(row['env_steps']):10,} {int(row['gradient_steps']):8,} {success:>8}"
            f" {float(row['episode_return']):8.2f} {float(row['wall_s']):8.1f}"
        )
    lines.append("   ...")
    end = f"success rate {format_share(summary['success_rate'], 1000)}"
    lines.append(f"{end} after {summary['wall_s']:.1f} s; the curve is in checkpoints/run2")
    return "\n".join([*lines, "```"])


def make_latency_table() -> str:
    """Return the table of what it is worth to estimate the latency."""
    worlds = {  # of the rows -> their heading
        "exact": "exact arm",
        "lab": "`lab`, estimated",
        "lab, not estimated": "`lab`, middle assumed (at least 300 episodes)",
    }
    body = []
    for task in RUNS:
        cells = [figure("laboratory", "policy", task=task, world=world) for world in worlds]
        body.append((f"`{task}`", *cells))
    return format_table(("task", *worlds.values()), body)


def make_guard_table() -> str:
    """Return the table of what the guard is worth, see benchmarks/guard.py."""
    head = ("`reach_avoid`, the same scenes", "no guard", "guard", "guard, stops kept")
    body = []
    for label, controller, column in (
        ("full speed one way, episodes with contact", "full speed one way", "contact"),
        ("RRMC, episodes with contact", "rrmc", "contact"),
        ("shipped policy, episodes with contact", "policy", "contact"),
        ("shipped policy, success", "policy", "success"),
        ("CPU time of a step of 256 arms", "256 arms", "step_ms"),
    ):
        where = [{"controller": controller, "guard": guard} for guard in ("off", "on", "stops")]
        cells = [figure("guard", column, **each) for each in where]
        body.append((label, *cells))
    return format_table(head, body)


TABLES: dict[str, Callable[[], str]] = {
    "tasks": make_readme_table,
    "a training": make_readme_training,
    "what ships": make_shipped_table,
    "seeds": make_seeds_table,
    "trainings": make_training_table,
    "GPUs": make_gpu_table,
    "latency": make_latency_table,
    "guard": make_guard_table,
    "MJCF arms": make_mjcf_table,
}
TABLE = re.compile(r"(<!-- table of ([^:\n]*?)(?:: [^\n]*)? -->\n).*?(<!-- end -->)", re.DOTALL)


def fill_page(text: str) -> str:
    """Return the text of a page with the tables of today."""
    return TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)


def require_filled() -> None:
    """Check that the tables of all pages are those of today.

    Raises:
        StaleFigure: one is of other rows, or of stale ones.
    """
    for path in PAGES:
        text = path.read_text()
        if fill_page(text) != text:
            raise StaleFigure(f"{path.name} has a table of other rows; run `make results`")


def main(argv: list[str]) -> None:
    """Name the stale rows, or write the tables of the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the tables of all pages")
    if parser.parse_args(argv).write:
        for path in PAGES:
            text = path.read_text()
            if (filled := fill_page(text)) != text:
                path.write_text(filled)
        return
    stale = list_stale()
    print("\n".join(stale) or "no row is stale")
    sys.exit(bool(stale))


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
