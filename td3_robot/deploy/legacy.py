"""Old names of this package: they keep working, and a warning names the new ones."""

import importlib
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

NAMES = {  # of td3_robot.deploy: old name -> new name
    "Foresight": "LatencyCompensator",
    "measured_latency": "measure_latency",
}
MOVED = {  # old module -> {name: its dotted path now}
    "td3_robot.deploy.runtime.control_loop": {
        "wait_for_calm_start": "td3_robot.deploy.runtime.calm_start.wait_for_calm_start"
    }
}


def warn_renamed(old: str, new: str) -> None:
    """Warn whoever used an old name, two calls up, of the new one."""
    warnings.warn(f"{old} is now {new}", FutureWarning, stacklevel=3)


def find_moved(module: str, name: str) -> Any:
    """Return what a module had under a name, from the module that has it now.

    Raises:
        AttributeError: the module never had that name.
    """
    new = MOVED[module].get(name)
    if new is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warn_renamed(f"{module}.{name}", new)
    home, _, attribute = new.rpartition(".")
    return getattr(importlib.import_module(home), attribute)


class _OldName:
    """An old attribute of a class; reads the new one."""

    def __init__(self, old: str, new: str):
        self._old = old
        self._new = new

    def __get__(self, instance: object, owner: type) -> Any:
        warn_renamed(self._old, self._new)
        return getattr(owner if instance is None else instance, self._new)


def keep_old_names(**renamed: str) -> Callable[[type[T]], type[T]]:
    """Decorate a class whose attributes were renamed: old name = new name."""

    def decorate(cls: type[T]) -> type[T]:
        for old, new in renamed.items():
            setattr(cls, old, _OldName(f"{cls.__name__}.{old}", new))
        return cls

    return decorate
