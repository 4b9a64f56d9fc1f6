"""What a sweep has tried, as a picture: parallel coordinates. Inselberg: The plane with parallel
coordinates, 1985.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from td3_robot.sweep.results import Setting
from td3_robot.sweep.search_space import Choice, Interval, Plan, word
from td3_robot.utils.atomic_files import replace_file

PICTURE = "parallel_coordinates.png"
_TICKS = 5


@dataclass(frozen=True)
class Axis:
    """One of the parallel axes, from 0 at the bottom to 1 at the top.

    Attributes:
        shares: where each value lies.
        ticks: places with their texts.
    """

    name: str
    shares: list[float]
    ticks: list[tuple[float, str]]


def axis_of(name: str, values: Sequence[Any], among: Interval | Choice | None = None) -> Axis:
    """The axis of an option, by what it was drawn from; of the metric, over its values."""
    if isinstance(among, Choice):
        texts = list(dict.fromkeys(map(word, (*among.values, *values))))
        place = {text: i / max(1, len(texts) - 1) for i, text in enumerate(texts)}
        return Axis(
            name, [place[word(value)] for value in values], [(place[text], text) for text in texts]
        )
    bend, back = (math.log, math.exp) if among is not None and among.log else (float, float)
    low, high = bend(min(values)), bend(max(values))
    span = high - low or 1.0
    ticks = [i / (_TICKS - 1) for i in range(_TICKS)] if high > low else [0.0]
    return Axis(
        name,
        [(bend(value) - low) / span for value in values],
        [(t, f"{back(low + t * span):.3g}") for t in ticks],
    )


def plot_settings(folder: Path, settings: Sequence[Setting], plan: Plan) -> None:
    """A line a setting, coloured by its metric, across an axis an option and the metric's own.

    Raises:
        ConfigError: the picture cannot be written.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure  # no pyplot: nothing to show, no global state

    columns = [
        axis_of(name, [s.options[name] for s in settings], among)
        for name, among in plan.varied.items()
    ]
    metric = axis_of(plan.settings.metric, [setting.mean for setting in settings])
    columns.append(metric)
    figure = Figure(figsize=(1.5 + 1.7 * len(columns), 4.5), layout="constrained")
    axes = figure.subplots()
    furthest = max(setting.steps for setting in settings)
    for i, setting in enumerate(settings):
        heights, whole = [column.shares[i] for column in columns], setting.steps == furthest
        color = colormaps["viridis"](metric.shares[i])
        axes.plot(
            range(len(columns)),
            heights,
            "-" if whole else ":",
            color=color,
            zorder=2 + metric.shares[i],
        )
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
