"""Registry of tasks: their names, classes and YAML files of constants."""

import dataclasses
import functools
import importlib
import math
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from envs.config.env_options import KINEMATIC
from envs.config.yaml_values import CONFIGS, read_values
from envs.tasks.task import Task
from td3_robot.errors import ConfigError, unknown
from td3_robot.utils.legacy import find_old_names

Kind = TypeVar("Kind", bound=Task)

_tasks: dict[str, tuple[type[Task], Path]] = {}


def register_task(name: str, constants: Path | None = None) -> Callable[[type[Kind]], type[Kind]]:
    """Register a class as the task `name`; a decorator.

    Args:
        constants: YAML file of its values; None: configs/tasks/NAME.yaml.
    """

    def register(cls: type[Kind]) -> type[Kind]:
        _tasks[name] = cls, constants or CONFIGS / "tasks" / f"{name}.yaml"
        return cls

    return register


def list_tasks(engine: str | None = None) -> list[str]:
    """List the names of all registered tasks.

    Args:
        engine: only those that can be done on it; None: all.
    """
    _load_own()
    return sorted(name for name, (cls, _) in _tasks.items() if engine in (None, *cls.engines))


@functools.cache
def _load_own() -> None:
    """Import the modules of this folder, whose tasks register themselves."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"envs.tasks.{module.name}")


def find_task_class(name: str) -> type[Task]:
    """Return the class of a task.

    Raises:
        ConfigError: no such task.
    """
    if name not in list_tasks():
        error = unknown("task", name, list_tasks())
        raise ConfigError(f"{error}; one of your own needs --plugins MODULE, which registers it")
    return _tasks[name][0]


def describe_engine(task: str, engine: str) -> list[str]:
    """Describe in a line, if an engine is without the forces that a task is made for, what to do.

    Raises:
        ConfigError: no such task.
    """
    if engine == find_task_class(task).engines[0] or engine != KINEMATIC:
        return []
    return [
        f"task {task} is made for contact physics, --engine {find_task_class(task).engines[0]}; "
        f"engine {engine} has no forces"
    ]


def find_task_name(task: Task) -> str:
    """Return the registered name of a task, or the name of its class."""
    return next(
        (name for name, (cls, _) in _tasks.items() if cls is type(task)), type(task).__name__
    )


def make_task(name: str) -> Task:
    """Build a task with the constants of its file: its fields and no others.

    A constant is what its annotation says: a number, not negative (`float`, `int`), a word (`str`,
    or one of the words of a `Literal`), true or false (`bool`), or a list (`tuple[float, ...]`).

    Raises:
        ConfigError: no such task, or a constant that is missing, unknown or not of its kind.
    """
    cls = find_task_class(name)
    known = dataclasses.fields(cls)
    kinds = get_type_hints(cls)  # also of a file whose annotations are text
    fields = {field.name: kinds[field.name] for field in known}
    values = {
        field.name: field.default for field in known if field.default is not dataclasses.MISSING
    }
    file = _tasks[name][1]
    values |= read_values(file)
    for key in values:
        if key not in fields:
            raise unknown(f"constant of task {name!r}", key, fields)
    if missing := [key for key in fields if key not in values]:
        raise ConfigError(f"task {name!r}: {file} lacks {', '.join(missing)}")
    constants = {key: _check_constant(name, key, kind, values[key]) for key, kind in fields.items()}
    for key in ("dt", "horizon", "tolerance"):
        if constants[key] == 0:
            raise ConfigError(f"task {name!r}: {key} must be positive, got 0")
    return cls(**constants)


def _check_constant(task: str, key: str, kind: Any, value: object) -> Any:
    """Return a constant as its annotation wants it: a word, true or false, a list, or a number."""
    owner = f"task {task!r}: {key}"
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise unknown(f"{key} of task {task!r}", value, get_args(kind))
        return value
    if kind is str or kind is bool:
        if not isinstance(value, kind):
            wanted = "a word" if kind is str else "true or false"
            raise ConfigError(f"{owner} must be {wanted}, got {value!r}")
        return value
    if get_origin(kind) is tuple:
        return _check_list(owner, get_args(kind), value)
    return _check_number(owner, kind, value)


def _check_list(owner: str, kinds: tuple[Any, ...], value: object) -> tuple[Any, ...]:
    """Return a list as a tuple: `tuple[float, ...]` of any length, `tuple[float, float]` of two."""
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{owner} must be a list, got {value!r}")
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(value) != len(kinds):
        raise ConfigError(f"{owner} must be a list of {len(kinds)}, got {list(value)!r}")
    checked = []
    for kind, item in zip(kinds, value):
        if kind is str and not isinstance(item, str):
            raise ConfigError(f"{owner} must be a list of words, got {item!r}")
        checked.append(item if kind is str else _check_number(owner, kind, item, signed=True))
    return tuple(checked)


def _check_number(owner: str, kind: Any, value: object, signed: bool = False) -> Any:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not (-math.inf if signed else 0) <= value < math.inf
        or not math.isfinite(value)
        or (kind is int and value != int(value))
    ):
        wanted = "numbers" if signed else "a number and not negative"
        raise ConfigError(f"{owner} must be {wanted}, got {value!r}")
    return kind(value)


__getattr__ = find_old_names(__name__)
