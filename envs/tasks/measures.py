"""Measures: figures of single tasks that evaluations, tables and reports compute and show."""

import math
from typing import NamedTuple

from td3_robot.utils.legacy import keep_old_names


@keep_old_names(in_results="to_result_unit", shown="to_table_unit")
class Measure(NamedTuple):
    """A figure of an episode, and how it is summarised over many.

    Attributes:
        name: its name in results; it ends in the unit.
        of: name in `Step.info` of the values (T, B) that it is computed from.
        reduction: over an episode: "last", "least", "most" or "any" (at any step), "none" (at no
            step), or "steps", every step after the task's settling time.
        summary: over episodes: "quantiles" (median and 95th percentile), "least" (median and least
            of all), "most" (median, 95th percentile and greatest of all) or "rate".
        label: in tables and reports.
        unit: of tables: "mm", "deg", "%", "N" or "Nm".
        within: name of the task's constant that success bounds it by, in SI units; None if success
            does not depend on it.
    """

    name: str
    of: str
    reduction: str
    summary: str
    label: str
    unit: str
    within: str | None = None

    def to_result_unit(self, value):
        """Convert from SI units to the unit that the name ends in."""
        return value * UNITS[self.unit][0]

    def to_table_unit(self, value):
        """Convert from SI units to `unit`."""
        return self.to_result_unit(value) * UNITS[self.unit][1]


# Unit of tables -> factors from SI into results, and from there into tables.
UNITS = {"mm": (1.0, 1000.0), "deg": (math.degrees(1.0), 1.0), "%": (1.0, 100.0)}
UNITS |= {"N": (1.0, 1.0), "Nm": (1.0, 1.0)}
