"""Registry of tasks: their names, classes and YAML files of constants."""

import dataclasses
import functools
import importlib
import math
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from envs.config.yaml_values import CONFIGS, read_values
from envs.tasks.task import Task
from td3_robot.errors import ConfigError, unknown
from td3_robot.legacy import find_old_names

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


def list_tasks() -> list[str]:
    """List the names of all registered tasks."""
    _load_own()
    return sorted(_tasks)


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
        raise unknown("task", name, list_tasks())
    return _tasks[name][0]


def find_task_name(task: Task) -> str:
    """Return the registered name of a task, or the name of its class."""
    return next(
        (name for name, (cls, _) in _tasks.items() if cls is type(task)), type(task).__name__
    )


def make_task(name: str) -> Task:
    """Build a task with the constants of its file: its fields and no others, none negative.

    Raises:
        ConfigError: no such task, or a constant that is missing, unknown or not such a number.
    """
    cls = find_task_class(name)
    known = dataclasses.fields(cls)
    kinds = get_type_hints(cls)  # also of a file whose annotations are text
    fields = {field.name: kinds[field.name] for field in known}
    values = {
        field.name: field.default for field in known if field.default is not dataclasses.MISSING
    }
    values |= read_values(_tasks[name][1])
    for key in values:
        if key not in fields:
            raise unknown(f"constant of task {name!r}", key, fields)
    constants = {
        key: _check_number(name, key, kind, values.get(key)) for key, kind in fields.items()
    }
    for key in ("dt", "horizon", "tolerance"):
        if constants[key] == 0:
            raise ConfigError(f"task {name!r}: {key} must be positive, got 0")
    return cls(**constants)


def _check_number(task: str, key: str, kind: Any, value: object) -> Any:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 0 <= value < math.inf
        or (kind is int and value != int(value))
    ):
        raise ConfigError(f"task {task!r}: {key} must be a number and not negative, got {value!r}")
    return kind(value)


__getattr__ = find_old_names(__name__)
