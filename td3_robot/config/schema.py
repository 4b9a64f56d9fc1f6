"""Turn dataclasses of options into one schema for the command line, YAML files and --help."""

import argparse
import dataclasses
import difflib
import functools
import math
import re
import reprlib
import types
import typing
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import docstring_parser
import jsonargparse
import yaml

from td3_robot.config.field import check, describe_type, get_spellings
from td3_robot.config.help_text import HELP, HELP_ALL, Group, Option, format_command, format_help
from td3_robot.errors import ConfigError
from td3_robot.utils.console import get_program
from td3_robot.utils.yaml_file import parse_yaml, read_mapping

T = TypeVar("T")

_TRUTHS = ("true", "false", "null")
_FEW = 15  # options that an error lists
OldNames = dict[str, str]  # older spelling, or option that was removed -> what to say of it


class Schema:
    """The options of some dataclasses: a name such as "td3.gamma" -> its type, default and help.

    jsonargparse checks types. The words of the command line are parsed here, since its own errors
    run over several lines and leave out the valid choices.

    Attributes:
        options: type by name.
        renamed: today's name by older spelling.
        removed: the reason by the name of an option that is gone.
        groups: options that belong together, for the help.
        examples: words of the command line and what they do, for the help.
    """

    def __init__(self, program: str, description: str, *classes: type):
        self._program = program
        self._description = description
        self.parser = jsonargparse.ArgumentParser(exit_on_error=False, print_config=None)
        self.options: dict[str, object] = {}
        self.renamed: dict[str, str] = {}
        self.removed: dict[str, str] = {}
        self.groups: list[Group] = []
        self.examples: list[tuple[str, str]] = []
        for cls in classes:
            self._add(cls)
        # everything that a file or a flag may say
        self.names = frozenset((*self.options, *self.renamed, *self.removed))

    def _add(self, cls: Any, prefix: str = "") -> None:
        doc = docstring_parser.parse(cls.__doc__)
        texts = {item.arg_name: item.description for item in doc.params}
        title = (doc.short_description or "").rstrip(".")
        named = {
            None: Group(title, " ".join((doc.long_description or "").split()), []),
            **{name: Group(name, text, []) for name, text in getattr(cls, "GROUPS", {}).items()},
        }
        self.groups.extend(named.values())
        self.examples += getattr(cls, "EXAMPLES", ())
        for name, why in getattr(cls, "REMOVED", {}).items():
            self.removed[prefix + name] = why
        for item in dataclasses.fields(cls):
            option = prefix + item.name
            if dataclasses.is_dataclass(item.type):
                self._add(item.type, f"{option}.")
                continue
            self.options[option] = item.type
            self.renamed |= {old: option for old in get_spellings(option, item) if old != option}
            metadata = item.metadata
            shown = Option(
                name=option,
                hint=item.type,
                text=" ".join((metadata.get("help") or texts[item.name] or "").split()),
                choices=tuple(metadata.get("choices", ())),
                default=item.default,
                basic=metadata.get("basic", False),
            )
            named[metadata.get("group")].options.append(shown)
            self.parser.add_argument(
                f"--{option}",
                type={Path: str, Path | None: str | None}.get(item.type, item.type),
                default=item.default,
            )

    def read_flags(self, argv: list[str], old: OldNames | None = None) -> dict[str, object]:
        """Read and check the options that a command line gives.

        A switch without a value means true; the items of a list are one word, with commas, or
        several, with or without commas.

        Args:
            argv: the words.
            old: filled with the older names among them.

        Raises:
            ConfigError: an option is unknown or given under two names, or a value is wrong.
            SystemExit: after --help.
        """
        return self._check_pairs(self._iter_flags(list(argv)), old)

    def _iter_flags(self, words: list[str]) -> Iterator[tuple[str, object]]:
        while words:
            word = words.pop(0)
            if word in HELP | HELP_ALL:
                self.show_help({}, whole=word in HELP_ALL)
                raise SystemExit(0)
            flag, equals, text = word.partition("=")
            name = flag.removeprefix("--").replace("-", "_")  # --no-browser is --no_browser
            if not flag.startswith("--"):
                raise ConfigError(f"cannot place {word!r}: options are written --name value")
            if name in self.removed:
                if not equals and words and not words[0].startswith("--"):
                    words.pop(0)
                yield name, None
                continue
            option = self.renamed.get(name, name)
            if option not in self.options:
                raise self._make_unknown_error(name)
            hint = self.options[option]
            switch = bool in (hint, *typing.get_args(hint))
            if not equals and switch and (not words or words[0] not in _TRUTHS):
                if words and not words[0].startswith("-"):
                    raise ConfigError(f"{option} must be true or false, got {words[0]!r}")
                text = "true"
            elif not equals:
                if not words or words[0].startswith("--"):
                    raise ConfigError(f"--{option} needs a value: {describe_type(hint)}")
                text = words.pop(0)
            while typing.get_origin(hint) is tuple and words and _is_item(words[0]):
                text = f"{text.rstrip(',')},{words.pop(0)}".lstrip(",")
            yield name, self._parse(option, text)

    def _check_pairs(
        self, pairs: Iterable[tuple[str, object]], old: OldNames | None
    ) -> dict[str, object]:
        """Check pairs of name and value, and give options their current names.

        Raises:
            ConfigError: a value is wrong, or an option has both its names.
        """
        values: dict[str, object] = {}
        spelled: dict[str, str] = {}
        found: OldNames = {}
        for name, value in pairs:
            if name in self.removed:
                found[name] = f"{name} has no effect any more: {self.removed[name]}"
                continue
            option = self.renamed.get(name, name)
            if option != name:
                found[name] = f"{name} is now called {option}"
            if spelled.setdefault(option, name) != name:
                former = name if name != option else spelled[option]
                raise ConfigError(f"{former} and {option} are the same option: give {option} alone")
            values[option] = self.check(option, value)
        if old is not None:
            old |= found
        return values

    def _parse(self, option: str, text: str) -> object:
        """Parse a value of the command line as YAML; values of text options stay as they are."""
        hint = self.options[option]
        if typing.get_origin(hint) is tuple:
            if _accepts_text(hint):
                return [name.strip() for name in text.split(",") if name.strip()]
            text = text if text.startswith("[") else f"[{text}]"
        elif _accepts_text(hint):
            return None if text == "null" and types.NoneType in typing.get_args(hint) else text
        try:
            return parse_yaml(text)
        except (yaml.YAMLError, ValueError, RecursionError):
            return text  # which the check refuses, quoting it

    def check(self, option: str, value: object) -> object:
        """Convert a value to its option's type.

        Raises:
            ConfigError: it is not of that type, or not finite.
        """
        hint = self.options[option]
        problem = ConfigError(f"{option} must be {describe_type(hint)}, got {_shorten(value)}")
        if value is None:
            if type(None) in typing.get_args(hint):
                return None
            raise problem
        items = value if isinstance(value, list) else [value]
        if any(
            isinstance(item, (list, dict) if _accepts_text(hint) else (list, dict, str))
            for item in items
        ):
            raise problem  # jsonargparse itself would read text again and find numbers in it
        if any(isinstance(item, float) and not math.isfinite(item) for item in items):
            raise ConfigError(f"{option} must be finite, got {_shorten(value)}")
        if isinstance(value, str) and (kinds := {str, Path} & {hint, *typing.get_args(hint)}):
            return kinds.pop()(value)  # jsonargparse would take "#" for a comment
        for candidate in (value, _convert_whole(value)):  # 1e6 is a number of steps too
            try:
                return self.parser.parse_object({option: candidate}, defaults=False)[option]
            except (argparse.ArgumentError, ArithmeticError):
                pass
        raise problem

    def show_help(self, in_force: dict[str, object], whole: bool = False) -> None:
        """Print the options with their meanings, choices and values in force, or else defaults.

        Args:
            whole: all options, in groups, and not only the basic ones.
        """
        groups = [group for group in self.groups if group.options]
        text = format_help(self._program, self._description, self.examples, groups, in_force, whole)
        print(text, end="")

    def read_file(
        self, path: Path, whole: bool = True, old: OldNames | None = None
    ) -> dict[str, object]:
        """Read and check the options that a YAML file gives: {"td3.gamma": 0.98}.

        Args:
            path: the file.
            whole: refuse unknown options; if not, top-level keys of other dataclasses are ignored.
            old: filled with the older names in it.

        Raises:
            ConfigError: it is missing, does not parse, is no mapping, or has an unknown option or a
                wrong value.
        """
        try:
            content = read_mapping(path)
            if not whole:
                known = {name.split(".")[0] for name in self.names}
                content = {
                    key: value for key, value in content.items() if str(key).split(".")[0] in known
                }
            return self.check_all(content, old)
        except ConfigError as error:
            raise ConfigError(f"{str(path)!r}: {error}") from error

    def check_all(self, content: dict, old: OldNames | None = None) -> dict[str, object]:
        """Convert the options of a nested mapping to their types.

        Raises:
            ConfigError: an option is unknown or given under two names, or a value is wrong.
        """
        pairs = list(self._flatten(content))
        counts = Counter(name for name, _ in pairs)
        for name in (name for name, count in counts.items() if count > 1):
            raise ConfigError(f"{name} is there twice, nested and with dots; remove one")
        return self._check_pairs(pairs, old)

    def _flatten(self, content: dict, prefix: str = "") -> Iterator[tuple[str, object]]:
        """Yield pairs of name and value of a nested mapping."""
        for key, value in content.items():
            name = f"{prefix}{key}"
            if name in self.names:
                yield name, value
            elif not any(option.startswith(f"{name}.") for option in self.names):
                raise self._make_unknown_error(name)
            elif isinstance(value, dict):
                yield from self._flatten(value, f"{name}.")
            else:
                raise ConfigError(
                    f"{name} must be a mapping of options to values, got {_shorten(value)}"
                )

    def _make_unknown_error(self, name: str) -> ConfigError:
        """Return the error of an unknown option, with the nearest ones or, of a few, all."""
        near = [option for option in self.options if option.split(".")[-1] == name]
        near = near or difflib.get_close_matches(name[:100], self.options, n=3, cutoff=0.75)
        hint = f"did you mean {' or '.join(near[:3])}? " if near else ""
        if len(self.options) <= _FEW:
            choices = f"valid choices: {', '.join(self.options)}"
        else:
            # the options of files are those of trainings
            command = format_command(self._program or get_program("train"))
            choices = f"{command} --help-all lists all"
        return ConfigError(f"unknown option {reprlib.repr(name)}; {hint}{choices}")


