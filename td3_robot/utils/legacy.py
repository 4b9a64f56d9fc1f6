"""Old import paths and names: they keep working, and a warning names the new ones.

Those of `td3_robot.deploy`, which imports nothing else of ours, are in its own `legacy.py`.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

MODULES = {  # old module -> new module
    "td3_robot.agent": "td3_robot.td3.agent",
    "td3_robot.callbacks": "td3_robot.training.callbacks",
    "td3_robot.collector": "td3_robot.data.collector",
    "td3_robot.offline": "td3_robot.data.offline",
    "td3_robot.source": "td3_robot.data.batch_source",
    "td3_robot.tracking": "td3_robot.loggers.base",
    "td3_robot.trainer": "td3_robot.training.trainer",
}
NAMES: dict[str, dict[str, str]] = {  # new module -> {old name: new name, or its dotted path}
    "td3_robot.data.batch_source": {"Source": "BatchSource"},
    "td3_robot.evaluation": {
        "episode_statistics": "compute_episode_statistics",
        "random_policy": "make_random_policy",
        "rollouts": "iter_rollouts",
    },
    "td3_robot.loggers.base": {
        "CsvLog": "td3_robot.loggers.csv.CsvLog",
        "TensorBoardLog": "td3_robot.loggers.tensorboard.TensorBoardLog",
        "plot_learning_curve": "td3_robot.loggers.learning_curve.plot_learning_curve",
        "read_metrics": "td3_robot.loggers.csv.read_metrics",
    },
    "td3_robot.networks": {"mlps": "td3_robot.networks.mlp.make_mlps"},
}
TD3_ATTRIBUTES = {
    "about": "metadata",
    "disagreement": "compute_disagreement",
    "due": "next_update",
    "explored": "select_exploratory_action",
    "learnt": "actor_trained",
}


class _OldModule(types.ModuleType):
    """An old module: hands on what the new module has."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        target = importlib.import_module(_modules[self.__name__])
        try:
            return getattr(target, name)
        except AttributeError:
            return find_renamed(target.__name__, name)


class _OldModuleFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find old modules. It stands last on `sys.meta_path`, so it costs nothing elsewhere."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _modules:
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        warnings.warn(f"{spec.name} is now {_modules[spec.name]}", FutureWarning, stacklevel=2)
        return _OldModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


_modules: dict[str, str] = {}
_names: dict[str, dict[str, str]] = {}


def register_renames(
    modules: Mapping[str, str], names: Mapping[str, Mapping[str, str]] | None = None
) -> None:
    """Let old modules be imported, and old names be found by `find_renamed`.

    Args:
        modules: old module -> new module.
        names: new module -> {old name: new name}.
    """
    _modules.update(modules)
    for module, renamed in (names or {}).items():
        _names.setdefault(module, {}).update(renamed)
    if not any(isinstance(finder, _OldModuleFinder) for finder in sys.meta_path):
        sys.meta_path.append(_OldModuleFinder())


def find_renamed(module: str, name: str) -> object:
    """Return what an old name of a module means now.

    Raises:
        AttributeError: the module never had that name.
    """
    new = _names.get(module, {}).get(name)
    if new is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warnings.warn(f"{module}.{name} is now {new}", FutureWarning, stacklevel=3)
    home, _, attribute = new.rpartition(".")
    return getattr(importlib.import_module(home or module), attribute)


def find_old_names(module: str) -> Callable[[str], object]:
    """Return a `__getattr__` for a module, by which its old names are found."""
    return functools.partial(find_renamed, module)


class _OldName:
    """An old attribute of a class; reads the new one."""

    def __init__(self, new: str):
        self._new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self._old = f"{owner.__name__}.{name}"

    def __get__(self, instance: object, owner: type) -> Any:
        warnings.warn(f"{self._old} is now {self._new}", FutureWarning, stacklevel=2)
        return getattr(owner if instance is None else instance, self._new)


def keep_old_names(**renamed: str) -> Callable[[type[T]], type[T]]:
    """Decorate a class whose attributes were renamed: old name = new name.

    Reading an old name gives what the new one is. A subclass that defines a method under its old
    name has it under the new one, too.
    """

    def decorate(cls: type[T]) -> type[T]:
        for old, new in renamed.items():
            alias = _OldName(new)
            alias.__set_name__(cls, old)
            setattr(cls, old, alias)

        def adopt_old_methods(subclass: type, **options: object) -> None:
            super(cls, subclass).__init_subclass__(**options)
            for old, new in renamed.items():
                if old in vars(subclass) and new not in vars(subclass):
                    setattr(subclass, new, vars(subclass)[old])
                    warnings.warn(
                        f"{subclass.__name__}.{old} is now {new}", FutureWarning, stacklevel=2
                    )

        cls.__init_subclass__ = classmethod(adopt_old_methods)  # type: ignore[assignment]
        return cls

    return decorate
