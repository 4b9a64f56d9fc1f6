"""Read a .urdf or .xacro file into a Tree."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.dom.minidom import Element

import numpy as np

from envs.robots.urdf.elements import find_child, find_children, iter_elements, parse_root
from envs.robots.urdf.ros_packages import RosPackages
from envs.robots.urdf.tree import (
    FAR,
    MOVING,
    Inertial,
    Joint,
    Link,
    Mimic,
    Pose,
    Shape,
    Tree,
    make_tree,
)
from envs.robots.urdf.xacro_files import expand_xacro
from td3_robot.errors import ConfigError, not_none, unknown

_MAX_BYTES = 10_000_000
_MESHES = (".stl", ".dae", ".obj", ".ply", ".glb", ".gltf")
LARGEST = 1000.0  # [m] of a shape
_AXIS_ROUNDING = 1e-3  # how far from 1 the length of an axis may be: "0.707 0.707 0" is meant well
_FREE = {"name", "link", "joint", "type", "filename"}  # attributes that hold names


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
        raise ConfigError(f"{path}: a robot description ends in .urdf or .xacro")
    content = _read_content(path)
    if path.suffix == ".xacro":
        content = expand_xacro(path, packages, arguments).encode()
    elif arguments:
        raise ConfigError(f"{path}: only a .xacro file takes arguments, got {', '.join(arguments)}")
    return _Reader(path, RosPackages(path, packages)).read_tree(content)


def _read_content(path: Path) -> bytes:
    if os.path.exists(path) and not os.path.isfile(
        path
    ):  # a folder, or a pipe that would be waited for
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
        self._materials: dict[str, tuple[float, ...]] = {}

    def make_error(self, message: str) -> ConfigError:
        return ConfigError(f"{self._path}: {' '.join(message.split())}")

    def read_tree(self, content: bytes) -> Tree:
        robot = self._read_root(content)
        for material in find_children(robot, "material"):
            if color := find_child(material, "color"):
                self._materials[material.getAttribute("name")] = self._read_color(color)
        links = [self._read_link(element) for element in find_children(robot, "link")]
        joints = [self._read_joint(element) for element in find_children(robot, "joint")]
        return make_tree(str(self._path), robot.getAttribute("name"), links, joints)

    def _read_root(self, content: bytes) -> Element:
        robot = parse_root(content, str(self._path))
        if robot.tagName != "robot":
            raise self.make_error(f"has the root element <{robot.tagName}>, expected <robot>")
        for element in robot.getElementsByTagName("*"):
            if element.tagName.startswith("xacro:"):
                raise self.make_error(f"has <{element.tagName}>, which only a .xacro file may have")
        return robot

    def _read_link(self, element: Element) -> Link:
        name = self._read_name(element)
        where = f"link {name!r}"
        self._check_values(element, where)

        def read_shapes(tag):
            return tuple(self._read_shape(inner, where) for inner in find_children(element, tag))

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
            or (kg := self._read_number(mass, "value", where)) == 0.0
        ):
            return None
        xx, yy, zz, xy, xz, yz = (
            self._read_number(inertia, key, where) if inertia.hasAttribute(key) else 0.0
            for key in ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
        )
        T = self._read_pose(element, where).T
        matrix = T[:3, :3] @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ T[:3, :3].T
        return Inertial(kg, tuple(T[:3, 3].tolist()), tuple(map(tuple, matrix.tolist())))

    def _read_shape(self, element: Element, where: str) -> Shape:
        geometry = find_child(element, "geometry")
        bodies = [body for body in iter_elements(geometry)] if geometry else []
        if len(bodies) != 1:
            found = (
                f", not {' and '.join(f'<{body.tagName}>' for body in bodies)}" if bodies else ""
            )
            found += "; <material> belongs beside <geometry>" if "<material>" in found else ""
            raise self.make_error(
                f"{where}: a <{element.tagName}> needs a <geometry> with one shape{found}"
            )
        body = bodies[0]
        where = f"{where}, <{bodies[0].tagName}>"
        pose = self._read_pose(element, where)
        color = self._read_material(find_child(element, "material"))
        match body.tagName:
            case "box":
                return Shape("box", self._read_size(body, "size", 3, where), pose, color=color)
            case "cylinder":
                size = self._read_size(body, "radius", 1, where) + self._read_size(
                    body, "length", 1, where
                )
                return Shape("cylinder", size, pose, color=color)
            case "sphere":
                return Shape("sphere", self._read_size(body, "radius", 1, where), pose, color=color)
            case "mesh":
                scale = (
                    self._read_numbers(body, "scale", 3, where)
                    if body.hasAttribute("scale")
                    else (1.0, 1.0, 1.0)
                )
                return Shape(
                    "mesh",
                    scale,
                    pose,
                    self._find_mesh(body.getAttribute("filename"), where),
                    color,
                )
        raise self.make_error(
            str(unknown(f"shape in {where}", body.tagName, ("box", "cylinder", "sphere", "mesh")))
        )

    def _read_size(self, element: Element, key: str, count: int, where: str) -> tuple[Any, ...]:
        size = self._read_numbers(element, key, count, where)
        if min(size) < 0.0 or max(size) > LARGEST:
            limits = f"must not be negative and at most {LARGEST:g} m"
            raise self.make_error(f"{where}: {key} {limits}, got {element.getAttribute(key)!r}")
        return size

    def _find_mesh(self, uri: str, where: str) -> Path:
        """Find the mesh file of a URI, or of a path relative to the description."""
        scheme, _, rest = uri.rpartition("://")
        if scheme == "package":
            package, _, inner = rest.partition("/")
            file = self._packages.find(package) / inner
        elif scheme in ("", "file"):
            file = self._path.resolve().parent / rest
        else:
            raise self.make_error(
                f"{where}: the mesh {uri!r} is neither a file nor a package:// address"
            )
        if file.suffix.lower() not in _MESHES:
            raise self.make_error(f"{where}: the mesh {uri!r} must be one of {', '.join(_MESHES)}")
        if not os.path.isfile(file):
            raise self.make_error(f"{where}: the mesh {uri!r} does not exist; looked for {file}")
        return file.resolve()

    def _read_material(self, element: Element | None) -> tuple[float, ...] | None:
        if element is None:
            return None
        color = find_child(element, "color")
        return (
            self._read_color(color) if color else self._materials.get(element.getAttribute("name"))
        )

    def _read_color(self, element: Element) -> tuple[float, ...]:
        rgba = self._read_numbers(element, "rgba", 4, "a material")
        return tuple(min(max(value, 0.0), 1.0) for value in rgba)

    def _read_joint(self, element: Element) -> Joint:
        name = self._read_name(element)
        kind = element.getAttribute("type")
        where = f"joint {name!r}"
        if kind not in (*MOVING, "fixed"):
            raise self.make_error(str(unknown(f"type of {where}", kind, (*MOVING, "fixed"))))
        self._check_values(element, where)
        ends = {role: find_child(element, role) for role in ("parent", "child")}
        if missing := [
            role for role, end in ends.items() if end is None or not end.getAttribute("link")
        ]:
            raise self.make_error(f"{where} has no <{missing[0]} link=...>")
        names: dict[str, Any] = {
            role: not_none(end).getAttribute("link") for role, end in ends.items()
        }
        if kind == "fixed":
            return Joint(name, kind, **names, pose=self._read_pose(element, where))
        limit = find_child(element, "limit")
        mimic = find_child(element, "mimic")

        def get(key):
            return (
                self._read_number(limit, key, where) if limit and limit.hasAttribute(key) else None
            )

        lower = get("lower")
        upper = get("upper")
        if limit and (lower is None) != (
            upper is None
        ):  # the format's default for the one left out
            lower = lower or 0.0
            upper = upper or 0.0
        if kind != "continuous" and lower is not None and upper is not None and lower > upper:
            raise self.make_error(f"{where}: lower limit {lower:g} is above upper limit {upper:g}")
        return Joint(
            name,
            kind,
            **names,
            pose=self._read_pose(element, where),
            axis=self._read_axis(find_child(element, "axis"), where),
            lower=lower,
            upper=upper,
            velocity=get("velocity"),
            effort=get("effort"),
            mimic=self._read_mimic(mimic, where) if mimic else None,
        )

    def _read_axis(self, element: Element | None, where: str) -> tuple[float, float, float]:
        if element is None:
            return (1.0, 0.0, 0.0)  # the format's default
        x, y, z = axis = self._read_numbers(element, "xyz", 3, where)
        length = math.hypot(*axis)
        if abs(length - 1.0) > _AXIS_ROUNDING:
            unit = "" if length == 0 else f", here {' '.join(f'{x / length:.6g}' for x in axis)}"
            raise self.make_error(
                f"{where}: the axis {element.getAttribute('xyz')!r} has length {length:g}, not "
                f"1{unit}"
            )
        return x / length, y / length, z / length

    def _read_mimic(self, element: Element, where: str) -> Mimic:
        def get(key, default):
            return self._read_number(element, key, where) if element.hasAttribute(key) else default

        return Mimic(element.getAttribute("joint"), get("multiplier", 1.0), get("offset", 0.0))

    def _read_pose(self, element: Element, where: str) -> Pose:
        origin = find_child(element, "origin")
        if origin is None:
            return Pose()
        given: dict[str, Any] = {
            key: self._read_numbers(origin, key, 3, where)
            for key in ("xyz", "rpy")
            if origin.hasAttribute(key)
        }
        pose = Pose(**given)
        if max(map(abs, pose.xyz)) > FAR:
            far = f"{origin.getAttribute('xyz')!r}, farther than the {FAR:g} m that can be resolved"
            raise self.make_error(f"{where}: xyz of <origin> is {far}")
        return pose

    def _read_name(self, element: Element) -> str:
        if not (name := element.getAttribute("name")):
            raise self.make_error(f"a <{element.tagName}> has no name")
        return name

    def _read_number(self, element: Element, key: str, where: str) -> float:
        return self._read_numbers(element, key, 1, where)[0]

    def _read_numbers(self, element: Element, key: str, count: int, where: str) -> tuple[Any, ...]:
        text = element.getAttribute(key)
        try:
            values = tuple(map(_parse_float, text.split()))
        except ValueError:
            values = ()
        if len(values) != count:
            what = "a number" if count == 1 else f"{count} numbers"
            raise self.make_error(
                f"{where}: {key} of <{element.tagName}> must be {what}, got {text!r}"
            )
        if not all(map(math.isfinite, values)):
            raise self.make_error(
                f"{where}: {key} of <{element.tagName}> must be finite, got {text!r}"
            )
        return values

    def _check_values(self, element: Element, where: str) -> None:
        """Check that no value of an element, even an unused one, is infinite or left to xacro."""
        for inner in (element, *element.getElementsByTagName("*")):
            for key, text in inner.attributes.items():
                if "$(" in text or "${" in text:
                    how = "which is for xacro to work out: name the file .xacro, or expand it"
                    raise self.make_error(f"{where}: {key} of <{inner.tagName}> is {text!r}, {how}")
                if key not in _FREE and re.search(
                    r"(^|\s)[+-]?(nan|inf|infinity)(\s|$)", text, re.IGNORECASE
                ):
                    raise self.make_error(
                        f"{where}: {key} of <{inner.tagName}> must be finite, got {text!r}"
                    )


def _parse_float(text: str) -> float:
    if "_" in text:  # Python takes 1_000 for a number
        raise ValueError(text)
    return float(text)
