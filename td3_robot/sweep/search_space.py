"""What a sweep is to try: a YAML file of options, their ranges and lists, and the trials that are
drawn from it.
"""

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from td3_robot.config.field import NOT_NEGATIVE, PART, POSITIVE, SEED, Range, option
from td3_robot.config.schema import build, make_schema
from td3_robot.errors import ConfigError
from td3_robot.utils.yaml_file import read_mapping

_OWN = frozenset(("run", "resume", "config", "seeds"))  # the sweep itself says them
_ENDS = {"low", "high"}
_FORM = "a range is {low: 1e-4, high: 1e-2}, with log: true for even factors and whole: true for whole numbers"
Value = Any  # as YAML has it: a number, a word, true, null, or a list of these


@dataclass(frozen=True)
class Resources:
    """What a trial takes of a machine.

    Attributes:
        cpus: Cores.
        gpus: GPUs; a fraction where several trials share one.
    """

    cpus: float = option(1.0, POSITIVE)
    gpus: float = option(0.0, NOT_NEGATIVE)


@dataclass(frozen=True)
class Settings:
    """How a sweep is made, beside the options that it varies.

    Attributes:
        trials: Trainings in all, a multiple of the number of seeds; null for every combination of
            the lists.
        metric: What is looked at, a column of metrics.csv.
        goal: Whether more of it is better (max) or less (min).
        scheduler: What ends trials early: asha (those behind), pbt (none: those behind go on from
            one ahead, with changed options) or none.
        grace: Share of a trial's steps before asha looks at it first, or from one change by pbt to
            the next.
        factor: One in so many goes on at each look of asha, and so many times the steps later is
            the next.
        seed: Of the draws.
    """

    trials: int | None = option(None, Range(1, 10**6, "nobody waits for more"))
    metric: str = "success_rate"
    goal: str = option("max", ("max", "min"))
    scheduler: str = option("none", ("none", "asha", "pbt"))
    grace: float = option(0.1, PART)
    factor: float = option(3.0, Range(1, 100, above=True))
    seed: int = option(0, SEED)
    resources: Resources = field(default_factory=Resources)


