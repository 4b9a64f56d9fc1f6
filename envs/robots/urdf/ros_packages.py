"""Files of a robot description in ROS packages, found without ROS.

Imports the standard library only: the process that expands xacro files loads it as well.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")  # no dots and no slashes: a name, not a path
_PACKAGE_TAG = re.compile(r"<name>\s*([^<\s]+)\s*</name>")
# a folder that holds one of these is taken for a package
_SIGNS = ("package.xml", "urdf", "meshes")
_INNER = ("urdf", "xacro", "robots")  # folders inside a package that hold descriptions


class RosPackages:
    """Finds packages as seen from one description file.

    Searched in this order: folders given by name; ROS_PACKAGE_PATH and AMENT_PREFIX_PATH; the
    folders above the file (by the name in their package.xml, or by their own); folders beside
    those; a folder inside the package that the file is in. Last comes that package itself, since
    its folder is often renamed when it is downloaded.

    Args:
        file: the description file.
        given: package name -> folder.
    """

    def __init__(self, file: Path, given: Mapping[str, str | Path] | None = None):
        file = Path(file).resolve()
        self._given = {name: Path(folder).resolve() for name, folder in (given or {}).items()}
        self._above = {parent: _read_package_name(parent) for parent in file.parents}
        declared = [
            parent
            for parent, name in self._above.items()
            if name is not None and _is_package(parent)
        ]
        inner = file.parent.name in _INNER
        self.own = declared[0] if declared else file.parent.parent if inner else file.parent

    def find(self, name: str) -> Path:
        """Find the folder of a package; the file's own package if there is no other."""
        if name in self._given:
            return self._given[name]
        if not _NAME.fullmatch(name):
            return self.own
        for folder in _list_ros_folders(name):
            if folder.is_dir():
                return folder.resolve()
        for parent, declared in self._above.items():
            if name in (declared, parent.name):
                return parent
            beside = (parent / name).resolve()
            if beside.parent == parent and _is_package(beside):
                return beside
        inside = self.own / name
        return inside if inside.is_dir() else self.own

    def is_trusted(self, folder: Path) -> bool:
        """Tell if a file may read a package's folder: it looks like a package, or was given."""
        return folder in self._given.values() or _is_package(folder)


def _is_package(folder: Path) -> bool:
    """Tell if a folder looks like one package, and is not a home folder."""
    home = Path(os.path.expanduser("~"))  # stays "~" for a user without one
    return folder not in (home, *home.parents) and any((folder / sign).exists() for sign in _SIGNS)


def _list_ros_folders(name: str) -> list[Path]:
    """List the folders that a ROS 1 or ROS 2 environment would have for the package."""

    def split(variable):
        return filter(None, os.environ.get(variable, "").split(os.pathsep))

    ros1 = [
        Path(entry) if Path(entry).name == name else Path(entry, name)
        for entry in split("ROS_PACKAGE_PATH")
    ]
    return ros1 + [Path(entry, "share", name) for entry in split("AMENT_PREFIX_PATH")]


def _read_package_name(folder: Path) -> str | None:
    """Read the name in a folder's package.xml; None without one."""
    try:
        text = (folder / "package.xml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = _PACKAGE_TAG.search(text)
    return match[1] if match else folder.name