@functools.cache
def make_schema(program: str, description: str, *classes: type) -> Schema:
    """Return the `Schema` of these dataclasses; it is made once, which takes a while."""
    return Schema(program, description, *classes)


def build(cls: type[T], values: dict[str, Any], prefix: str = "") -> T:
    """Make a dataclass tree from {option: value}; the others keep their defaults."""
    chosen = {}
    for item in dataclasses.fields(cast(Any, cls)):
        option = prefix + item.name
        if isinstance(item.type, type) and dataclasses.is_dataclass(item.type):
            chosen[item.name] = build(item.type, values, f"{option}.")
        elif option in values:
            chosen[item.name] = values[option]
    try:
        part = cls(**chosen)
        check(part)
        return part
    except ConfigError as error:  # in the words of the class, which begin with the name of a field
        raise ConfigError(f"{prefix}{error}") from None


def read_part(path: Path, name: str, cls: type) -> dict[str, object]:
    """Read the options of one part of a YAML file, such as td3, whatever else the file holds.

    Raises:
        ConfigError: the file does not parse, or that part has an unknown option or a wrong value.
    """
    try:
        part = read_mapping(path).get(name, {})
        return make_schema("", "", cls).check_all(part if isinstance(part, dict) else {name: part})
    except ConfigError as error:
        raise ConfigError(f"{str(path)!r}: {error}") from error


def _is_item(word: str) -> bool:
    """Return whether a word may be an item of a list: it is no flag, but may be negative."""
    return re.match(r"-(?![.\d])", word) is None


def _accepts_text(hint: object) -> bool:
    """Return whether a type, or that of its items, has text among its values."""
    return any(
        kind in (str, Path) or isinstance(kind, str) for kind in (hint, *typing.get_args(hint))
    )


def _shorten(value: object) -> str:
    """Return a value for a message: as YAML writes it, and short."""
    return "null" if value is None else reprlib.repr(value)


def _convert_whole(value: object) -> object:
    """Convert numbers without a fraction, alone or in a list, to int; keep all else."""
    if isinstance(value, list):
        return [_convert_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
