"""Parse the scripts' command lines and the configuration files that they name.

Later wins: defaults of the dataclasses < the preset < `--config FILE` < flags. The environment is
not known here: the scripts hand in its options, a dataclass (`Environment`), which stand next to
the learner's own on the command line and in files.
"""

import contextlib
import dataclasses
import functools
import operator
import os
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from td3_robot.checkpoint import RUNS, find
from td3_robot.config.field import iter_options, option
from td3_robot.config.help_text import HELP, HELP_ALL
from td3_robot.config.run import Config
from td3_robot.config.schema import OldNames, build, make_schema
from td3_robot.errors import ConfigError, Td3RobotError, unknown
from td3_robot.utils.console import get_program, warn
from td3_robot.utils.device import resolve_device
from td3_robot.utils.yaml_file import write_yaml

CONFIG_NAME = "config.yaml"  # in a run folder

Values = dict[str, object]  # option -> value


class Environment(Protocol):
    """A frozen dataclass of an environment's options, see td3_robot/config/field.py."""

    @staticmethod
    def find_defaults(values: Values) -> Values:
        """Return the defaults that follow from these options; a preset wins over them."""
        ...

    @staticmethod
    def find_preset(values: Values) -> tuple[str, Path | None]:
        """Return a name for the environment of these options, and its preset's file or None."""
        ...

    @staticmethod
    def find_files(values: Values, folder: Path) -> Values:
        """Return the options of the run in `folder` with paths that hold here."""
        ...


E = TypeVar("E", bound=Environment)
Flags = TypeVar("Flags")


@dataclass(frozen=True)
class TrainArguments:
    """The parsed command line of `train.py`.

    Attributes:
        config: The resolved configuration of the learner; its device is available.
        environment: The environment's options, an instance of the class handed in.
        flags: The script's own flags, an instance of the class handed in.
        resume: Folder of the run to continue, or None for a new run.
        notes: Lines to print: older names that were used, and defaults that were changed.
    """

    config: Config
    environment: Any
    flags: Any
    resume: Path | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Start:
    """Start of a training.

    A run takes its options from a preset, a file or an earlier run, and flags win over them all.

    Attributes:
        config: YAML file of options; flags win over it.
        resume: Name or folder of a run to continue with its own configuration; flags win over it.
    """

    config: Path | None = option(None, basic=True)
    resume: str | None = option(None, basic=True)


def parse_train(argv: list[str], environment: type[Environment], flags: type) -> TrainArguments:
    """Parse the command line of `train.py`, and read the configuration files that it leads to.

    Args:
        argv: the words after the script's name.
        environment: the class of the environment's options.
        flags: a dataclass of the script's own flags, which files do not have.

    Raises:
        ConfigError, CheckpointError: anything wrong, in one line.
        SystemExit: after --help and --help-all.
    """
    known = make_schema(get_program("train"), "Train a policy.", environment, _Start, flags, Config)
    if asked_help := (HELP | HELP_ALL) & set(argv):
        rest = [word for word in argv if word not in asked_help]
        in_force = _find_values_in_force(rest, environment, flags)
        known.show_help(in_force, whole=bool(asked_help & HELP_ALL))
        raise SystemExit(0)
    old: OldNames = {}
    given = known.read_flags(argv, old)
    start = build(_Start, given)
    file = _read_start_file(start.config, environment, old)
    asked = file | given
    resume = None if start.resume is None else _find_run(start.resume)
    if resume is not None and asked.get("run") is not None:
        raise ConfigError(
            "run and resume exclude each other: leave --run out, since a resumed run stays in its "
            "folder"
        )
    notes: list[str] = []
    if resume is not None:
        base = _read_run_file(resume, environment)
    else:
        base = _read_preset(asked, environment, notes if start.config is None else [], old)
    values = base | asked
    _refuse_command_line_only(environment, _leave_out(values, given))
    config = build(Config, values)
    world = build(environment, values)
    _refuse_idle(config, given)
    if not _is_run_file(start.config, file):
        _refuse_idle(config, _leave_out(file, given), base | file)
    if resume is not None:
        for before, now in ((build(Config, base), config), (build(environment, base), world)):
            _refuse_changes(before, now, f"run {resume.name!r}", " and stays so when it is resumed")
    else:
        # a --steps of the command line wins over a file's start_steps
        chosen = given if "steps" in given else asked
        config = _complete_new_run(config, chosen, notes)
    config = dataclasses.replace(config, device=resolve_device(config.device))
    if old:
        notes.insert(0, "; ".join(old.values()))
    return TrainArguments(config, world, build(flags, given), resume, tuple(notes))


