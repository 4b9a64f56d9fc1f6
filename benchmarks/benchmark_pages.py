"""Turn benchmarks/results/ into tables in benchmarks/notes/ and pictures in img/."""

import csv
import re
import statistics
from collections.abc import Callable
from pathlib import Path

import probes

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
NOTES = ROOT / "benchmarks" / "notes"
PAGE = NOTES / "gymnasium-td3-vs-sb3.md"
PLOT = ROOT / "img" / "benchmarks.png"
PERFORMANCE = NOTES / "throughput.md"
NAMES = {
    "td3_robot": "td3_robot",
    "td3_robot_gpu": "td3_robot, GPU",
    "sb3": "Stable-Baselines3",
    "crossq": "td3_robot, CrossQ",
    "crossq_gpu": "td3_robot, CrossQ, GPU",
}
COLORS = ("tab:blue", "tab:cyan", "tab:orange", "tab:green", "tab:olive")

Runs = dict[int, list[dict[str, float]]]  # seed -> its evaluations, oldest first


def read(path: Path) -> list[dict[str, float]]:
    """Return the rows of a CSV of numbers, without empty or nan cells; [] if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {name: float(cell) for name, cell in row.items() if cell not in ("", "nan")} for row in rows
    ]


def read_learning_runs() -> dict[str, dict[str, Runs]]:
    """Return environment -> library -> runs, of all CSV files."""
    found: dict[str, dict[str, Runs]] = {}
    for path in sorted(RESULTS.glob("*/*-seed*.csv")):
        library, seed = re.fullmatch(r"(.+)-seed(\d+)", path.stem).groups()
        if rows := read(path):
            found.setdefault(path.parent.name, {}).setdefault(library, {})[int(seed)] = rows
    return found


def write_learning(marks: list[int], goal_marks: list[int]) -> None:
    """Write the tables of learning into their page, and the plot.

    Args:
        marks: env steps of the table of returns.
        goal_marks: those of the table of success rates, which few steps decide.
    """
    found = read_learning_runs()
    if not found:
        raise SystemExit(f"there are no CSV files in {RESULTS}/*/ to make a table of")
    goals = [env for env, libraries in found.items() if _has_success(libraries)]
    returns = {env: libraries for env, libraries in found.items() if env not in goals}
    text = _format_table(returns, marks, "episode_return", "{:,.0f}".format)
    if goals:
        text += "\nSuccess rate, where the environment defines success:\n\n"
        text += _format_table(
            {env: found[env] for env in goals}, goal_marks, "success_rate", "{:.0%}".format
        )
    replace_section("learning", text)
    plot(found, goals)


def _has_success(libraries: dict[str, Runs]) -> bool:
    return any("success_rate" in rows[-1] for runs in libraries.values() for rows in runs.values())


def _format_table(
    found: dict[str, dict[str, Runs]], marks: list[int], column: str, shown: Callable[[float], str]
) -> str:
    lines = [
        "| environment | library | " + " | ".join(f"{mark:,} env steps" for mark in marks) + " |"
    ]
    lines.append("| --- " * (2 + len(marks)) + "|")
    for env, libraries in found.items():
        for library in sorted(libraries, key=list(NAMES).index):
            cells = [_format_cell(libraries[library], mark, column, shown) for mark in marks]
            if any(cells):
                lines.append(f"| {env} | {NAMES[library]} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _format_cell(runs: Runs, mark: int, column: str, shown: Callable[[float], str]) -> str:
    """Format mean, standard deviation, range and seeds of the runs evaluated at `mark`."""
    at = {
        seed: row[column] for seed, rows in runs.items() for row in rows if row["env_steps"] == mark
    }
    if not at:
        return ""
    values = list(at.values())
    seeds = ", ".join(map(str, sorted(at)))
    if len(values) == 1:
        return f"{shown(values[0])} (seed {seeds})"
    spread = f"{shown(statistics.stdev(values))}, {shown(min(values))} to {shown(max(values))}"
    return f"**{shown(statistics.mean(values))}** ± {spread} (seeds {seeds})"


def plot(found: dict[str, dict[str, Runs]], goals: list[str]) -> None:
    """Draw a panel for each environment: mean and range over the seeds, and longer runs."""
    from matplotlib.figure import Figure

    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis in axes[len(found) :]:
        axis.remove()
    for axis, (env, libraries) in zip(axes, found.items()):
        column = "success_rate" if env in goals else "episode_return"
        for library, color in zip(NAMES, COLORS, strict=True):
            if library in libraries:
                _draw_curve(axis, libraries[library], column, NAMES[library], color)
        axis.set(title=env, xlabel="thousand env steps", ylabel=column.replace("_", " "))
        if env in goals:
            axis.set_ylim(0, 1.05)
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    figure.savefig(PLOT, dpi=110)


def _draw_curve(axis, runs: Runs, column: str, name: str, color: str) -> None:
    """Draw mean and band as far as all seeds went, then thin lines."""
    curves = [
        {row["env_steps"]: row[column] for row in rows if column in row} for rows in runs.values()
    ]
    common = sorted(set.intersection(*map(set, curves)))
    band = [[curve[step] for curve in curves] for step in common]
    seeds = f"{len(runs)} seed{'s' if len(runs) > 1 else ''}"
    thousands = [step / 1000 for step in common]
    axis.plot(
        thousands,
        [statistics.mean(values) for values in band],
        color=color,
        label=f"{name}, {seeds}",
    )
    axis.fill_between(
        thousands,
        [min(v) for v in band],
        [max(v) for v in band],
        color=color,
        alpha=0.2,
        linewidth=0,
    )
    for curve in curves:
        alone = sorted(step for step in curve if step >= max(common, default=0))
        axis.plot(
            [step / 1000 for step in alone],
            [curve[step] for step in alone],
            color=color,
            linewidth=0.8,
        )


def write_speed(rows: list[dict], machine: str) -> None:
    """Write the rows of benchmarks/bench.py as tables on the page of performance and a picture."""
    lines = [
        f"On {machine}.",
        "",
        "| | here | ratio to the other, median (quartiles) | turns | load |",
    ]
    lines.append("| --- " * 5 + "|")
    for row in rows:
        ratio = ""
        if "other" in row:
            ratio = f"**{row['ratio']:.2f}** ({row['low']:.2f} to {row['high']:.2f})"
            ratio += f" {row['other']}, {_format_figure(row, 'theirs')}"
        here = _format_figure(row, "here")
        lines.append(f"| {row['part']} | {here} | {ratio} | {row['turns']} | {row['load']} |")
    replace_section("bench", "\n".join(lines) + "\n", PERFORMANCE)
    replace_section(
        "roofline", _format_roofline({row["part"]: row["here"] for row in rows}), PERFORMANCE
    )
    _plot_speed([row for row in rows if "other" in row])


def _format_figure(row: dict, column: str) -> str:
    value = row[column]
    return f"{value:,.1f} {row['unit']}" if value < 100 else f"{value:,.0f} {row['unit']}"


def compute_update_gflop(width: int, o_dim: int, a_dim: int, batch: int) -> float:
    """Return the GFLOP of the matrix products of a mean update, with two layers.

    Every second update has the actor's part, too.
    """
    first = {"critic": (o_dim + a_dim) * width, "actor": o_dim * width}
    whole = {
        "critic": first["critic"] + width * width + width,
        "actor": first["actor"] + width * width + width * a_dim,
    }
    # there, to the weights, and back but to the input
    learnt = {net: 3 * whole[net] - first[net] for net in whole}
    critics = whole["actor"] + 2 * whole["critic"] + 2 * learnt["critic"]
    actor = learnt["actor"] + 2 * whole["critic"]
    return 2 * batch * (critics + actor / 2) / 1e9


def _format_roofline(here: dict[str, float]) -> str:
    """Compare updates with the time of their matrix products alone."""
    lines = ["| | GFLOP | updates/s | GFLOP/s | of a large product's |", "| --- " * 5 + "|"]
    for width in (128, 256):
        each = compute_update_gflop(width, probes.O_DIM, probes.A_DIM, probes.BATCH)
        rate = here[f"update 2x{width}"]
        share = each * rate / here["product"]
        lines.append(f"| 2x{width} | {each:.3f} | {rate:,.0f} | {each * rate:.0f} | {share:.0%} |")
    return (
        "\n".join(
            [
                *lines,
                f"| 1024 x 1024 x 1024 | {2 * 1.024**3:.3f} | | {here['product']:.0f} | 100% |",
            ]
        )
        + "\n"
    )


def _plot_speed(rows: list[dict]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.6 + 0.28 * len(rows)), layout="constrained")
    axis = figure.subplots()
    colors = ["tab:orange" if row["other"] == NAMES["sb3"] else "tab:blue" for row in rows]
    spread = [
        [row["ratio"] - row["low"] for row in rows],
        [row["high"] - row["ratio"] for row in rows],
    ]
    axis.barh(
        [f"{row['part']}, {row['other']}" for row in rows],
        [row["ratio"] for row in rows],
        xerr=spread,
        color=colors,
    )
    axis.axvline(1.0, color="black", linewidth=0.8)
    axis.invert_yaxis()
    axis.set(xlabel="times as fast (median and quartiles of the turns)")
    figure.savefig(ROOT / "img" / "bench.png", dpi=110)


def replace_section(name: str, text: str, page: Path = PAGE) -> None:
    """Put `text` between the comments `<!-- name -->` and `<!-- end of name -->` of a page."""
    begin = f"<!-- {name} -->\n"
    end = f"<!-- end of {name} -->"
    before, _, rest = page.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{page} has no section {name!r}: {begin.strip()} ... {end}")
    page.write_text(f"{before}{begin}{text}{end}{after}")
