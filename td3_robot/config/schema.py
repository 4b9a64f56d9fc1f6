"""Options from dataclasses: one schema for the command line, YAML files, --help and every check of
a type.
"""

import argparse
import dataclasses
import difflib
import functools
import math
import reprlib
import types
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import docstring_parser
import jsonargparse
import yaml

from td3_robot.config.field import check
from td3_robot.errors import ConfigError
from td3_robot.utils.yaml_file import parse, read_mapping

T = TypeVar("T")

HELP = frozenset(("-h", "--help"))


class Schema:
    """The options of some dataclasses: a name such as "td3.gamma" -> its type, default and help.

    jsonargparse holds them, checks values against them and prints the help. The words of the
    command line are taken apart here, since its own errors run over several lines and leave out the
    valid choices.
    """

    def __init__(self, program: str, description: str, *classes: type):
        self._made_of = (program, description, *classes)
        self.parser = jsonargparse.ArgumentParser(
            prog=program,
            usage="%(prog)s [--option value ...]",
            description=description,
            exit_on_error=False,
            print_config=None,
        )
        self.options: dict[str, object] = {}  # option -> type
        for cls in classes:
            self._add(cls)

    def _add(self, cls: Any, prefix: str = "") -> None:
        doc = docstring_parser.parse(cls.__doc__)
        texts = {item.arg_name: item.description for item in doc.params}
        group = self.parser.add_argument_group((doc.short_description or "").rstrip("."))
        for item in dataclasses.fields(cls):
            option = prefix + item.name
            if dataclasses.is_dataclass(item.type):
                self._add(item.type, f"{option}.")
                continue
            self.options[option] = item.type
            choices = ",".join(item.metadata.get("choices", ()))
            shown: dict[str, Any] = {"metavar": f"{{{choices}}}"} if choices else {}
            group.add_argument(
                f"--{option}",
                type={Path: str, Path | None: str | None}.get(item.type, item.type),
                default=item.default,
                help=texts[item.name],
                **shown,
            )

    def read_flags(self, argv: list[str]) -> dict[str, object]:
        """The options that a command line gives, checked.

        A switch without a value means true; the items of a list are one word, with commas, or
        several.
        """
        given, words = {}, list(argv)
        while words:
            word = words.pop(0)
            if word in HELP:
                self.show_help({})
                raise SystemExit(0)
            flag, equals, text = word.partition("=")
            option = flag.removeprefix("--").replace("-", "_")  # --no-browser is --no_browser
            if not flag.startswith("--"):
                raise ConfigError(f"cannot place {word!r}: options are written --name value")
            if option not in self.options:
                raise _unknown(option, self.options)
            if (
                not equals
                and self.options[option] is bool
                and (not words or words[0] not in ("true", "false"))
            ):
                text = "true"
            elif not equals:
                if not words or words[0].startswith("--"):
                    raise ConfigError(
                        f"--{option} needs a value: {_described(self.options[option])}"
                    )
                text = words.pop(0)
                while (
                    typing.get_origin(self.options[option]) is tuple
                    and words
                    and words[0][:1] != "-"
                ):
                    text = f"{text},{words.pop(0)}"
            given[option] = self.check(option, self._parsed(option, text))
        return given

    def _parsed(self, option: str, text: str) -> object:
        """A value from the command line as YAML would have it; text stays as it is."""
        hint = self.options[option]
        if typing.get_origin(hint) is tuple:
            if _takes_text(hint):
                return [name.strip() for name in text.split(",") if name.strip()]
            text = text if text.startswith("[") else f"[{text}]"
        elif _takes_text(hint):
            return None if text == "null" and types.NoneType in typing.get_args(hint) else text
        try:
            return parse(text)
        except (yaml.YAMLError, ValueError, RecursionError):
            return text  # which the check refuses, quoting it

    def check(self, option: str, value: object) -> object:
        """A value turned into its option's type.

        Raises:
            ConfigError: it is not of that type, or not finite.
        """
        hint = self.options[option]
        problem = ConfigError(f"{option} must be {_described(hint)}, got {_shown(value)}")
        if value is None:
            if type(None) in typing.get_args(hint):
                return None
            raise problem
        items = value if isinstance(value, list) else [value]
        if any(
            isinstance(item, (list, dict) if _takes_text(hint) else (list, dict, str))
            for item in items
        ):
            raise problem  # jsonargparse itself would read text again and find numbers in it
        if any(isinstance(item, float) and not math.isfinite(item) for item in items):
            raise ConfigError(f"{option} must be finite, got {_shown(value)}")
        if isinstance(value, str) and (kinds := {str, Path} & {hint, *typing.get_args(hint)}):
            return kinds.pop()(value)  # jsonargparse would take "#" for a comment
        for candidate in (value, _whole(value)):  # 1e6 is a number of steps too
            try:
                return self.parser.parse_object({option: candidate}, defaults=False)[option]
            except (argparse.ArgumentError, ArithmeticError):
                pass
        raise problem

    def show_help(self, in_force: dict[str, object]) -> None:
        """Print every option with its meaning, its choices and its value in force, by default its
        own default.
        """
        parser = Schema(*self._made_of).parser  # this one serves whoever asks `schema` again
        parser.set_defaults({name: in_force[name] for name in self.options if name in in_force})
        parser.print_help()

    def read_file(self, path: Path, whole: bool = True) -> dict[str, object]:
        """The options that a YAML file gives, checked: {"td3.gamma": 0.98}.

        Args:
            path: the file.
            whole: refuse names that are no options; if not, those beside the named dataclasses are
                passed over.

        Raises:
            ConfigError: it is missing, does not parse, is no mapping, or has an unknown option or a
                wrong value.
        """
        try:
            content = read_mapping(path)
            if not whole:
                content = {
                    key: content[key]
                    for key in content
                    if any(o.split(".")[0] == key for o in self.options)
                }
            return self.check_all(content)
        except ConfigError as error:
            raise ConfigError(f"{str(path)!r}: {error}") from error

    def check_all(self, content: dict) -> dict[str, object]:
        """The options of a nested mapping, each turned into its type.

        Raises:
            ConfigError: an option is unknown, or a value wrong.
        """
        return {option: self.check(option, value) for option, value in _flat(content, self.options)}


