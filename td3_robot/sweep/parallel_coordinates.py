"""Picture of a sweep in parallel coordinates.

Inselberg: The plane with parallel coordinates, 1985.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from td3_robot.config.help_text import format_value
from td3_robot.sweep.results import Setting
from td3_robot.sweep.search_space import Categorical, FloatRange, SearchSpace
from td3_robot.utils.atomic_files import replace_file

PICTURE = "parallel_coordinates.png"
_TICKS = 5


@dataclass(frozen=True)
class Axis:
    """One of the parallel axes, from 0 at the bottom to 1 at the top.

    Attributes:
        shares: height of each value.
        ticks: heights with their texts.
    """

    name: str
    shares: list[float]
    ticks: list[tuple[float, str]]


def make_axis(
    name: str, values: Sequence[Any], among: FloatRange | Categorical | None = None
) -> Axis:
    """Return the axis of an option drawn from `among`, or of the metric, over its values."""
    if isinstance(among, Categorical):
        texts = list(dict.fromkeys(map(format_value, (*among.values, *values))))
        place = {text: i / max(1, len(texts) - 1) for i, text in enumerate(texts)}
        shares = [place[format_value(value)] for value in values]
        return Axis(name, shares, [(place[text], text) for text in texts])
    bend, back = (math.log, math.exp) if among is not None and among.log else (float, float)
    low = bend(min(values))
    high = bend(max(values))
    span = high - low or 1.0
    ticks = [i / (_TICKS - 1) for i in range(_TICKS)] if high > low else [0.0]
    shares = [(bend(value) - low) / span for value in values]
    return Axis(name, shares, [(t, f"{back(low + t * span):.3g}") for t in ticks])


def plot_settings(folder: Path, settings: Sequence[Setting], space: SearchSpace) -> None:
    """Draw a line for each setting, coloured by its metric, across an axis for each option.

    Raises:
        ConfigError: the picture cannot be written.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure  # no pyplot: nothing to show, no global state

    columns = [
        make_axis(name, [setting.options[name] for setting in settings], among)
        for name, among in space.varied.items()
    ]
    metric = make_axis(space.config.metric, [setting.mean for setting in settings])
    columns.append(metric)
    figure = Figure(figsize=(1.5 + 1.7 * len(columns), 4.5), layout="constrained")
    axes = figure.subplots()
    furthest = max(setting.steps for setting in settings)
    for i, setting in enumerate(settings):
        heights = [column.shares[i] for column in columns]
        style = "-" if setting.steps == furthest else ":"
        share = metric.shares[i]
        color = colormaps["viridis"](share)
        axes.plot(range(len(columns)), heights, style, color=color, zorder=2 + share)
    for place, column in enumerate(columns):
        axes.axvline(place, color="grey", linewidth=0.8)
        for height, text in column.ticks:
            axes.annotate(
                text, (place, height), (4, 0), textcoords="offset points", fontsize=8, va="center"
            )
    axes.set_xticks(range(len(columns)), [column.name for column in columns])
    axes.set_yticks([])
    axes.set_xlim(-0.2, len(columns) - 0.5)
    axes.set_title("dotted: ended before the others", fontsize=9)
    with replace_file(folder / PICTURE) as new:
        figure.savefig(new, dpi=120, format="png")
