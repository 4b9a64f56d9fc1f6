"""Format the help of a command: the options that matter first, or all of them in groups."""

import argparse
import functools
import shutil
import textwrap
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

HELP = frozenset(("-h", "--help"))
HELP_ALL = frozenset(("--help-all", "--help_all"))
_WIDTH = 100  # characters of a line, at most
_FEW = 25  # options that are all shown by --help
_KINDS = {int: "INTEGER", float: "NUMBER", bool: "{true,false}", str: "TEXT", Path: "PATH"}


class Option(NamedTuple):
    """An option as the help shows it: its name, type, sentence, choices and default."""

    name: str
    hint: Any
    text: str
    choices: tuple[str, ...]
    default: object
    basic: bool  # --help shows it, too


class Group(NamedTuple):
    """Options that belong together, with a sentence about them."""

    title: str
    text: str
    options: list[Option]


def format_help(
    program: str,
    description: str,
    examples: Iterable[tuple[str, str]],
    groups: list[Group],
    values: Mapping[str, object],
    whole: bool,
) -> str:
    """Return the help of a command.

    Args:
        program: name of the command, such as "train.py".
        description: a sentence about it.
        examples: words after the command's name, and what they do.
        groups: all options.
        values: those in force, shown instead of the defaults.
        whole: list all groups, each with its sentence, and not only the basic options.
    """
    width = min(_WIDTH, shutil.get_terminal_size().columns)
    parser = argparse.ArgumentParser(
        prog=program,
        usage="%(prog)s [--option value ...]",
        description=f"{description}\n\n{_format_examples(program, examples)}",
        formatter_class=functools.partial(
            argparse.RawDescriptionHelpFormatter, width=width, max_help_position=26
        ),
        add_help=False,
    )
    options = [option for group in groups for option in group.options]
    shown = options if len(options) <= _FEW else [option for option in options if option.basic]
    if whole:
        for group in groups:
            text = textwrap.fill(group.text, width - 2)
            _add_options(parser.add_argument_group(group.title, text), group.options, values)
    else:
        _add_options(parser.add_argument_group("options"), shown, values)
        command = format_command(program)
        parser.epilog = f"{command} --help-all lists all {len(options)} options, in groups."
    return parser.format_help()


def format_command(program: str) -> str:
    """Return how a program is started: "python train.py" or "td3-robot train"."""
    return f"python {program}" if program.endswith(".py") else program


def _format_examples(program: str, examples: Iterable[tuple[str, str]]) -> str:
    command = format_command(program)
    lines = [f"  # {text}\n  {command} {words}" for words, text in examples]
    return "\n".join(["examples:", *lines]) if lines else ""


def _add_options(group: Any, options: Iterable[Option], values: Mapping[str, object]) -> None:
    for option in options:
        value = values.get(option.name, option.default)
        default = "" if value in (None, ()) else f" (default: {format_value(value)})"
        text = f"{option.text}{default}".replace("%", "%%")
        if option.default is False:  # a switch is given without a value
            group.add_argument(f"--{option.name}", action="store_true", help=text)
        else:
            kind = f"{{{','.join(option.choices)}}}" if option.choices else _name_kind(option)
            group.add_argument(f"--{option.name}", metavar=kind, help=text)


def _name_kind(option: Option) -> str:
    """Return the kind of an option's values, such as NUMBER."""
    args = [arg for arg in typing.get_args(option.hint) if arg is not types.NoneType]
    if typing.get_origin(option.hint) is tuple:
        return f"{_KINDS[args[0]]},..."
    return _KINDS[args[0] if args else option.hint]


def format_value(value: object) -> str:
    """Return a value as the command line takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(format_value, value))
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
