"""Read a .urdf or .xacro file into a Tree."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.dom.minidom import Element

import numpy as np

from envs.robots.urdf.attributes import AttributeReader
from envs.robots.urdf.elements import find_child, find_children, parse_root
from envs.robots.urdf.format import check_names
from envs.robots.urdf.ros_packages import RosPackages
from envs.robots.urdf.shapes import ShapeReader
from envs.robots.urdf.tree import MOVING, Inertial, Joint, Link, Mimic, Tree, make_tree
from envs.robots.urdf.xacro_files import expand_xacro
from td3_robot.errors import ConfigError, not_none, unknown

_MAX_BYTES = 10_000_000


def read_urdf(
    path: str | Path,
    packages: Mapping[str, str | Path] | None = None,
    arguments: Mapping[str, object] | None = None,
) -> Tree:
    """Read and check a robot description.

    Args:
        path: a .urdf or .xacro file.
        packages: ROS package name -> folder, for packages that are not found by themselves (see
            `RosPackages`).
        arguments: values of a xacro file's <xacro:arg>s.

    Raises:
        ConfigError: what is wrong with it, in one line that begins with the path.
    """
    path = Path(path)
    if path.suffix not in (".urdf", ".xacro"):
        raise ConfigError(f"{path}: a robot description ends in .urdf or .xacro, MJCF in .xml")
    content = _read_content(path)
    if path.suffix == ".xacro":
        content = expand_xacro(path, packages, arguments).encode()
    elif arguments:
        raise ConfigError(f"{path}: only a .xacro file takes arguments, got {', '.join(arguments)}")
    return _Reader(path, RosPackages(path, packages)).read_tree(content)


def _read_content(path: Path) -> bytes:
    # a folder, or a pipe that would be waited for
    if os.path.exists(path) and not os.path.isfile(path):
        raise ConfigError(f"{path}: is no file")
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    if len(content) > _MAX_BYTES:
        raise ConfigError(
            f"{path}: has more than {_MAX_BYTES // 1_000_000} MB; a robot description is smaller"
        )
    if not content.strip():
        raise ConfigError(f"{path}: is empty")
    return content


class _Reader:
    """A reader of one file's elements into dataclasses."""

    def __init__(self, path: Path, packages: RosPackages):
        self._path = path
        self._packages = packages
        self._values = AttributeReader(path)
        self._notices: list[str] = []

    def read_tree(self, content: bytes) -> Tree:
        robot = self._read_root(content)
        self._notices += check_names(robot, self._values.make_error)
        shapes = ShapeReader(self._path, self._packages, self._values, robot)
        links = [self._read_link(element, shapes) for element in find_children(robot, "link")]
        joints = [self._read_joint(element) for element in find_children(robot, "joint")]
        name = robot.getAttribute("name")
        return make_tree(str(self._path), name, links, joints, self._notices)

    def _read_root(self, content: bytes) -> Element:
        robot = parse_root(content, str(self._path))
        if robot.tagName != "robot":
            raise self._values.make_error(
                f"has the root element <{robot.tagName}>, expected <robot>"
            )
        for element in robot.getElementsByTagName("*"):
            if element.tagName.startswith("xacro:"):
                raise self._values.make_error(
                    f"has <{element.tagName}>, which only a .xacro file may have"
                )
        return robot

    def _read_link(self, element: Element, shapes: ShapeReader) -> Link:
        name = self._values.read_name(element)
        where = f"link {name!r}"
        self._values.check_values(element, where)

        def read_shapes(tag):
            return tuple(shapes.read_shape(inner, where) for inner in find_children(element, tag))

        return Link(
            name,
            read_shapes("visual"),
            read_shapes("collision"),
            self._read_inertial(find_child(element, "inertial"), where),
        )

    def _read_inertial(self, element: Element | None, where: str) -> Inertial | None:
        """Read the inertia of a link; None without a mass. A physics engine judges its values."""
        mass, inertia = (element and find_child(element, tag) for tag in ("mass", "inertia"))
        if (
            element is None
            or mass is None
            or inertia is None
            or (kg := self._values.read_number(mass, "value", where)) == 0.0
        ):
            return None
        xx, yy, zz, xy, xz, yz = (
            self._values.read_optional(inertia, key, where) or 0.0
            for key in ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
        )
        T = self._values.read_pose(element, where).T
        matrix = T[:3, :3] @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ T[:3, :3].T
        return Inertial(kg, tuple(T[:3, 3].tolist()), tuple(map(tuple, matrix.tolist())))

    def _read_joint(self, element: Element) -> Joint:
        name = self._values.read_name(element)
        kind = element.getAttribute("type")
        where = f"joint {name!r}"
        if kind not in (*MOVING, "fixed"):
            raise self._values.make_error(
                str(unknown(f"type of {where}", kind, (*MOVING, "fixed")))
            )
        self._values.check_values(element, where)
        ends = {role: find_child(element, role) for role in ("parent", "child")}
        if missing := [
            role for role, end in ends.items() if end is None or not end.getAttribute("link")
        ]:
            raise self._values.make_error(f"{where} has no <{missing[0]} link=...>")
        names: dict[str, Any] = {
            role: not_none(end).getAttribute("link") for role, end in ends.items()
        }
        pose = self._values.read_pose(element, where)
        if kind == "fixed":
            return Joint(name, kind, **names, pose=pose)
        limit = find_child(element, "limit")
        mimic = find_child(element, "mimic")
        lower, upper = self._read_range(element, kind, where)
        return Joint(
            name,
            kind,
            **names,
            pose=pose,
            axis=self._read_axis(find_child(element, "axis"), where),
            lower=lower,
            upper=upper,
            velocity=self._values.read_optional(limit, "velocity", where),
            effort=self._values.read_optional(limit, "effort", where),
            acceleration=self._read_least(limit, ("acceleration", "deceleration"), where),
            jerk=self._read_least(limit, ("jerk",), where),
            mimic=self._read_mimic(mimic, where) if mimic else None,
        )

    def _read_range(
        self, element: Element, kind: str, where: str
    ) -> tuple[float | None, float | None]:
        """Read the position limits of a joint: those of <limit>, or soft ones further in."""
        limit = find_child(element, "limit")
        lower = self._values.read_optional(limit, "lower", where)
        upper = self._values.read_optional(limit, "upper", where)
        if limit and (lower is None) != (upper is None):
            lower = lower or 0.0  # the format's default for the one left out
            upper = upper or 0.0
        if kind != "continuous" and lower is not None and upper is not None:
            if lower > upper:
                raise self._values.make_error(
                    f"{where}: lower limit {lower:g} is above upper limit {upper:g}"
                )
            return self._hold_soft_limits(element, lower, upper, where)
        low, high = self._read_soft_limits(element, where)
        if low or high:
            self._notices.append(f"{where}: its soft limits are not held, since it has no limits")
        elif kind == "continuous" and (lower or upper):
            self._notices.append(f"{where}: its position limits are not held: it is continuous")
        return lower, upper

    def _read_soft_limits(self, element: Element, where: str) -> tuple[float | None, float | None]:
        """Read the positions at which the joint's safety controller brakes."""
        safety = find_child(element, "safety_controller")
        low = self._values.read_optional(safety, "soft_lower_limit", where)
        high = self._values.read_optional(safety, "soft_upper_limit", where)
        return low, high

    def _hold_soft_limits(
        self, element: Element, lower: float, upper: float, where: str
    ) -> tuple[float, float]:
        """Narrow position limits to those at which the joint's safety controller brakes."""
        low, high = self._read_soft_limits(element, where)
        if not low and not high:  # 0 and 0, the format's defaults, stand for none
            return lower, upper
        least = lower if low is None else max(lower, low)
        most = upper if high is None else min(upper, high)
        if least < most:
            return least, most
        self._notices.append(
            f"{where}: its soft limits leave nothing of {lower:g} to {upper:g} and are not held"
        )
        return lower, upper

    def _read_least(self, limit: Element | None, keys: tuple[str, ...], where: str) -> float | None:
        """Read the least of some limits; 0 stands for none.

        Raises:
            ConfigError: one is negative.
        """
        found = [self._values.read_optional(limit, key, where) for key in keys]
        given = [value for value in found if value]
        if given and min(given) < 0.0:
            raise self._values.make_error(
                f"{where}: {' and '.join(keys)} of <limit> must not be negative, got {min(given):g}"
            )
        return min(given, default=None)

    def _read_axis(self, element: Element | None, where: str) -> tuple[float, float, float]:
        if element is None:
            return (1.0, 0.0, 0.0)  # the format's default
        x, y, z = self._values.read_unit(element, "xyz", 3, where)
        return x, y, z

    def _read_mimic(self, element: Element, where: str) -> Mimic:
        multiplier = self._values.read_optional(element, "multiplier", where)
        offset = self._values.read_optional(element, "offset", where)
        return Mimic(
            element.getAttribute("joint"), 1.0 if multiplier is None else multiplier, offset or 0.0
        )
