"""How an option is declared: in its field, beside the default, stands all that is to be known of
it.

The command line, --help, the checks and what a resume may change read it from there. The keys of a
field's metadata:

    range    what a `Range` is made of: of a number, or of each number of a tuple choices  the names
    that the option can have fixed    True where a resumed run cannot change it, or a function of
    the option whose value stays needs    what the option does nothing without, each a `Need`
    in_file  a compiled pattern and its name: all that a file may say; the rest is for the command
    line
"""

import dataclasses
import difflib
import reprlib
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from typing import Any, NamedTuple

from td3_robot.errors import ConfigError


class Range(NamedTuple):
    """From `least` to `most`, both included; `why` says what is wrong with more."""

    least: float
    most: float
    why: str = ""
    above: bool = False  # `least` itself is too little

    def __str__(self):
        ends = (
            f"{end:_}" if isinstance(end, int) and end < 10**13 else f"{end:g}" for end in self[:2]
        )
        return f"in {'(' if self.above else '['}{', '.join(ends)}]"

    def __contains__(self, value: Any) -> bool:
        """Whether a number lies inside; NaN and what is no number do not."""
        try:
            return self.least <= value <= self.most and not (self.above and value == self.least)
        except TypeError:
            return False


class Need(NamedTuple):
    """What an option does nothing without: its name, and whether a configuration has it."""

    text: str
    there: Callable[[Any], bool]


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
    needs: tuple[Need, ...] = (),
) -> Any:
    """A dataclass field with its default; `rule` is its range or its choices."""
    rules = {"range": rule} if isinstance(rule, Range) else {"choices": rule} if rule else {}
    return dataclasses.field(default=default, metadata={**rules, "fixed": fixed, "needs": needs})


def require(name: str, value: object, rule: Range | tuple[str, ...]) -> None:
    """Hold a value to its range or its choices; of a tuple, every item.

    Raises:
        ConfigError: names the option, what it can be and what it is.
    """
    for item in value if isinstance(value, tuple | list) else (value,):
        if item in rule:
            continue
        if isinstance(rule, Range):
            why = (
                f": {rule.why}"
                if isinstance(item, int | float) and item > rule.most and rule.why
                else ""
            )
            raise ConfigError(f"{name} must be {rule}, got {reprlib.repr(value)}{why}")
        near = difflib.get_close_matches(str(item)[:100], rule, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"{name} must be one of {', '.join(rule)}, got {reprlib.repr(value)}{hint}"
        )


def check(part: Any) -> None:
    """Hold every field of a dataclass, null ones apart, to what it declares.

    Raises:
        ConfigError: see `require`.
    """
    for item in dataclasses.fields(part):
        value = getattr(part, item.name)
        if value is None:
            continue
        if "range" in item.metadata:
            require(item.name, value, Range(*item.metadata["range"]))
        elif "choices" in item.metadata:
            require(item.name, value, item.metadata["choices"])
        if item.type in (int, int | None) and not isinstance(value, Integral):
            raise ConfigError(f"{item.name} must be a whole number, got {value!r}")


def leaves(cls: Any, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field]]:
    """The options of a tree of dataclasses, such as "td3.gamma", each with its field."""
    for item in dataclasses.fields(cls):
        if dataclasses.is_dataclass(item.type):
            yield from leaves(item.type, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, item


def flattened(options: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The same of options nested as in a file: each with its value."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def require_same(prefix: str, here: Any, there: Any) -> None:
    """Hold the options of a configuration to those that an agent was made with.

    Raises:
        ConfigError: names the first that differs, with the prefix that its user writes.
    """
    for item in dataclasses.fields(here):
        mine, other = getattr(here, item.name), getattr(there, item.name)
        if mine != other:
            raise ConfigError(
                f"{prefix}{item.name} is {mine!r} in the configuration and {other!r} in the agent"
            )
