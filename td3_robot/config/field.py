"""Declare an option once: a dataclass field with its default, range and conditions.

The command line, --help, configuration files and the checks of a resume all read the declaration.
Keys of a field's metadata:

    range    arguments of `Range`, for a number or for each number of a tuple
    choices  valid names
    fixed    True where a resumed run cannot change the option, or a function of the option whose
             result cannot change
    needs    conditions without which the option has no effect, each a `Requires`
    aliases  older spellings, which files and flags may still use
    help     the sentence of --help, where the docstring of the dataclass does not have it
    basic    True if --help shows the option, and not --help-all alone
    group    heading of --help-all under which the option is listed, a key of `GROUPS`; without it
             that is the first line of the dataclass
    in_file  a compiled pattern and its name: the values that a file may hold; others are accepted
             from the command line only

A dataclass names the options that it no longer has in a class attribute `REMOVED`, a mapping of
their names to the reason: files and flags may still give them, without effect. Its `GROUPS` map
the headings of --help-all to a sentence each, and its `EXAMPLES` are pairs for the top of the help:
the words after the command, and what they do.
"""

import dataclasses
import difflib
import reprlib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from td3_robot.errors import ConfigError


class Range(NamedTuple):
    """An interval from `least` to `most`, both included; `why` explains the upper end."""

    least: float
    most: float
    why: str = ""
    above: bool = False  # `least` itself is excluded

    def __str__(self):
        ends = (
            f"{end:_}" if isinstance(end, int) and end < 10**13 else f"{end:g}" for end in self[:2]
        )
        return f"in {'(' if self.above else '['}{', '.join(ends)}]"

    def __contains__(self, value: Any) -> bool:
        """Return whether a number lies inside; NaN and other types do not."""
        try:
            return self.least <= value <= self.most and not (self.above and value == self.least)
        except TypeError:
            return False


class Requires(NamedTuple):
    """A condition on a configuration without which an option has no effect, and its wording."""

    text: str
    is_met: Callable[[Any], bool]


_FLOAT32 = "float32 ends there"
SHARE = Range(0, 1)
PART = Range(0, 1, above=True)
NOT_NEGATIVE = Range(0, 1e38, _FLOAT32)
POSITIVE = Range(0, 1e38, _FLOAT32, above=True)
FINITE = Range(-1e38, 1e38, _FLOAT32)
STEPS = Range(1, 10**15, "no machine lives to make more")
SEED = Range(0, 2**32 - 1, "generators take 32 bits")


def option(
    default: object,
    rule: Range | tuple[str, ...] | None = None,
    *,
    fixed: bool | Callable[[Any], object] = False,
    needs: tuple[Requires, ...] = (),
    aliases: tuple[str, ...] = (),
    basic: bool = False,
    group: str | None = None,
) -> Any:
    """Declare a dataclass field with its default; `rule` is its range or its choices."""
    rules: dict[str, object] = {}
    if isinstance(rule, Range):
        rules["range"] = rule
    elif rule:
        rules["choices"] = rule
    metadata = {**rules, "fixed": fixed, "needs": needs, "aliases": aliases}
    metadata |= {"basic": basic, "group": group}
    return dataclasses.field(default=default, metadata=metadata)


def require(name: str, value: object, rule: Range | tuple[str, ...]) -> None:
    """Check a value, or every item of a tuple, against a range or choices.

    Raises:
        ConfigError: names the option, the valid values and the given one.
    """
    for item in value if isinstance(value, tuple | list) else (value,):
        if item in rule:
            continue
        if isinstance(rule, Range):
            too_large = isinstance(item, int | float) and item > rule.most and rule.why
            why = f": {rule.why}" if too_large else ""
            raise ConfigError(f"{name} must be {rule}, got {reprlib.repr(value)}{why}")
        by_lower_case = {choice.lower(): choice for choice in rule}
        near = difflib.get_close_matches(str(item)[:100].lower(), by_lower_case, n=1)
        hint = f"; did you mean {by_lower_case[near[0]]!r}?" if near else ""
        raise ConfigError(
            f"{name} must be one of {', '.join(rule)}, got {reprlib.repr(value)}{hint}"
        )


def check(part: Any) -> None:
    """Check every field of a dataclass, and make numpy's numbers Python's and lists tuples.

    Raises:
        ConfigError: names the option, the valid values and the given one.
    """
    for item in dataclasses.fields(part):
        value = _convert(getattr(part, item.name), item.type)
        object.__setattr__(part, item.name, value)
        if value is None and _is_of(None, item.type):
            continue
        if "range" in item.metadata:
            require(item.name, value, Range(*item.metadata["range"]))
        elif "choices" in item.metadata:
            require(item.name, value, item.metadata["choices"])
        if not _is_of(value, item.type):
            wanted = describe_type(item.type)
            raise ConfigError(f"{item.name} must be {wanted}, got {reprlib.repr(value)}")


def describe_type(hint: Any) -> str:
    """Name the values of a type in a message."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) is types.UnionType:
        return " or ".join(describe_type(arg) for arg in args)
    if typing.get_origin(hint) is tuple:
        return f"a list, each {describe_type(args[0])}"
    if typing.get_origin(hint) is typing.Literal:
        return f"one of {', '.join(map(str, args))}"
    names = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        Path: "a path",
        types.NoneType: "null",
    }
    return names.get(hint) or getattr(hint, "__name__", str(hint))


def _is_of(value: object, hint: Any) -> bool:
    """Return whether a value is of a type as a field declares it; a whole number is a number."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) is types.UnionType:
        return any(_is_of(value, arg) for arg in args)
    if typing.get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_is_of(item, args[0]) for item in value)
    if typing.get_origin(hint) is typing.Literal:
        return value in args
    if hint in (int, float):
        kind = Integral if hint is int else Real
        return isinstance(value, kind) and not isinstance(value, bool)
    return isinstance(value, hint)


def _convert(value: object, hint: Any) -> object:
    """Convert numpy's numbers, also in a list, to Python's, lists to tuples, and text to a path.

    YAML and JSON take none of numpy's.
    """
    if isinstance(value, tuple | list):
        return tuple(_convert(item, hint) for item in value)
    if isinstance(value, str) and Path in (hint, *typing.get_args(hint)):
        return Path(value)
    return value.item() if isinstance(value, np.generic) else value


def iter_options(cls: Any, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field]]:
    """Yield the options of a tree of dataclasses: names such as "td3.gamma" and their fields."""
    for item in dataclasses.fields(cls):
        if dataclasses.is_dataclass(item.type):
            yield from iter_options(item.type, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, item


def get_spellings(name: str, item: dataclasses.Field) -> tuple[str, ...]:
    """Return the older names of an option and its name: ("envs", "num_envs")."""
    prefix = name[: -len(item.name)]
    return (*(prefix + alias for alias in item.metadata.get("aliases", ())), name)


def flatten_options(
    options: Mapping[str, object], prefix: str = ""
) -> Iterator[tuple[str, object]]:
    """Yield nested options by name, such as "td3.gamma", with their values."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from flatten_options(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def require_same(prefix: str, config: Any, agent_config: Any) -> None:
    """Check that a configuration has the options that an agent was made with.

    Raises:
        ConfigError: names the first that differs, with the prefix that its user writes.
    """
    for item in dataclasses.fields(config):
        asked = getattr(config, item.name)
        made = getattr(agent_config, item.name)
        if asked != made:
            raise ConfigError(
                f"{prefix}{item.name} is {asked!r} in the configuration and {made!r} in the agent"
            )
