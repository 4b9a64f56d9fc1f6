"""The search space of a sweep: a YAML file of options, ranges and lists, and the trials of it."""

import dataclasses
import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from td3_robot.config.field import NOT_NEGATIVE, PART, POSITIVE, SEED, Range, option
from td3_robot.config.help_text import format_value
from td3_robot.config.schema import build, make_schema
from td3_robot.errors import ConfigError
from td3_robot.utils.yaml_file import read_mapping

_OWN = frozenset(("run", "resume", "config", "seeds"))  # the sweep itself sets them
_ENDS = {"low", "high"}
_FOREIGN_ENDS = {"min", "max"}  # of other libraries' plans, no option is called so
_FORM = (
    "a range is {low: 1e-4, high: 1e-2}, with log: true for even factors and whole: true for whole "
    "numbers"
)
Value = Any  # as YAML has it: a number, a word, true, null, or a list of these


@dataclass(frozen=True)
class Resources:
    """Resources that a trial takes of a machine.

    Attributes:
        cpus: Cores.
        gpus: GPUs; a fraction if several trials share one.
    """

    cpus: float = option(1.0, POSITIVE)
    gpus: float = option(0.0, NOT_NEGATIVE)


@dataclass(frozen=True)
class SweepConfig:
    """Configuration of a sweep, except the options that it varies.

    Attributes:
        trials: Trainings in all, a multiple of the number of seeds; null for every combination of
            the lists.
        metric: Column of metrics.csv that trials are compared by.
        goal: max if more of the metric is better, min if less.
        scheduler: asha ends the trials that are behind, pbt continues them from one ahead with
            changed options, none does neither.
        grace: Share of a trial's steps before the first decision of asha, or between the changes of
            pbt.
        factor: At each decision of asha one in so many trials continues, and the next decision is
            after so many times the steps.
        seed: Seed of the draws.
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
class FloatRange:
    """Range that an option is drawn from."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    @property
    def count(self) -> float:
        """Number of values: infinite, except of whole numbers."""
        return int(self.high) - int(self.low) + 1 if self.whole else math.inf

    def interpolate(self, share: float) -> float:
        """Return the value at a share in [0, 1] of the range, to four digits."""
        if self.whole:  # so that each number has an equal part
            return min(int(self.high), math.floor(self._blend(self.low, self.high + 1, share)))
        return self._round(self._blend(self.low, self.high, share))

    def _blend(self, low: float, high: float, share: float) -> float:
        return low * (high / low) ** share if self.log else low + (high - low) * share

    def clip(self, value: float) -> float:
        """Return the nearest value in the range."""
        value = min(max(value, self.low), self.high)
        return round(value) if self.whole else self._round(value)

    def _round(self, value: float) -> float:
        """Round to four digits, within the range."""
        return min(max(float(f"{value:.4g}"), self.low), self.high)


@dataclass(frozen=True)
class Categorical:
    """List that an option is drawn from."""

    values: tuple[Value, ...]

    @property
    def count(self) -> int:
        """Number of values."""
        return len(self.values)

    def interpolate(self, share: float) -> Value:
        """Return the value at a share in [0, 1), of which each has an equal part."""
        return self.values[int(share * len(self.values))]


@dataclass(frozen=True)
class Trial:
    """One training of a sweep.

    Attributes:
        name: name of its run folder, in the folder of the sweep.
        options: options of `train.py`, such as {"td3.tau": 0.01}, and the seed.
    """

    name: str
    options: dict[str, Value]

    @property
    def words(self) -> list[str]:
        """Command line of the training, after `train.py`."""
        return [f"--{name}={format_value(value)}" for name, value in self.options.items()]


@dataclass(frozen=True)
class SearchSpace:
    """The options of a sweep's trials; each draw is tried with all seeds.

    Attributes:
        config: how the sweep is made.
        fixed: options that all trials have.
        varied: options that trials differ in.
        seeds: seeds of the trainings.
    """

    config: SweepConfig
    fixed: dict[str, Value]
    varied: dict[str, FloatRange | Categorical]
    seeds: tuple[int, ...]

    def rename(self, names: Mapping[str, str]) -> "SearchSpace":
        """Return the space with each option that is a key of `names` by the name it has there."""
        fixed = {names.get(name, name): value for name, value in self.fixed.items()}
        varied = {names.get(name, name): values for name, values in self.varied.items()}
        return dataclasses.replace(self, fixed=fixed, varied=varied)

    def make_trials(self) -> list[Trial]:
        """Return all trials, the same at every call.

        Raises:
            ConfigError: their number is unknown, or does not fit the seeds.
        """
        count = self.config.trials
        draws = list(self._list_combinations() if count is None else self._draw_options(count))
        all_options = [self.fixed | draw | {"seed": seed} for draw in draws for seed in self.seeds]
        digits = len(str(len(all_options) - 1))
        return [Trial(f"trial{i:0{digits}}", options) for i, options in enumerate(all_options)]

    def _list_combinations(self) -> Iterator[dict[str, Value]]:
        if ranges := [
            name for name, values in self.varied.items() if isinstance(values, FloatRange)
        ]:
            raise ConfigError(f"set trials, the number of trainings: {ranges[0]} has a range")
        for values in itertools.product(*(choice.values for choice in self.varied.values())):  # pyright: ignore
            yield dict(zip(self.varied, values))

    def _draw_options(self, trials: int) -> Iterator[dict[str, Value]]:
        """Draw a Latin hypercube: each option has one value in every part of its range.

        Where only lists and whole numbers vary, what is drawn twice is drawn again.

        McKay, Beckman, Conover: A comparison of three methods for selecting values of input
        variables, 1979.
        """
        count, rest = divmod(trials, len(self.seeds))
        if rest:
            raise ConfigError(
                f"trials must be a multiple of the {len(self.seeds)} seeds, got {trials}"
            )
        # equal trials are equal to the end, except those that pbt changes
        distinct = self.config.scheduler != "pbt"
        most = math.prod(part.count for part in self.varied.values())
        if distinct and count > most:
            raise ConfigError(
                f"trials must be at most {most * len(self.seeds)}, all that there are with these "
                f"values and seeds, got {trials}"
            )
        draw = random.Random(self.config.seed)
        columns = {}
        for name, values in self.varied.items():
            shares = [(part + draw.random()) / count for part in range(count)]
            draw.shuffle(shares)
            columns[name] = [values.interpolate(share) for share in shares]
        drawn = set()
        for i in range(count):
            values = {name: column[i] for name, column in columns.items()}
            while distinct and math.isfinite(most) and repr(values) in drawn:
                values = {name: p.interpolate(draw.random()) for name, p in self.varied.items()}
            drawn.add(repr(values))
            yield values