@functools.cache
def schema(program: str, description: str, *classes: type) -> Schema:
    """The `Schema` of these dataclasses, made once: it takes longer than anything that is asked of
    it.
    """
    return Schema(program, description, *classes)


def _flat(content: dict, options: Iterable[str], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Pairs of option and value of a nested mapping."""
    for key, value in content.items():
        name = f"{prefix}{key}"
        if name in options:
            yield name, value
        elif not any(option.startswith(f"{name}.") for option in options):
            raise _unknown(name, options)
        elif isinstance(value, dict):
            yield from _flat(value, options, f"{name}.")
        else:
            raise ConfigError(f"{name} must be a mapping of options to values, got {_shown(value)}")


def _unknown(name: str, options: Iterable[str]) -> ConfigError:
    """The error for a name that is no option: the nearest ones, since there are too many to list
    them all.
    """
    near = [option for option in options if option.split(".")[-1] == name]
    near = near or difflib.get_close_matches(name[:100], options, n=3, cutoff=0.75)
    hint = f"did you mean {' or '.join(near[:3])}? " if near else ""
    return ConfigError(f"unknown option {reprlib.repr(name)}; {hint}--help lists all")


def build(cls: type[T], values: dict[str, Any], prefix: str = "") -> T:
    """An instance of a dataclass tree from {option: value}; the others keep their defaults."""
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
    """The options of one part of a YAML file, such as td3, whatever else the file holds.

    Raises:
        ConfigError: the file does not parse, or that part has an unknown option or a wrong value.
    """
    try:
        part = read_mapping(path).get(name, {})
        return schema("", "", cls).check_all(part if isinstance(part, dict) else {name: part})
    except ConfigError as error:
        raise ConfigError(f"{str(path)!r}: {error}") from error


def _described(hint: object) -> str:
    """What values of a type are called in a message."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) is types.UnionType:
        return " or ".join(_described(arg) for arg in args)
    if typing.get_origin(hint) is tuple:
        return f"a list, each {_described(args[0])}"
    if typing.get_origin(hint) is typing.Literal:
        return f"one of {', '.join(map(str, args))}"
    names = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        Path: "a path",
    }
    return names.get(hint, "null" if hint is types.NoneType else str(hint))


def _takes_text(hint: object) -> bool:
    """Whether text is among the values of a type, or of the items of one."""
    return any(
        kind in (str, Path) or isinstance(kind, str) for kind in (hint, *typing.get_args(hint))
    )


def _shown(value: object) -> str:
    """A value in a message: as YAML calls it, and never long."""
    return "null" if value is None else reprlib.repr(value)


def _whole(value: object) -> object:
    """Numbers without a fraction as int, alone or in a list; all else as it is."""
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
