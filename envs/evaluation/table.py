"""Table of an evaluation on the terminal."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from envs.tasks.measures import UNITS, Measure

_OUTCOME = (  # label, where a summary has it, factor into its unit, format or % for a share
    ("success rate [%]", ("success_rate",), 100, "%"),
    ("success rate, contact or not [%]", ("success_rate_with_contact",), 100, "%"),
    ("episodes without contact [%]", ("collision_free_rate",), 100, "%"),
    ("deepest contact [mm]", ("deepest_contact_m",), 1000, ".1f"),
    ("return, mean", ("episode_return", "mean"), 1, ".2f"),
    ("return, standard deviation", ("episode_return", "std"), 1, ".2f"),
    ("episode length, mean [steps]", ("episode_length", "mean"), 1, ".1f"),
    ("final error, median [mm]", ("final_position_error_m", "median"), 1000, ".2f"),
    ("final error, 95th percentile [mm]", ("final_position_error_m", "p95"), 1000, ".2f"),
)
_MOTION = (
    ("time to goal, median [s]", ("time_to_goal_s", "median"), 1, ".2f"),
    ("path length, median [m]", ("path_length_m", "median"), 1, ".3f"),
    ("manipulability, median", ("manipulability", "median"), 1, ".4f"),
    ("manipulability, least", ("manipulability", "min"), 1, ".4f"),
    ("least clearance, median [mm]", ("minimum_clearance_m", "median"), 1000, ".1f"),
    ("least clearance of all [mm]", ("minimum_clearance_m", "min"), 1000, ".1f"),
    ("peak speed over limit", ("max_abs_qd_over_limit",), 1, ".3f"),
    ("peak acceleration over limit", ("max_abs_qdd_over_limit",), 1, ".3f"),
    ("peak jerk over limit", ("max_abs_qddd_over_limit",), 1, ".3f"),
    ("final speed over limit, median", ("final_qd_over_limit", "median"), 1, ".3f"),
    ("RMS jerk, median [rad/s3]", ("rms_jerk_rad_s3", "median"), 1, ".1f"),
    ("steps at a joint limit [%]", ("joint_limit_hits",), 100, ".2f"),
    ("positions outside joint limits", ("limit_violations", "position"), 1, "d"),
    ("speeds over their limits", ("limit_violations", "speed"), 1, "d"),
    ("accelerations over their limits", ("limit_violations", "acceleration"), 1, "d"),
    ("jerks over their limits", ("limit_violations", "jerk"), 1, "d"),
)


# Names of the keys of a measure's summary in labels, and decimals by unit.
_PARTS = {
    "quantiles": {"median": ", median", "p95": ", 95th percentile"},
    "least": {"median": ", median", "min": ", least"},
    "most": {"median": ", median", "p95": ", 95th percentile", "max": ", most"},
}
_DECIMALS = {"mm": ".2f", "deg": ".2f", "%": "%", "N": ".1f", "Nm": ".2f"}


def make_rows(
    columns: dict[str, dict[str, object]], measures: Sequence[Measure] = ()
) -> Iterator[tuple[str, list[str]]]:
    """Make the label and cells of each row; rows that no summary has are left out.

    Args:
        columns: heading -> summary.
        measures: those of the task.
    """
    own = [row for measure in measures for row in _make_measure_rows(measure)]
    for label, keys, factor, form in (*_OUTCOME, *own, *_MOTION):
        if any(keys[0] in summary for summary in columns.values()):
            yield label, [_format_cell(summary, keys, factor, form) for summary in columns.values()]


def _make_measure_rows(measure: Measure) -> list[tuple[str, tuple[str, ...], float, str]]:
    unit = f" [{measure.unit}]"
    shown = (UNITS[measure.unit][1], _DECIMALS[measure.unit])
    if measure.summary == "rate":
        return [(measure.label + unit, (measure.name,), *shown)]
    return [
        (measure.label + words + unit, (measure.name, key), *shown)
        for key, words in _PARTS[measure.summary].items()
    ]


def format_percent(share: float) -> str:
    """Format a share in percent: 100.0 is all and 0.0 is none, so 9,999 of 10,000 are 99.99."""
    digits = 1
    while 0.0 < share < 1.0 and digits < 9 and round(100 * share, digits) in (0.0, 100.0):
        digits += 1
    return f"{100 * share:.{digits}f}"


def format_condition(value: bool | str | float) -> str:
    """Format what an option is set to."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return value if isinstance(value, str) else f"{value:g}"


def print_rows(title: str, headings: Sequence[str], rows: Iterable[tuple[str, list[str]]]) -> None:
    """Print labelled rows of cells, one column per heading; `title` heads the labels.

    Where they do not fit the terminal, labels are wrapped and lines are longer than it: a heading
    or figure that is cut would be another one.
    """
    table = Table()
    table.add_column(title)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for label, cells in rows:
        table.add_row(label, *cells)
    console = Console(highlight=False, markup=False)
    needed = console.measure(table, options=console.options.update(width=10_000)).minimum
    console.width = max(console.width, needed)
    with console.capture() as text:
        console.print(table)
    print(text.get(), end="")  # rich would end the process at a closed pipe


def _format_cell(summary: Any, keys: tuple[str, ...], factor: float, form: str) -> str:
    value = summary
    for key in keys:
        value = value.get(key) if value else None
    if value is None:
        return "-"
    return format_percent(value) if form == "%" else f"{value * factor:{form}}"