def find_trusted(options: Mapping[str, Value]) -> list[str]:
    """Find the options that name code to run, which a command line may give but no run's file."""
    plugins = ["plugins"] if "plugins" in options else []
    return [*plugins, *(["env"] if ":" in str(options.get("env")) else [])]


def read_search_space(path: Path) -> SearchSpace:
    """Read the search space that a YAML file describes.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong.
    """
    try:
        content = read_mapping(path)
        options = content.pop("options", None)
        if not isinstance(options, dict) or not options:
            raise ConfigError("options must list what to vary, such as td3.tau: [0.005, 0.01]")
        config = build(SweepConfig, make_schema("", "", SweepConfig).check_all(content))
        pairs = list(_flatten_options(options))
        given = dict(pairs)
        counts = Counter(name for name, _ in pairs)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise ConfigError(f"options set {twice[0]} twice; remove one")
        if own := sorted(_OWN & given.keys()):
            raise ConfigError(f"options cannot have {own[0]}: every trial is a run of its own")
        parts = {name: _parse_value(name, value) for name, value in given.items()}
        seeds = _parse_seeds(parts.pop("seed", 0))
    except ConfigError as error:
        raise ConfigError(f"{str(path)!r}: {error}") from error
    varied = {
        name: part for name, part in parts.items() if isinstance(part, FloatRange | Categorical)
    }
    fixed = {name: part for name, part in parts.items() if name not in varied}
    return SearchSpace(config, fixed, varied, seeds)


def _flatten_options(options: dict, prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Yield option and value, of td3.tau as of tau nested in td3."""
    for key, value in options.items():
        if value == {}:
            raise ConfigError(f"{prefix}{key} must have a value, got {{}}")
        if isinstance(value, dict) and not (_ENDS | _FOREIGN_ENDS) & value.keys():
            yield from _flatten_options(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}".replace("-", "_"), value  # as the command line takes it


def _parse_value(name: str, value: Value) -> FloatRange | Categorical | Value:
    """Return the range of a mapping, the choices of a list, or the value of every trial.

    Raises:
        ConfigError: the mapping is no range, or the list is empty or has a value twice.
    """
    if name == "plugins":  # itself a list
        return value
    if isinstance(value, list):
        if not value:
            raise ConfigError(f"{name} must have at least one value: its list is empty")
        if len(set(map(format_value, value))) < len(value):
            raise ConfigError(f"{name} must not have a value twice, got {value}")
        return Categorical(tuple(value))
    return _parse_range(name, value) if isinstance(value, dict) else value


def _parse_range(name: str, content: dict) -> FloatRange:
    low = content.get("low")
    high = content.get("high")
    log = content.get("log", False)
    whole = content.get("whole", False)
    known = content.keys() <= {*_ENDS, "log", "whole"}
    switches = isinstance(log, bool) and isinstance(whole, bool)
    if not (known and switches and _is_number(low) and _is_number(high) and low < high):
        raise ConfigError(f"{name}: {_FORM}; got {content}")
    if log and low <= 0:
        raise ConfigError(f"{name}: a range with log: true must have low above 0, got {low}")
    if whole and not (low == int(low) and high == int(high)):
        raise ConfigError(
            f"{name}: a range with whole: true must have whole ends, got {low} and {high}"
        )
    return FloatRange(low, high, log, whole)


def _is_number(value: Value) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _parse_seeds(part: Categorical | Value) -> tuple[int, ...]:
    values = part.values if isinstance(part, Categorical) else (part,)
    if not all(
        isinstance(value, int) and not isinstance(value, bool) and value in SEED for value in values
    ):
        raise ConfigError(
            f"seed must be a whole number {SEED}, or a list of such, got {list(values)}"
        )
    return values
