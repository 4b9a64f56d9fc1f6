"""Files of a robot description in ROS packages, found without ROS.

Imports the standard library only: the process that expands xacro files loads it as well.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")  # no dots and no slashes: a name, not a path
_PACKAGE_TAG = re.compile(r"<name>\s*([^<\s]+)\s*</name>")
# a folder that holds one of these is taken for a package
_SIGNS = ("package.xml", "urdf", "meshes")
_INNER = ("urdf", "xacro", "robots")  # folders inside a package that hold descriptions
MANIFEST = "package.xml"
# what rospack and colcon do not look into: results of builds, and folders with such a file
_BUILT = {"build", "install", "log", "devel", "node_modules", "__pycache__"}
_IGNORED = {"COLCON_IGNORE", "AMENT_IGNORE", "CATKIN_IGNORE"}
_MAX_FOLDERS = 5000  # that a search looks into
_MAX_DEPTH = 6


class RosPackages:
    """Finds packages as seen from one description file.

    Searched in this order: folders given by name; ROS_PACKAGE_PATH with all that is below its
    folders, and AMENT_PREFIX_PATH; the folders above the file (by the name in their package.xml, or
    by their own); folders beside those; a folder inside the package that the file is in; by the
    name in their package.xml, all packages of the workspace or the repository around the file. Last
    comes the file's own package, since its folder is often renamed when it is downloaded.

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
        if declared:
            self.own = declared[0]
        elif file.parent.name in _INNER:
            self.own = file.parent.parent
        else:
            self.own = file.parent
        self._around: dict[str, Path] | None = None

    def find(self, name: str) -> Path:
        """Find the folder of a package; the file's own package if there is no other."""
        return self.locate(name) or self.own

    def locate(self, name: str) -> Path | None:
        """Find the folder of a package; None if there is none."""
        if name in self._given:
            return self._given[name]
        if not _NAME.fullmatch(name):
            return None
        for folder in _iter_ros_folders(name):
            if folder.is_dir():
                return folder.resolve()
        for parent, declared in self._above.items():
            if name in (declared, parent.name):
                return parent
            beside = (parent / name).resolve()
            if beside.parent == parent and _is_package(beside):
                return beside
            if parent.name == "install":  # of a colcon workspace, isolated or merged
                for shared in (parent / name / "share" / name, parent / "share" / name):
                    if _is_package(shared):
                        return shared.resolve()
        inside = self.own / name
        return inside if inside.is_dir() else self._search_around(name)

    def is_trusted(self, folder: Path) -> bool:
        """Tell if a file may read a package's folder: it looks like a package, or was given."""
        return folder in self._given.values() or _is_package(folder)

    def _search_around(self, name: str) -> Path | None:
        """Search the workspace or the repository around the file's own package."""
        if self._around is None:
            above = (self.own, *self.own.parents)
            roots = [self.own.parent]
            roots += [folder for folder in above if folder.name == "src"]
            roots += [folder for folder in above if (folder / ".git").exists()]
            self._around = {}
            for root in roots:
                if len(root.parts) > 2 and root not in _list_homes():
                    self._around = _crawl(root) | self._around
        return self._around.get(name)


def _list_homes() -> tuple[Path, ...]:
    """List the home folder and those above it."""
    home = Path(os.path.expanduser("~"))  # stays "~" for a user without one
    return home, *home.parents


def _is_package(folder: Path) -> bool:
    """Tell if a folder looks like one package, and is not a home folder."""
    return folder not in _list_homes() and any((folder / sign).exists() for sign in _SIGNS)


def _iter_ros_folders(name: str) -> Iterator[Path]:
    """Yield the folders that a ROS 1 or ROS 2 environment may have for the package."""

    def split(variable):
        return [Path(entry) for entry in os.environ.get(variable, "").split(os.pathsep) if entry]

    for entry in split("ROS_PACKAGE_PATH"):
        yield entry if entry.name == name else entry / name
    for entry in split("AMENT_PREFIX_PATH"):
        yield entry / "share" / name
    for entry in split("ROS_PACKAGE_PATH"):
        if found := _crawl(entry.resolve()).get(name):
            yield found


def _crawl(root: Path) -> dict[str, Path]:
    """Find the packages in a folder, at any depth, by the names in their package.xml.

    As rospack and colcon do: nothing is looked for inside a package, nor in hidden folders and
    results of builds.
    """
    found: dict[str, Path] = {}
    level = [root]
    looked = 0
    for _ in range(_MAX_DEPTH):
        below = []
        for folder in level:
            looked += 1
            if looked > _MAX_FOLDERS:
                return found
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError:
                continue
            names = {entry.name for entry in entries}
            if names & _IGNORED:
                continue
            if MANIFEST in names and (name := _read_package_name(folder)):
                found.setdefault(name, folder.resolve())
                continue
            below += [
                Path(entry.path)
                for entry in entries
                if entry.name not in _BUILT
                and not entry.name.startswith(".")
                and entry.is_dir(follow_symlinks=False)
            ]
        level = below
    return found


def _read_package_name(folder: Path) -> str | None:
    """Read the name in a folder's package.xml; None without one."""
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = _PACKAGE_TAG.search(text)
    return match[1] if match else folder.name
