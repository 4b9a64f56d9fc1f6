"""An evaluation as a table on the terminal."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

_ROWS = (  # label, where a summary has it, factor into the unit of the label, format
    ("success rate [%]", ("success_rate",), 100, ".1f"),
    ("return, mean", ("episode_return", "mean"), 1, ".2f"),
    ("return, standard deviation", ("episode_return", "std"), 1, ".2f"),
    ("episode length, mean [steps]", ("episode_length", "mean"), 1, ".1f"),
    ("final error, median [mm]", ("final_position_error_m", "median"), 1000, ".2f"),
    ("final error, 95th percentile [mm]", ("final_position_error_m", "p95"), 1000, ".2f"),
    ("final rotation error, median [deg]", ("final_rotation_error_deg", "median"), 1, ".2f"),
    ("final rotation error, 95th percentile [deg]", ("final_rotation_error_deg", "p95"), 1, ".2f"),
    ("tracking error, median [mm]", ("tracking_error_m", "median"), 1000, ".2f"),
    ("tracking error, 95th percentile [mm]", ("tracking_error_m", "p95"), 1000, ".2f"),
    ("episodes without contact [%]", ("collision_free_rate",), 100, ".1f"),
    ("episodes with a grasp [%]", ("grasp_rate",), 100, ".1f"),
    ("time to goal, median [s]", ("time_to_goal_s", "median"), 1, ".2f"),
    ("path length, median [m]", ("path_length_m", "median"), 1, ".3f"),
    ("manipulability, median", ("manipulability", "median"), 1, ".4f"),
    ("manipulability, least", ("manipulability", "min"), 1, ".4f"),
    ("least clearance, median [mm]", ("minimum_clearance_m", "median"), 1000, ".1f"),
    ("least clearance of all [mm]", ("minimum_clearance_m", "min"), 1000, ".1f"),
    ("peak speed over limit", ("max_abs_qd_over_limit",), 1, ".3f"),
    ("peak acceleration over limit", ("max_abs_qdd_over_limit",), 1, ".3f"),
    ("peak jerk over limit", ("max_abs_qddd_over_limit",), 1, ".3f"),
    ("RMS jerk, median [rad/s3]", ("rms_jerk_rad_s3", "median"), 1, ".1f"),
    ("steps at a joint limit [%]", ("joint_limit_hits",), 100, ".2f"),
    ("positions outside joint limits", ("limit_violations", "position"), 1, "d"),
    ("speeds over their limits", ("limit_violations", "speed"), 1, "d"),
    ("accelerations over their limits", ("limit_violations", "acceleration"), 1, "d"),
    ("jerks over their limits", ("limit_violations", "jerk"), 1, "d"),
)


def table_rows(columns: dict[str, dict[str, object]]) -> Iterator[tuple[str, list[str]]]:
    """Label and cells of each row; rows that no summary has are left out.

    Args:
        columns: heading -> summary.
    """
    for label, keys, factor, form in _ROWS:
        if any(keys[0] in summary for summary in columns.values()):
            yield label, [_cell(summary, keys, factor, form) for summary in columns.values()]


def print_table(columns: dict[str, dict[str, object]]) -> None:
    """Print summaries beside each other.

    Args:
        columns: heading -> summary.
    """
    table = Table()
    table.add_column("")
    for heading in columns:
        table.add_column(heading, justify="right")
    for label, cells in table_rows(columns):
        table.add_row(label, *cells)
    with (console := Console(highlight=False, markup=False)).capture() as text:
        console.print(table)
    print(text.get(), end="")  # rich would end the process at a closed pipe


def _cell(summary: dict[str, object], keys: tuple[str, ...], factor: float, form: str) -> str:
    value = summary
    for key in keys:
        value = value.get(key) if value else None
    return "-" if value is None else format(value * factor, form)
