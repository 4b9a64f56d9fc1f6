"""Charts of the report as inline SVG, with lines and text in the page's own colour."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from envs.evaluation.report.errors import Error
from envs.evaluation.report.trajectories import Trajectories
from envs.evaluation.robustness import SWEEPS, Robustness
from envs.simulation.engine import SimModel

# by controller; legible on white and on black
COLOURS = ("#3d7eea", "#e07b2a", "#2f9e6e", "#a35fd0", "#8a8f98")
FLOOR = 0.01  # least error drawn, in the unit shown: the axes are logarithmic
_INK = "#808182"  # placeholder of the page's text colour
_SIZE = (4.6, 3.0)  # [inches] text stays readable on a telephone
_THIRD = (3.6, 2.7)  # of charts in rows of three
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


def draw_learning_curve(rows: Sequence[dict[str, float]], name: str = "success_rate") -> str:
    """Draw the success rate over env steps, or gradient steps for a run on a dataset.

    Args:
        rows: of a run's metrics.csv.
        name: the column to draw.
    """
    from matplotlib.ticker import EngFormatter

    xlabel = "env steps" if rows[-1]["env_steps"] else "gradient steps"
    with _open_chart(xlabel, "success rate [%]") as chart:
        points = [(row["env_steps"] or row["gradient_steps"], 100 * row[name]) for row in rows]
        chart.axes.plot(*zip(*points), color=COLOURS[0], marker=".")
        chart.axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 400k
        chart.axes.locator_params(axis="x", nbins=6)
        chart.axes.set_ylim(-3, 103)
    return chart.svg


def draw_error_over_time(error: Error, played: dict[str, Trajectories], dt: float) -> str:
    """Draw each controller's median error over time, and its 10th to 90th percentile."""
    with _open_chart("time [s]", f"{error.name} [{error.measure.unit}]") as chart:
        for (name, one), colour in zip(played.items(), get_colours(len(played))):
            values = np.where(one.alive, error.compute_series(one), np.nan)
            low, median, high = np.nanpercentile(values, (10, 50, 90), axis=1).clip(FLOOR)
            time = dt * np.arange(1, len(values) + 1)
            chart.axes.fill_between(time, low, high, color=colour, alpha=0.18, linewidth=0)
            chart.axes.plot(time, median, color=colour, label=name)
        chart.axes.set_yscale("log")
        chart.draw_line(error.tolerance, "y")
        chart.add_legend()
    return chart.svg


def draw_final_errors(error: Error, played: dict[str, Trajectories]) -> str:
    """Draw a histogram of the errors that decide success."""
    finals = {
        name: error.compute_finals(one).clamp_min(FLOOR).numpy() for name, one in played.items()
    }
    everything = np.concatenate(list(finals.values()))
    bins = np.geomspace(everything.min() / 1.1, everything.max() * 1.1, 40)
    with _open_chart(f"{error.final_name} [{error.measure.unit}]", "episodes") as chart:
        for (name, values), colour in zip(finals.items(), get_colours(len(played))):
            chart.axes.hist(values, bins, histtype="stepfilled", color=colour, alpha=0.25)
            chart.axes.hist(values, bins, histtype="step", color=colour, label=name)
        chart.axes.set_xscale("log")
        chart.draw_line(error.tolerance, "x")
        chart.add_legend()
    return chart.svg


def draw_joint_speeds(model: SimModel, played: dict[str, Trajectories]) -> str:
    """Draw |qd| / qdlim per joint: a bar to the 95th percentile, marks at median and maximum."""
    width = 0.8 / len(played)
    with _open_chart("joint", "speed over its limit") as chart:
        for number, (name, one) in enumerate(played.items()):
            colour = get_colours(len(played))[number]
            qd = one.series["qd"][one.alive].double()  # (steps, n)
            ratio = (qd / model.qdlim.cpu()).abs().numpy()
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
        chart.draw_line(1.0, "y")
        chart.add_legend()
    return chart.svg


def draw_joint_series(
    time: np.ndarray, values: np.ndarray, names: Sequence[str], ylabel: str
) -> str:
    """Draw a line for each joint.

    Args:
        time: (T,) [s]; at most some thousand points are drawn.
        values: (T, n).
    """
    every = max(len(time) // 2000, 1)
    with _open_chart("time [s]", ylabel) as chart:
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


def draw_success(varied: str, robustness: Robustness, controllers: Sequence[str]) -> str:
    """Draw each controller's success rate over a disturbance; dashed without latency compensation.

    Args:
        varied: field of `Disturbances`.
        robustness: the success rates.
        controllers: those of the other charts, in their order, which gives the colours.
    """
    sweeps = {name: sweep for name, sweep in SWEEPS.items() if sweep.varied == varied}
    shown = next(iter(sweeps.values()))
    with _open_chart(f"{shown.name} [{shown.unit}]", "success rate [%]", _THIRD) as chart:
        for name, sweep in sweeps.items():
            values, rates = zip(*robustness.iter_points(name))
            for number, (controller, colour) in enumerate(
                zip(controllers, get_colours(len(controllers)))
            ):
                if controller not in rates[0]:
                    continue
                style = {"label": controller} if sweep.compensated else {"linestyle": "--"}
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
        chart.add_legend()
    return chart.svg


def get_colours(count: int) -> list[str]:
    """Return the colours of so many controllers, in order."""
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


class _Chart:
    """Axes to draw on; `svg` is set when the block of `_open_chart` ends."""

    svg: str

    def __init__(self, figure, xlabel: str, ylabel: str):
        self.axes = figure.subplots()
        self.axes.set_xlabel(xlabel)
        self.axes.set_ylabel(ylabel)

    def draw_line(self, value: float | None, axis: str) -> None:
        """Draw a dashed line at a threshold, across the axis "x" or "y"."""
        if value is not None:
            line = self.axes.axhline if axis == "y" else self.axes.axvline
            line(value, color=_INK, linestyle="--", linewidth=1)

    def add_legend(self) -> None:
        """Add the names of the controllers above the axes."""
        self.axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)


@contextmanager
def _open_chart(xlabel: str, ylabel: str, size: tuple[float, float] = _SIZE) -> Iterator[_Chart]:
    from matplotlib import rc_context  # imported here: only reports need it
    from matplotlib.figure import Figure  # no pyplot: no global state

    with rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        chart = _Chart(figure, xlabel, ylabel)
        yield chart
        text = io.StringIO()
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # omit all
        figure.savefig(text, format="svg", transparent=True, metadata=metadata)
    svg = text.getvalue()
    chart.svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