def _read_start_file(path: Path | None, environment: type[Environment], old: OldNames) -> Values:
    """Read the file of `--config`; one that a run wrote gives neither its run's name nor notes."""
    if path is None:
        return {}
    names: OldNames = {}
    values = _read_file(path, environment, names)
    if not _is_run_file(path, values):
        old |= names
        return values
    if Path(str(values.get("run"))).name == path.absolute().parent.name:
        values.pop("run", None)  # that run has its name already
    return values


def _read_run_file(folder: Path, environment: type[Environment]) -> Values:
    """Read the options of the run in `folder`, with paths that hold here."""
    values = _read_file(folder / CONFIG_NAME, environment)
    return environment.find_files(values, Path(os.path.abspath(folder)))


def _leave_out(values: Values, names: Iterable[str]) -> Values:
    """Return the values of all options but the named ones."""
    return {name: value for name, value in values.items() if name not in names}


def _find_values_in_force(argv: list[str], environment: type[Environment], flags: type) -> Values:
    """Return all values that a command line leads to, for --help; none where it is wrong."""
    try:
        found = parse_train(argv, environment, flags)
    except Td3RobotError:
        return {}
    return {
        name: operator.attrgetter(name)(part)
        for part in (found.config, found.environment)
        for name, _ in iter_options(type(part))
    }


