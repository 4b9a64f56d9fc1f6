"""Numbers and poses in the attributes of a robot description's elements."""

import math
import re
from pathlib import Path
from typing import Any
from xml.dom.minidom import Element

from envs.robots.urdf.elements import find_child
from envs.robots.urdf.tree import FAR, Pose
from td3_robot.errors import ConfigError

LARGEST = 1000.0  # [m] of a shape
_ROUNDING = 1e-3  # how far from 1 the length of a unit vector may be: "0.707 0.707 0" is meant well
_FREE = {"name", "link", "joint", "type", "filename"}  # attributes that hold names


class AttributeReader:
    """A reader of attributes, whose errors begin with the name of the file."""

    def __init__(self, path: Path):
        self._path = path

    def make_error(self, message: str) -> ConfigError:
        """Return the error of a message: one line that begins with the file's path."""
        return ConfigError(f"{self._path}: {' '.join(message.split())}")

    def read_name(self, element: Element) -> str:
        """Read the name of a link or joint."""
        if not (name := element.getAttribute("name")):
            raise self.make_error(f"a <{element.tagName}> has no name")
        return name

    def read_number(self, element: Element, key: str, where: str) -> float:
        """Read one finite number."""
        return self.read_numbers(element, key, 1, where)[0]

    def read_optional(self, element: Element | None, key: str, where: str) -> float | None:
        """Read one finite number; None without such an attribute or element."""
        if element is None or not element.hasAttribute(key):
            return None
        return self.read_number(element, key, where)

    def read_numbers(self, element: Element, key: str, count: int, where: str) -> tuple[Any, ...]:
        """Read so many finite numbers."""
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

    def read_size(self, element: Element, key: str, count: int, where: str) -> tuple[Any, ...]:
        """Read so many lengths of a shape [m]."""
        size = self.read_numbers(element, key, count, where)
        if min(size) < 0.0 or max(size) > LARGEST:
            limits = f"must not be negative and at most {LARGEST:g} m"
            raise self.make_error(f"{where}: {key} {limits}, got {element.getAttribute(key)!r}")
        return size

    def read_unit(self, element: Element, key: str, count: int, where: str) -> tuple[Any, ...]:
        """Read so many numbers of length 1, and make that length exact.

        Raises:
            ConfigError: their length is not 1.
        """
        values = self.read_numbers(element, key, count, where)
        length = math.hypot(*values)
        if abs(length - 1.0) > _ROUNDING:
            what = f"the {element.tagName}" if key == "xyz" else f"{key} of <{element.tagName}>"
            unit = "" if length == 0 else f", here {' '.join(f'{x / length:.6g}' for x in values)}"
            raise self.make_error(
                f"{where}: {what} {element.getAttribute(key)!r} has length {length:g}, not 1{unit}"
            )
        return tuple(value / length for value in values)

    def read_pose(self, element: Element, where: str) -> Pose:
        """Read the <origin> of an element; the identity without one."""
        origin = find_child(element, "origin")
        if origin is None:
            return Pose()
        given: dict[str, Any] = {
            key: self.read_numbers(origin, key, 3, where)
            for key in ("xyz", "rpy")
            if origin.hasAttribute(key)
        }
        if origin.hasAttribute("quat_xyzw"):
            if "rpy" in given:
                raise self.make_error(f"{where}: <origin> has both rpy and quat_xyzw; one is taken")
            pose = Pose.from_quaternion(self.read_unit(origin, "quat_xyzw", 4, where), **given)
        else:
            pose = Pose(**given)
        if max(map(abs, pose.xyz)) > FAR:
            far = f"{origin.getAttribute('xyz')!r}, farther than the {FAR:g} m that can be resolved"
            raise self.make_error(f"{where}: xyz of <origin> is {far}")
        return pose

    def check_values(self, element: Element, where: str) -> None:
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
