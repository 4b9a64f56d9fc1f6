"""Old import paths and names: they keep working, and a warning names the new ones."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
import warnings
from collections.abc import Mapping, Sequence

MODULES = {  # old module -> new module
    "td3_robot.agent": "td3_robot.td3.agent",
    "td3_robot.callbacks": "td3_robot.training.callbacks",
    "td3_robot.collector": "td3_robot.data.collector",
    "td3_robot.offline": "td3_robot.data.offline",
    "td3_robot.source": "td3_robot.data.batch_source",
    "td3_robot.tracking": "td3_robot.loggers.base",
    "td3_robot.trainer": "td3_robot.training.trainer",
}
NAMES: dict[str, dict[str, str]] = {  # new module -> {old name: new name}
    "td3_robot.data.batch_source": {"Source": "BatchSource"}
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
    """Return what an old name of a module means now; a module's `__getattr__` may call it.

    Raises:
        AttributeError: the module never had that name.
    """
    new = _names.get(module, {}).get(name)
    if new is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warnings.warn(f"{module}.{name} is now {new}", FutureWarning, stacklevel=3)
    home, _, attribute = new.rpartition(".")
    return getattr(importlib.import_module(home or module), attribute)