def _complete_new_run(config: Config, chosen: Values, notes: list[str]) -> Config:
    """Find the checkpoint that a new run starts from, and leave a short run steps to learn in.

    Args:
        config: all options.
        chosen: those that must stay as they are.
        notes: gets a line where start_steps follows.

    Raises:
        ConfigError, CheckpointError: there is no such checkpoint, or all steps would be random.
    """
    if config.start_from is not None:
        config = dataclasses.replace(config, start_from=find(config.start_from))
    start = config.exploration.start_steps
    steps = config.steps
    if config.dataset is not None or steps > start or "exploration.start_steps" in chosen:
        config.require_steps_to_learn()
        return config
    notes.append(
        f"a short run: exploration.start_steps is {steps // 10}, a tenth of the steps, "
        f"in place of {start}"
    )
    exploration = dataclasses.replace(config.exploration, start_steps=steps // 10)
    return dataclasses.replace(config, exploration=exploration)


def _is_run_file(path: Path | None, values: Values) -> bool:
    """Return whether a run wrote the file: it has all options, also those without effect.

    That of an older run lacks newer options, so it is known by its name and by all parts.
    """
    parts = {
        item.name for item in dataclasses.fields(Config) if dataclasses.is_dataclass(item.type)
    }
    given = {name.partition(".")[0] for name in values}
    return path is not None and path.name == CONFIG_NAME and parts <= given


def _refuse_command_line_only(cls: type, values: Values) -> None:
    """Refuse values in files that only the command line may give.

    Raises:
        ConfigError: names the option and how to give it.
    """
    for name, item in iter_options(cls):
        pattern, what = item.metadata.get("in_file", (None, ""))
        value = values.get(name)
        if pattern and value is not None and not pattern.fullmatch(str(value)):
            shown = reprlib.repr(value)
            raise ConfigError(
                f"{name} {shown} comes from a file and is no {what}; "
                f"if you trust it, say so: --{name} {shown}"
            )


def _refuse_changes(before: object, now: object, owner: str, why: str) -> None:
    """Refuse changes of options that are `fixed`, or of what that function gives of them.

    Raises:
        ConfigError: names an option that stays.
    """
    for name, item in iter_options(type(before)):
        fixed = item.metadata.get("fixed")
        old, new = (operator.attrgetter(name)(part) for part in (before, now))
        if fixed and (old != new if fixed is True else fixed(old) != fixed(new)):
            shown = reprlib.repr(str(old) if isinstance(old, Path) else old)
            raise ConfigError(f"{name} of {owner} is {shown}{why}")


def _refuse_idle(config: Config, asked: Values, without_flags: Values | None = None) -> None:
    """Refuse options without effect that differ from their defaults; a preset may have them.

    Args:
        config: all options.
        asked: those that the user gave.
        without_flags: for those of a file, all options but flags: an option whose switch a flag
            turned off may stay, too.

    Raises:
        ConfigError: names the option and what it needs.
    """
    configs = [config]
    if without_flags is not None:
        with contextlib.suppress(ConfigError):  # a file may be valid only with its flags
            configs.append(build(Config, without_flags))
    for name, item in iter_options(Config):
        for need in item.metadata.get("needs", ()):
            if asked.get(name, item.default) != item.default and not any(map(need.is_met, configs)):
                raise ConfigError(f"{name} has no effect without {need.text}")


def parse_evaluate(argv: list[str], flags: type[Flags]) -> Flags:
    """Parse the command line of `evaluate.py`; its checkpoint exists, its device is available.

    Args:
        argv: the words after the script's name.
        flags: its flags, a dataclass with at least `checkpoint` and `device`.

    Raises:
        ConfigError, CheckpointError: anything wrong, in one line.
        SystemExit: after --help.
    """
    old: OldNames = {}
    schema = make_schema(get_program("evaluate"), "Measure a trained policy.", flags)
    arguments: Any = build(flags, schema.read_flags(argv, old))
    warn("; ".join(old.values()))
    if arguments.checkpoint is None:
        return arguments
    checkpoint = find(arguments.checkpoint)
    device = resolve_device(arguments.device)
    return dataclasses.replace(arguments, checkpoint=checkpoint, device=device)


def load_config(path: str | Path) -> Config:
    """Load the learner's half of a configuration file, such as a preset.

    Options that it lacks have their defaults.

    Raises:
        ConfigError: the file is missing, is no YAML mapping, or holds an unknown option or a wrong
            value.
    """
    return build(Config, _read_file(Path(path)))


def load_run_config(
    checkpoint: Path, environment: type[E], given: Values | None = None, trusted: bool = False
) -> tuple[Config, E]:
    """Load the configuration of a checkpoint's training, from its folder or the one above.

    Args:
        checkpoint: its folder, or prefix.
        environment: the class of the environment's options.
        given: options of the command line, which may hold what a file may not.
        trusted: the environment is not made from it, so that the file may name any.

    Raises:
        ConfigError: there is no such file, it is damaged, or it contradicts `given`.
    """
    given = given or {}
    for folder in (checkpoint, checkpoint.parent):
        if os.path.isfile(folder / CONFIG_NAME):
            values = _read_run_file(folder, environment)
            if not trusted:
                _refuse_command_line_only(environment, _leave_out(values, given))
            trained = build(environment, values)
            for name in given:
                if getattr(trained, name) is None:
                    raise ConfigError(
                        f"{str(checkpoint)!r} was trained without {name}: leave --{name} out"
                    )
            world = build(environment, values | given)
            shown = ", ".join(map(reprlib.repr, given.values()))
            _refuse_changes(trained, world, repr(str(checkpoint)), f", not {shown}")
            return build(Config, values), world
    raise ConfigError(
        f"{str(checkpoint)!r} has no config.yaml, nor has a folder above it: "
        "it is not known what it was trained on"
    )


def save_config(config: Config, path: str | Path, *others: object) -> None:
    """Write a configuration, after the other dataclasses of a run, to one YAML file, atomically.

    Raises:
        ConfigError: the file cannot be written.
    """
    write_yaml(merge_options(*others, config), Path(path))


def merge_options(*parts: Any) -> Values:
    """Merge the options of some dataclasses into one mapping, nested as in a file."""
    return functools.reduce(operator.or_, (dataclasses.asdict(part) for part in parts))


def _read_file(path: Path, environment: type | None = None, old: OldNames | None = None) -> Values:
    """Read a file's options; without the environment's class, those of the learner alone."""
    classes = filter(None, (environment, Config))
    return make_schema("", "", *classes).read_file(path, environment is not None, old)


def _read_preset(
    asked: Values, environment: type[Environment], notes: list[str], old: OldNames
) -> Values:
    """Read the options shipped for an environment; print a note if it has none."""
    defaults = environment.find_defaults(asked)
    name, path = environment.find_preset(asked)
    if path is None:
        notes.append(f"{name} has no preset: what is not given is as in the code of TD3's authors")
        return defaults
    return defaults | _read_file(path, environment, old)


def _find_run(name: str) -> Path:
    """Find the folder of an existing run by its name or else its path.

    Raises:
        ConfigError: there is none.
    """
    for folder in (RUNS / name, Path(name)):  # a folder here may have the run's name and a file
        if os.path.isfile(folder / CONFIG_NAME):
            return folder
    runs: Iterable[str] = [path.parent.name for path in RUNS.glob("*/config.yaml")]
    if runs:
        raise unknown("run", name, runs)
    raise ConfigError(f"cannot resume {name!r}: no run in {os.path.abspath(RUNS)!r}")
