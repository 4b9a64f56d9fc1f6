"""Results of a sweep, read from its run folders: a table with mean and spread, the best options."""

import csv
import io
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from td3_robot.cli.arguments import CONFIG_NAME
from td3_robot.loggers.base import fill_scores, get_steps
from td3_robot.loggers.csv import read_metrics
from td3_robot.sweep.search_space import SearchSpace, Trial
from td3_robot.sweep.seed_summary import read_outcome
from td3_robot.sweep.trial_process import ENDED, FINISHED, get_end_mark
from td3_robot.utils.atomic_files import replace_file
from td3_robot.utils.yaml_file import read_mapping, write_yaml

BEST = "best.yaml"
TABLE = "table.csv"
_ON_COMMAND_LINE = ("seed", "plugins")  # no part of a file of options for other runs


@dataclass(frozen=True)
class Result:
    """Result of a trial.

    Attributes:
        options: its varied options, as they are now: pbt changes them.
        state: finished, ended early, or unfinished.
        steps: steps of its last evaluation.
        value: value of the metric; once finished, that of the summary (of the best policy on
            separate episodes), if it has one.
    """

    trial: Trial
    options: dict[str, Any]
    state: str
    steps: float
    value: float


@dataclass(frozen=True)
class Setting:
    """Results of the trials with the same options, which differ in their seeds."""

    options: dict[str, Any]
    results: tuple[Result, ...]

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return statistics.fmean(result.value for result in self.results)

    @property
    def std(self) -> float:
        """Sample standard deviation of the values (n - 1); NaN of one, or with a NaN."""
        values = [result.value for result in self.results]
        known = len(values) > 1 and math.isfinite(self.mean)  # stdev raises at NaN
        return statistics.stdev(values) if known else math.nan

    @property
    def steps(self) -> float:
        """Fewest steps of its trials."""
        return min(result.steps for result in self.results)

    @property
    def reached(self) -> float:
        """Fewest steps of its trials that have not finished; infinite if all have."""
        return min(
            math.inf if result.state == FINISHED else result.steps for result in self.results
        )


def read_result(folder: Path, trial: Trial, space: SearchSpace) -> Result | None:
    """Return the result in a trial's run folder, or None without a folder.

    Without an evaluation its steps are 0 and its value is NaN, so that its setting is ranked last.
    """
    run = folder / trial.name
    metric = space.config.metric
    if not run.is_dir():
        return None
    rows = read_metrics(run)
    steps = get_steps(rows[-1]) if rows else 0
    summary = read_outcome(run)
    state = ENDED if get_end_mark(run).exists() else "unfinished"
    if summary is not None:
        state = FINISHED
    known = (summary or {}).get(metric)
    last = fill_scores(rows[-1]) if rows else {}
    value = last.get(metric, math.nan) if known is None else known
    return Result(trial, read_options(run, trial, space.varied), state, steps, value)


def read_options(run: Path, trial: Trial, names: Iterable[str]) -> dict[str, Any]:
    """Return the named options of a trial, from its configuration file if it has one."""
    if not (run / CONFIG_NAME).exists():
        return {name: trial.options[name] for name in names}
    content = read_mapping(run / CONFIG_NAME)
    return {name: _get_option(content, name) for name in names}


def _get_option(content: dict, name: str) -> Any:
    return reduce(lambda part, key: part[key], name.split("."), content)


def rank_settings(results: Sequence[Result], goal: str) -> list[Setting]:
    """Return the settings, best first: by steps reached, then by mean; NaN is worst.

    Steps come first because others were ended early.
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


def make_rows(settings: Sequence[Setting], space: SearchSpace) -> Iterator[list[str]]:
    """Yield the rows of the table, its heading first."""
    yield [*space.varied, "seeds", "steps", f"{space.config.metric} mean", "std", "trials"]
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


def align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table for the terminal."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]


def write_table(folder: Path, rows: Sequence[Sequence[str]]) -> None:
    """Write the table as CSV.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    with replace_file(folder / TABLE) as new:
        new.write_text(text.getvalue(), encoding="utf-8")


def write_best(folder: Path, best: Setting, space: SearchSpace) -> None:
    """Write the options of a setting as a file for `train.py --config`.

    Raises:
        ConfigError: the file cannot be written.
    """
    trial = best.results[0].trial
    names = [name for name in space.fixed if name not in _ON_COMMAND_LINE]
    # a plan may have a list as text, which a file of options has not
    fixed = read_options(folder / trial.name, trial, names)
    content: dict[str, Any] = {}
    for name, value in {**fixed, **best.options}.items():
        *parts, last = name.split(".")
        reduce(lambda part, key: part.setdefault(key, {}), parts, content)[last] = value
    write_yaml(content, folder / BEST)
