"""Figures that only some tasks have, as data: evaluations, tables and reports work them out and
show them.
"""

import math
from typing import NamedTuple


class Measure(NamedTuple):
    """A figure of an episode, and what is told of it over many.

    Attributes:
        name: what the figure is called in results; it ends in its unit.
        of: the name in `Step.info` of what it is made of, (T, B) over an episode.
        reduction: of the episode: "last", "least" or "any" (at any step), "none" (at no step), or
            "steps", every step once the task's `settle` time has passed.
        summary: over episodes: "quantiles" (median and 95th percentile), "least" (median and least
            of all) or "rate".
        label: in tables and reports.
        unit: that the table shows it in: "mm", "deg" or "%".
        within: the task's constant that success wants it below, in SI units; None where success has
            none.
    """

    name: str
    of: str
    reduction: str
    summary: str
    label: str
    unit: str
    within: str | None = None

    def to_result_unit(self, value):
        """From SI into the unit that the name ends in."""
        return value * UNITS[self.unit][0]

    def to_table_unit(self, value):
        """From SI into `unit`."""
        return self.to_result_unit(value) * UNITS[self.unit][1]


# Unit of tables -> factors from SI into results, and from there into tables.
UNITS = {"mm": (1.0, 1000.0), "deg": (math.degrees(1.0), 1.0), "%": (1.0, 100.0)}
