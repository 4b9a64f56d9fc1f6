"""The command lines of the scripts, and the configuration files they lead to.

Later wins: defaults of the dataclasses < the preset < `--config FILE` < flags. What is learned in
is not known here: the scripts hand in its options, a dataclass (`Environment`), which stand beside
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
from td3_robot.config.field import leaves
from td3_robot.config.run import Config
from td3_robot.config.schema import HELP, build, schema
from td3_robot.errors import ConfigError, Td3RobotError, unknown
from td3_robot.utils.device import resolve_device
from td3_robot.utils.yaml_file import write_yaml

CONFIG_NAME = "config.yaml"  # in a run folder


class Environment(Protocol):
    """A frozen dataclass of the options of what is learned in; td3_robot/config/field.py has the
    keys of its metadata.
    """

    @staticmethod
    def preset(asked: dict[str, object]) -> tuple[str, Path | None]:
        """From what the user asked for: what it is called, and the file of options that suit it, or
        None.
        """
        ...


E = TypeVar("E", bound=Environment)
Flags = TypeVar("Flags")


@dataclass(frozen=True)
class TrainArguments:
    """What `train.py` was asked to do.

    Attributes:
        config: The resolved configuration of the learner; its device is one that is there.
        environment: What is learned in, an instance of the class handed in.
        flags: The script's own flags, an instance of the class handed in.
        resume: Folder of the run to continue, or None for a new run.
        notes: Lines for the user: what was not asked for and is done all the same.
    """

    config: Config
    environment: Any
    flags: Any
    resume: Path | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Start:
    """What to start from.

    Attributes:
        config: YAML file of options; flags win over it.
        resume: Name or folder of a run to continue with its own configuration; flags win over it.
    """

    config: Path | None = None
    resume: str | None = None


def parse_train(argv: list[str], environment: type[Environment], flags: type) -> TrainArguments:
    """Read the command line of `train.py`, the configuration files it leads to included.

    Args:
        argv: the words after the script's name.
        environment: the options of what is learned in.
        flags: a dataclass of the script's own flags, which files do not have.

    Raises:
        ConfigError, CheckpointError: anything wrong, in one line.
        SystemExit: after --help.
    """
    known = schema("train.py", "Train a policy.", _Start, flags, environment, Config)
    if HELP & set(argv):
        known.show_help(_in_force([word for word in argv if word not in HELP], environment, flags))
        raise SystemExit(0)
    given = known.read_flags(argv)
    start = build(_Start, given)
    file, own = (
        _read_file(start.config, environment) if start.config else {},
        _is_of_run(start.config),
    )
    if (
        own
        and start.config
        and Path(str(file.get("run"))).name == start.config.absolute().parent.name
    ):
        del file["run"]  # that run has its name already
    asked, notes = file | given, []
    resume = None if start.resume is None else _run_folder(start.resume)
    if resume is not None and asked.get("run") is not None:
        raise ConfigError(
            "run and resume exclude each other: a run that is continued stays in its folder"
        )
    base = (
        _read_file(resume / CONFIG_NAME, environment)
        if resume
        else _preset(asked, environment, notes)
    )
    values = base | asked
    _refuse_untold(
        environment, {name: value for name, value in values.items() if name not in given}
    )
    config, world = build(Config, values), build(environment, values)
    _refuse_idle(config, given)
    if not own:
        _refuse_idle(
            config, {name: value for name, value in file.items() if name not in given}, base | file
        )
    if resume is not None:
        for before, now in ((build(Config, base), config), (build(environment, base), world)):
            _refuse_changes(before, now, f"run {resume.name!r}", " and stays so when it is resumed")
    else:
        config = _begun(config, asked, notes)
    config = dataclasses.replace(config, device=resolve_device(config.device))
    return TrainArguments(config, world, build(flags, given), resume, tuple(notes))


def _in_force(argv: list[str], environment: type[Environment], flags: type) -> dict[str, object]:
    """The options that a command line leads to, for --help; none where it leads nowhere."""
    try:
        found = parse_train(argv, environment, flags)
    except Td3RobotError:
        return {}
    parts = (found.config, found.environment)
    return {
        name: operator.attrgetter(name)(part) for part in parts for name, _ in leaves(type(part))
    }


def _begun(config: Config, asked: dict[str, object], notes: list[str]) -> Config:
    """A new run's configuration: the checkpoint to start from is there, and something will be
    learnt.

    Raises:
        ConfigError, CheckpointError: it is not, or all steps were asked to be random.
    """
    if config.start_from is not None:
        config = dataclasses.replace(config, start_from=find(config.start_from))
    start, steps = config.exploration.start_steps, config.steps
    if config.dataset is not None or steps > start:
        return config
    if "exploration.start_steps" in asked:
        both = f"{steps} <= {start}"
        raise ConfigError(
            f"steps must be above exploration.start_steps, before which nothing is learnt, got {both}"
        )
    notes.append(
        f"a short run: exploration.start_steps is {steps // 10}, a tenth of the steps, in place of {start}"
    )
    return dataclasses.replace(
        config, exploration=dataclasses.replace(config.exploration, start_steps=steps // 10)
    )


def _is_of_run(path: Path | None) -> bool:
    """Whether a file is what a run wrote: all options are in it, those too that wait for their
    switch.
    """
    return path is not None and path.name == CONFIG_NAME


def _refuse_untold(cls: type, values: dict[str, object]) -> None:
    """Hold what files say to what a file may say; the rest a user has to write on the command line.

    Raises:
        ConfigError: a file says more.
    """
    for name, item in leaves(cls):
        pattern, what = item.metadata.get("in_file", (None, ""))
        value = values.get(name)
        if pattern and value is not None and not pattern.fullmatch(str(value)):
            shown = reprlib.repr(value)
            raise ConfigError(
                f"{name} {shown} comes from a file and is no {what}; if you trust it, say so: --{name} {shown}"
            )


def _refuse_changes(before: object, now: object, owner: str, why: str) -> None:
    """Hold a run to what it is about; where `fixed` is a function, to what that gives.

    Raises:
        ConfigError: names an option that stays.
    """
    for name, item in leaves(type(before)):
        fixed = item.metadata.get("fixed")
        old, new = (operator.attrgetter(name)(part) for part in (before, now))
        if fixed and (old != new if fixed is True else fixed(old) != fixed(new)):
            raise ConfigError(f"{name} of {owner} is {reprlib.repr(old)}{why}")


def _refuse_idle(
    config: Config, asked: dict[str, object], without_flags: dict[str, object] | None = None
) -> None:
    """Refuse options that would do nothing, unless they have their default; in a preset they wait
    for their switch.

    Args:
        config: all options.
        asked: those that somebody asked for.
        without_flags: for those of a file, all options but flags: what a flag has switched off
            waits, too.

    Raises:
        ConfigError: names the option and what it needs.
    """
    switched = [config]
    if without_flags is not None:
        with contextlib.suppress(
            ConfigError
        ):  # a file may be whole with the flags that it was written for
            switched.append(build(Config, without_flags))
    for name, item in leaves(Config):
        for need in item.metadata.get("needs", ()):
            if asked.get(name, item.default) != item.default and not any(map(need.there, switched)):
                raise ConfigError(f"{name} has no effect without {need.text}")


def parse_evaluate(argv: list[str], flags: type[Flags]) -> Flags:
    """Read the command line of `evaluate.py`; the checkpoint it names exists, the device is there.

    Args:
        argv: the words after the script's name.
        flags: its flags, a dataclass with at least `checkpoint` and `device`.

    Raises:
        ConfigError, CheckpointError: anything wrong, in one line.
        SystemExit: after --help.
    """
    arguments: Any = build(
        flags, schema("evaluate.py", "Measure a trained policy.", flags).read_flags(argv)
    )
    if arguments.checkpoint is None:
        return arguments
    checkpoint, device = find(arguments.checkpoint), resolve_device(arguments.device)
    return dataclasses.replace(arguments, checkpoint=checkpoint, device=device)


def load_config(path: str | Path) -> Config:
    """The learner's half of a configuration file; what it leaves out has its default.

    Raises:
        ConfigError: the file is missing, is no YAML mapping, or holds an unknown option or a wrong
            value.
    """
    return build(Config, _read_file(Path(path)))


def config_of(
    checkpoint: Path, environment: type[E], told: dict[str, object] | None = None
) -> tuple[Config, E]:
    """What a checkpoint was trained with and in, by the file in its folder or in the one above.

    Args:
        checkpoint: its folder, or prefix.
        environment: the options of what is learned in.
        told: what the user says of it; where the checkpoint alone says it, a file may not say
            everything.

    Raises:
        ConfigError: there is no such file, it is damaged, or it says otherwise than the user.
    """
    for folder in (checkpoint, checkpoint.parent):
        if os.path.isfile(folder / CONFIG_NAME):
            values, told = _read_file(folder / CONFIG_NAME, environment), told or {}
            _refuse_untold(
                environment, {name: value for name, value in values.items() if name not in told}
            )
            world = build(environment, values | told)
            _refuse_changes(
                build(environment, values), world, repr(str(checkpoint)), f", not {_shown(told)}"
            )
            return build(Config, values), world
    raise ConfigError(f"no config.yaml in or above {str(checkpoint)!r} says what it was trained on")


def _shown(told: dict[str, object]) -> str:
    return ", ".join(map(reprlib.repr, told.values()))


def save_config(config: Config, path: str | Path, *others: object) -> None:
    """Write a configuration, after the other dataclasses of a run, as one file of YAML, complete or
    not at all.

    Raises:
        ConfigError: the file cannot be written.
    """
    write_yaml(as_dict(*others, config), Path(path))


def as_dict(*parts: Any) -> dict[str, object]:
    """The options of some dataclasses in one mapping, nested as in a file."""
    return functools.reduce(operator.or_, (dataclasses.asdict(part) for part in parts))


def _read_file(path: Path, environment: type | None = None) -> dict[str, object]:
    """The options in a file; without the environment's class, those of the learner alone."""
    return schema("", "", *filter(None, (environment, Config))).read_file(
        path, whole=environment is not None
    )


def _preset(
    asked: dict[str, object], environment: type[Environment], notes: list[str]
) -> dict[str, object]:
    """The options shipped for what is learned in."""
    name, path = environment.preset(asked)
    if path is None:
        notes.append(f"{name} has no preset: what is not given is as in the code of TD3's authors")
        return {}
    return _read_file(path, environment)


def _run_folder(name: str) -> Path:
    """The folder of an existing run, given by its name or path.

    Raises:
        ConfigError: there is none.
    """
    for folder in (Path(name), RUNS / name):
        if os.path.isfile(folder / CONFIG_NAME):
            return folder
    runs: Iterable[str] = [path.parent.name for path in RUNS.glob("*/config.yaml")]
    raise (
        unknown("run", name, runs)
        if runs
        else ConfigError(f"cannot resume {name!r}: no run in {str(RUNS)!r}")
    )
