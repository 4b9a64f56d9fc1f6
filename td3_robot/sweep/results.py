"""What came of a sweep, read from its run folders: best options, a table with mean and spread."""

import csv
import io
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from td3_robot.cli.arguments import CONFIG_NAME
from td3_robot.loggers.base import fill_scores, get_steps
from td3_robot.loggers.csv import read_metrics
from td3_robot.sweep.search_space import Plan, Trial
from td3_robot.sweep.seed_summary import outcome_of
from td3_robot.sweep.trial_process import ENDED, FINISHED, ended_early
from td3_robot.utils.atomic_files import replace_file
from td3_robot.utils.yaml_file import read_mapping, write_yaml

BEST, TABLE = "best.yaml", "table.csv"
_ON_COMMAND_LINE = ("seed", "plugins")  # not said by a file of options for other runs


@dataclass(frozen=True)
class Result:
    """How far a trial came.

    Attributes:
        options: those of it that vary, as they are now: pbt changes them.
        state: finished, ended early, or unfinished.
        steps: of its last evaluation.
        value: of the metric; where it has finished, that of its best policy on episodes of their
            own, if there is such.
    """

    trial: Trial
    options: dict[str, Any]
    state: str
    steps: float
    value: float


@dataclass(frozen=True)
class Setting:
    """The trials of one draw of options, which differ in their seeds.

    Attributes:
        mean, std: of their values, the standard deviation divided by one less than their number;
            NaN of one.
        steps: of the one that came least far.
    """

    options: dict[str, Any]
    results: tuple[Result, ...]

    @property
    def mean(self) -> float:
        """See the class."""
        return statistics.fmean(result.value for result in self.results)

    @property
    def std(self) -> float:
        """See the class."""
        return (
            statistics.stdev(result.value for result in self.results)
            if len(self.results) > 1
            else math.nan
        )

    @property
    def steps(self) -> float:
        """See the class."""
        return min(result.steps for result in self.results)

    @property
    def reached(self) -> float:
        """The least of its runs' steps, of which one that came to its end made all that it ever
        would.
        """
        return min(
            math.inf if result.state == FINISHED else result.steps for result in self.results
        )


def result_of(folder: Path, trial: Trial, plan: Plan) -> Result | None:
    """What the run folder of a trial says; None of one without an evaluation."""
    run, metric = folder / trial.name, plan.settings.metric
    rows = read_metrics(run)
    if not rows or metric not in fill_scores(rows[-1]):
        return None
    summary = outcome_of(run)
    state = (
        FINISHED if summary is not None else ENDED if ended_early(run).exists() else "unfinished"
    )
    known = (summary or {}).get(metric)
    value = fill_scores(rows[-1])[metric] if known is None else known
    return Result(trial, options_now(run, trial, plan), state, get_steps(rows[-1]), value)


def options_now(run: Path, trial: Trial, plan: Plan) -> dict[str, Any]:
    """The options of a trial that vary, by its configuration where it has one already."""
    told = read_mapping(run / CONFIG_NAME) if (run / CONFIG_NAME).exists() else None
    return {name: trial.options[name] if told is None else _at(told, name) for name in plan.varied}


def _at(content: dict, name: str) -> Any:
    return reduce(lambda part, key: part[key], name.split("."), content)


def ranked(results: Sequence[Result], goal: str) -> list[Setting]:
    """The best setting first: those that came furthest, as others were ended early, and of these
    the best mean; one that is no number is worse than any.
    """
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(repr(result.options), []).append(result)
    settings = [Setting(group[0].options, tuple(group)) for group in groups.values()]
    sign = 1 if goal == "max" else -1
    return sorted(
        settings,
        key=lambda setting: (-setting.reached, math.isnan(setting.mean), -sign * setting.mean),
    )


def rows_of(settings: Sequence[Setting], plan: Plan) -> Iterator[list[str]]:
    """The table, its heading first."""
    yield [*plan.varied, "seeds", "steps", f"{plan.settings.metric} mean", "std", "trials"]
    for setting in settings:
        trials = ", ".join(
            f"{r.trial.name}{'' if r.state == FINISHED else f' ({r.state})'}"
            for r in setting.results
        )
        figures = (
            f"{setting.steps:.0f}",
            f"{setting.mean:.4g}",
            "-" if math.isnan(setting.std) else f"{setting.std:.2g}",
        )
        yield [*map(str, setting.options.values()), str(len(setting.results)), *figures, trials]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table for the terminal."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]


def write_table(folder: Path, rows: Sequence[Sequence[str]]) -> None:
    """The table as CSV.

    Raises:
        ConfigError: it cannot be written.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    with replace_file(folder / TABLE) as new:
        new.write_text(text.getvalue(), encoding="utf-8")


def write_best(folder: Path, best: Setting, plan: Plan) -> None:
    """The options of a setting as a file for `train.py --config`.

    Raises:
        ConfigError: it cannot be written.
    """
    content: dict[str, Any] = {}
    for name, value in {**plan.fixed, **best.options}.items():
        if name not in _ON_COMMAND_LINE:
            *parts, last = name.split(".")
            reduce(lambda part, key: part.setdefault(key, {}), parts, content)[last] = value
    write_yaml(content, folder / BEST)