@dataclass(frozen=True)
class Interval:
    """A range that an option is drawn from."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def at(self, share: float) -> float:
        """The value so far from the low end to the high one; four digits tell it apart from
        others.
        """
        if self.whole:  # so that each number has an equal part
            return min(int(self.high), math.floor(self._between(self.low, self.high + 1, share)))
        return self._short(self._between(self.low, self.high, share))

    def _between(self, low: float, high: float, share: float) -> float:
        return low * (high / low) ** share if self.log else low + (high - low) * share

    def nearest(self, value: float) -> float:
        """The value of the range next to another one."""
        value = min(max(value, self.low), self.high)
        return round(value) if self.whole else self._short(value)

    def _short(self, value: float) -> float:
        """Four digits of it, within the range."""
        return min(max(float(f"{value:.4g}"), self.low), self.high)


@dataclass(frozen=True)
class Choice:
    """A list that an option is drawn from."""

    values: tuple[Value, ...]

    def at(self, share: float) -> Value:
        """Each value has an equal part of [0, 1)."""
        return self.values[int(share * len(self.values))]


@dataclass(frozen=True)
class Trial:
    """One training of a sweep.

    Attributes:
        name: of its run folder, in the folder of the sweep.
        options: {"td3.tau": 0.01}, of `train.py`, the seed among them.
    """

    name: str
    options: dict[str, Value]

    @property
    def words(self) -> list[str]:
        """What a user would write for it after `train.py`."""
        return [f"--{name}={word(value)}" for name, value in self.options.items()]


@dataclass(frozen=True)
class Plan:
    """A sweep: how it is made, what all trials have and what they differ in; each draw is tried
    with all seeds.
    """

    settings: Settings
    fixed: dict[str, Value]
    varied: dict[str, Interval | Choice]
    seeds: tuple[int, ...]

    def trials(self) -> list[Trial]:
        """All of them, the same whenever they are asked for.

        Raises:
            ConfigError: there would be none, or as many as nobody said.
        """
        draws = list(
            self._combinations()
            if self.settings.trials is None
            else self._draws(self.settings.trials)
        )
        all_options = [self.fixed | draw | {"seed": seed} for draw in draws for seed in self.seeds]
        digits = len(str(len(all_options) - 1))
        return [Trial(f"trial{i:0{digits}}", options) for i, options in enumerate(all_options)]

    def _combinations(self) -> Iterator[dict[str, Value]]:
        if ranges := [name for name, values in self.varied.items() if isinstance(values, Interval)]:
            raise ConfigError(f"trials must say how many, as {ranges[0]} has a range")
        for values in itertools.product(*(choice.values for choice in self.varied.values())):  # pyright: ignore
            yield dict(zip(self.varied, values))

    def _draws(self, trials: int) -> Iterator[dict[str, Value]]:
        """A Latin hypercube: each option has a value in every part of its range, in an order of its
        own.

        McKay, Beckman, Conover: A comparison of three methods for selecting values of input
            variables, 1979.
        """
        count, left = divmod(trials, len(self.seeds))
        if left:
            raise ConfigError(
                f"trials must be a multiple of the {len(self.seeds)} seeds, got {trials}"
            )
        draw = random.Random(self.settings.seed)
        columns = {}
        for name, values in self.varied.items():
            shares = [(part + draw.random()) / count for part in range(count)]
            draw.shuffle(shares)
            columns[name] = [values.at(share) for share in shares]
        for i in range(count):
            yield {name: column[i] for name, column in columns.items()}


def read_plan(path: Path) -> Plan:
    """The sweep that a YAML file describes.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong.
    """
    try:
        content = read_mapping(path)
        options = content.pop("options", None)
        if not isinstance(options, dict) or not options:
            raise ConfigError("options must say what to vary, such as td3.tau: [0.005, 0.01]")
        settings = build(Settings, make_schema("", "", Settings).check_all(content))
        pairs = list(_flat(options))
        given = dict(pairs)
        if twice := [
            name for name, count in Counter(name for name, _ in pairs).items() if count > 1
        ]:
            raise ConfigError(f"options say {twice[0]} twice")
        if own := sorted(_OWN & given.keys()):
            raise ConfigError(f"options cannot have {own[0]}: every trial is a run of its own")
        parts = {name: _part(name, value) for name, value in given.items()}
        seeds = _seeds(parts.pop("seed", 0))
    except ConfigError as error:
        raise ConfigError(f"{str(path)!r}: {error}") from error
    varied = {name: part for name, part in parts.items() if isinstance(part, Interval | Choice)}
    return Plan(
        settings, {name: part for name, part in parts.items() if name not in varied}, varied, seeds
    )


def _flat(options: dict, prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Pairs of option and what is said of it; an option may be written as td3.tau, or as tau in
    td3.
    """
    for key, value in options.items():
        if isinstance(value, dict) and not _ENDS & value.keys():
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}".replace("-", "_"), value  # as the command line takes it


def _part(name: str, said: Value) -> Interval | Choice | Value:
    """A mapping is a range, a list is drawn from, and all else is for every trial.

    Raises:
        ConfigError: the range is none, or the list is empty.
    """
    if name == "plugins":  # which are a list by themselves
        return said
    if isinstance(said, list):
        if not said:
            raise ConfigError(f"{name} must have a value at least: its list is empty")
        return Choice(tuple(said))
    return _interval(name, said) if isinstance(said, dict) else said


def _interval(name: str, said: dict) -> Interval:
    low, high = (said.get(end) for end in ("low", "high"))
    switches = [said.get(switch, False) for switch in ("log", "whole")]
    known = said.keys() <= {*_ENDS, "log", "whole"} and all(
        isinstance(switch, bool) for switch in switches
    )
    if not known or not _is_number(low) or not _is_number(high) or not low < high:
        raise ConfigError(f"{name}: {_FORM}; got {said}")
    log, whole = switches
    if log and low <= 0:
        raise ConfigError(f"{name}: a range with log: true must have low above 0, got {low}")
    if whole and not (low == int(low) and high == int(high)):
        raise ConfigError(
            f"{name}: a range with whole: true must have whole ends, got {low} and {high}"
        )
    return Interval(low, high, log, whole)


def _is_number(value: Value) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _seeds(said: Choice | Value) -> tuple[int, ...]:
    values = said.values if isinstance(said, Choice) else (said,)
    if not all(
        isinstance(value, int) and not isinstance(value, bool) and value in SEED for value in values
    ):
        raise ConfigError(
            f"seed must be a whole number {SEED}, or a list of such, got {list(values)}"
        )
    if len(set(values)) < len(values):
        raise ConfigError(f"seed has one twice: {list(values)}")
    return values


def word(value: Value) -> str:
    """A value as the command line has it."""
    if isinstance(value, list | tuple):
        return ",".join(map(word, value))
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
