"""Charts as SVG to stand inside a page: lines and text take the page's own colour, so they suit
light and dark.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from envs.evaluation.report.errors import Error
from envs.evaluation.report.trajectories import Trajectories
from envs.evaluation.robustness import SWEEPS, Robustness
from envs.simulation.engine import SimModel

COLOURS = (
    "#3d7eea",
    "#e07b2a",
    "#2f9e6e",
    "#a35fd0",
    "#8a8f98",
)  # by controller; legible on white and on black
FLOOR = 0.01  # least error drawn, in the unit shown: the axes are logarithmic
_INK = "#808182"  # stands for the page's colour of text until the page is written
_SIZE = (4.6, 3.0)  # inches: at this size text stays readable on a telephone
_THIRD = (3.6, 2.7)  # of charts that stand three in a row
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "td3_robot",  # the same figures, the same file
    "font.family": "sans-serif",
    "font.size": 9,
    **{
        key: _INK
        for key in ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    },
    "grid.color": _INK,
    "grid.alpha": 0.25,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def learning_curve(rows: Sequence[dict[str, float]], name: str = "success_rate") -> str:
    """Success rate over env steps, or over gradient steps where the run learned from a dataset.

    Args:
        rows: of a run's metrics.csv; name: the column that is shown.
    """
    from matplotlib.ticker import EngFormatter

    with _chart(
        "env steps" if rows[-1]["env_steps"] else "gradient steps", "success rate [%]"
    ) as chart:
        points = [(row["env_steps"] or row["gradient_steps"], 100 * row[name]) for row in rows]
        chart.axes.plot(*zip(*points), color=COLOURS[0], marker=".")
        chart.axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 400k
        chart.axes.locator_params(axis="x", nbins=6)
        chart.axes.set_ylim(-3, 103)
    return chart.svg


def error_over_time(error: Error, played: dict[str, Trajectories], dt: float) -> str:
    """Median over episodes, and the band from the 10th to the 90th percentile, a controller
    each.
    """
    with _chart("time [s]", f"{error.name} [{error.measure.unit}]") as chart:
        for (name, one), colour in zip(played.items(), colours(len(played))):
            values = np.where(one.alive, error.series(one), np.nan)
            low, median, high = np.nanpercentile(values, (10, 50, 90), axis=1).clip(FLOOR)
            time = dt * np.arange(1, len(values) + 1)
            chart.axes.fill_between(time, low, high, color=colour, alpha=0.18, linewidth=0)
            chart.axes.plot(time, median, color=colour, label=name)
        chart.axes.set_yscale("log")
        chart.mark(error.tolerance, "y")
        chart.legend()
    return chart.svg


def final_errors(error: Error, played: dict[str, Trajectories]) -> str:
    """Histogram of what success is judged by."""
    finals = {name: error.finals(one).clamp_min(FLOOR).numpy() for name, one in played.items()}
    everything = np.concatenate(list(finals.values()))
    low, high = everything.min() / 1.1, everything.max() * 1.1
    bins = np.geomspace(low, high, 40)
    with _chart(f"{error.final_name} [{error.measure.unit}]", "episodes") as chart:
        for (name, values), colour in zip(finals.items(), colours(len(played))):
            chart.axes.hist(values, bins, histtype="stepfilled", color=colour, alpha=0.25)
            chart.axes.hist(values, bins, histtype="step", color=colour, label=name)
        chart.axes.set_xscale("log")
        chart.mark(error.tolerance, "x")
        chart.legend()
    return chart.svg


def joint_speeds(model: SimModel, played: dict[str, Trajectories]) -> str:
    """|qd| / qdlim of every joint over all steps: a bar to the 95th percentile, marks at the median
    and maximum.
    """
    width = 0.8 / len(played)
    with _chart("joint", "speed over its limit") as chart:
        for number, ((name, one), colour) in enumerate(zip(played.items(), colours(len(played)))):
            ratio = (
                (one.series["qd"][one.alive].double() / model.qdlim.cpu()).abs().numpy()
            )  # (steps, n)
            median, p95, most = np.percentile(ratio, (50, 95, 100), axis=0)
            joint = np.arange(1, ratio.shape[1] + 1) + (number - (len(played) - 1) / 2) * width
            chart.axes.bar(joint, p95, 0.85 * width, color=colour, alpha=0.45, label=name)
            chart.axes.hlines(
                median, joint - 0.42 * width, joint + 0.42 * width, color=colour, linewidth=2
            )
            chart.axes.plot(
                joint, most, "_", color=colour, markersize=0.85 * 220 * width / ratio.shape[1]
            )
        chart.axes.set_xticks(range(1, ratio.shape[1] + 1))
        chart.mark(1.0, "y")
        chart.legend()
    return chart.svg


def joints_over_time(
    time: np.ndarray, values: np.ndarray, names: Sequence[str], ylabel: str
) -> str:
    """A line for each joint.

    Args:
        time: (T,) [s]; at most some thousand of them are drawn.
        values: (T, n).
    """
    every = max(len(time) // 2000, 1)
    with _chart("time [s]", ylabel) as chart:
        for number, name in enumerate(names):
            style = "-" if number < len(COLOURS) else "--"
            colour = COLOURS[number % len(COLOURS)]
            chart.axes.plot(
                time[::every],
                values[::every, number],
                style,
                color=colour,
                linewidth=1.2,
                label=name,
            )
        chart.axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2, fontsize=7
        )
    return chart.svg


def success_against(varied: str, robustness: Robustness, controllers: Sequence[str]) -> str:
    """Success rates over a disturbance, a controller each; dashed where the controller foresees
    nothing.

    Args:
        varied: field of `Disturbances`.
        robustness: what came of it.
        controllers: those of the other charts, in their order, whose colours they keep.
    """
    sweeps = {name: sweep for name, sweep in SWEEPS.items() if sweep.varied == varied}
    shown = next(iter(sweeps.values()))
    with _chart(f"{shown.name} [{shown.unit}]", "success rate [%]", _THIRD) as chart:
        for name, sweep in sweeps.items():
            values, rates = zip(*robustness.points(name))
            for number, (controller, colour) in enumerate(
                zip(controllers, colours(len(controllers)))
            ):
                if controller not in rates[0]:
                    continue
                style = {"label": controller} if sweep.foreseen else {"linestyle": "--"}
                # the first above the others and thinner, so that all are seen where they meet
                style |= {
                    "color": colour,
                    "marker": ".",
                    "zorder": 3 - number / 10,
                    "linewidth": 1.5 + 1.2 * number,
                }
                percent = [100 * rate[controller] for rate in rates]
                chart.axes.plot([1000 * value for value in values], percent, **style)
        chart.axes.set_ylim(-3, 103)
        chart.legend()
    return chart.svg


def colours(count: int) -> list[str]:
    """Of so many controllers, in their order."""
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


class _Chart:
    """Axes to draw on; `svg` is there when the block of `_chart` has ended."""

    svg: str

    def __init__(self, figure, xlabel: str, ylabel: str):
        self.axes = figure.subplots()
        self.axes.set_xlabel(xlabel)
        self.axes.set_ylabel(ylabel)

    def mark(self, value: float | None, axis: str) -> None:
        """A dashed line across, where success ends or a limit begins."""
        if value is not None:
            line = self.axes.axhline if axis == "y" else self.axes.axvline
            line(value, color=_INK, linestyle="--", linewidth=1)

    def legend(self) -> None:
        """Names of the controllers, above the axes."""
        self.axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)


@contextmanager
def _chart(xlabel: str, ylabel: str, size: tuple[float, float] = _SIZE) -> Iterator[_Chart]:
    from matplotlib import rc_context  # here: an evaluation without a report does without
    from matplotlib.figure import Figure  # no pyplot: nothing to show, no global state

    with rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        chart = _Chart(figure, xlabel, ylabel)
        yield chart
        text = io.StringIO()
        about = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # none of it
        figure.savefig(text, format="svg", transparent=True, metadata=about)
    svg = text.getvalue()
    chart.svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
