"""Sources of the models of registered robots and grippers, read without roboticstoolbox."""

import functools
import importlib.util
from pathlib import Path
from typing import Any

from envs.robots.urdf.read import read_urdf
from envs.robots.urdf.tree import Tree
from td3_robot.errors import ConfigError

# Files in the package rtb-data of classes of roboticstoolbox.models, from which version 1.5 reads
# them, and folders of the ROS packages that they name.
_RTB_DATA = "rtbdata"
_RTB_FILES: dict[str, tuple[str, dict[str, str]]] = {
    "Panda": ("qut_frankie_description/robots/panda_arm_hand.urdf.xacro", {}),
    "LBR": (
        "kuka_description/kuka_lbr_iiwa/urdf/lbr_iiwa_14_r820.xacro",
        {"kuka_lbr_iiwa_support": "kuka_description/kuka_lbr_iiwa"},
    ),
    "Puma560": ("unimation_puma560_description/urdf/puma560_robot.urdf.xacro", {}),
    "vx300s": ("trossen_descriptions/urdf/vx300s.urdf.xacro", {}),
    "wx250s": ("trossen_descriptions/urdf/wx250s.urdf.xacro", {}),
}


def read_source(owner: str, source: Any) -> Tree | None:
    """Read the description that a robot's or gripper's file names, without roboticstoolbox.

    Args:
        owner: what the model is for, for example "robot 'lbr'"; errors begin with it.
        source: the file's `model`: the name of a class of roboticstoolbox.models; a mapping {rtb:
            class name, repository: git URL} for a class that fetches its files with git on first
            use; {package: name, urdf: path} for a URDF in an installed package; or {urdf: path} for
            any other, with {xacro: {argument: value}} where it is a xacro file that needs some.

    Returns:
        The description; None where roboticstoolbox has to be asked for it.

    Raises:
        ConfigError: there is no such model, or it is not to be had on this machine.
    """
    if isinstance(source, str):
        source = {"rtb": source}
    keys = set(source) if isinstance(source, dict) else set()
    if keys - {"xacro"} in ({"urdf"}, {"package", "urdf"}):
        return _read_file(owner, source)
    if keys == {"rtb"}:
        return _read_rtb_file(str(source["rtb"]))
    if keys == {"rtb", "repository"}:
        return None
    raise ConfigError(
        f"{owner}: model must be the name of a class of roboticstoolbox.models, or a mapping "
        "with rtb, with rtb and "
        f"repository, with urdf, or with package and urdf, perhaps with xacro, got {source!r}"
    )


def _read_file(owner: str, source: dict[str, Any]) -> Tree:
    path = source["urdf"]
    package = source.get("package")
    xacro = source.get("xacro", {})
    if not isinstance(xacro, dict):
        raise ConfigError(f"{owner}: xacro must map arguments to values, got {xacro!r}")
    if package is None:
        return read_urdf(path, arguments=xacro)
    folder = _find_folder(str(package))
    if folder is None:
        wheel = str(package).replace("_", "-")
        raise ConfigError(
            f"{owner}: its model is in the Python package {wheel}; install it with: pip install "
            f"{wheel}"
        )
    arguments = tuple((key, str(value)) for key, value in xacro.items())
    return _read_package_file(folder / path, arguments=arguments)


def _read_rtb_file(name: str) -> Tree | None:
    """Read the file of a class of roboticstoolbox.models; None where it is not known or missing."""
    folder = _find_folder(_RTB_DATA)
    if folder is None or name not in _RTB_FILES:
        return None
    file, packages = _RTB_FILES[name]
    path = folder / "xacro" / file
    if not path.is_file():
        return None
    places = tuple((key, folder / "xacro" / place) for key, place in packages.items())
    return _read_package_file(path, places)


@functools.cache
def _read_package_file(
    path: Path,
    packages: tuple[tuple[str, Path], ...] = (),
    arguments: tuple[tuple[str, str], ...] = (),
) -> Tree:
    """Read a file of an installed package, once a process, since xacro takes a tenth of a second.

    A user's own files are read each time: they may change meanwhile.
    """
    return read_urdf(path, dict(packages), dict(arguments))


def _find_folder(package: str) -> Path | None:
    """Find the folder of an installed Python package, without importing it."""
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # its parent is missing, or it is no name
        return None
    places = found.submodule_search_locations if found is not None else None
    return Path(places[0]) if places else None
