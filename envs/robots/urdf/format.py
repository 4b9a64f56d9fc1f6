"""The elements and attributes that URDF defines, and what to do with others.

URDF 1.0: http://wiki.ros.org/urdf/XML; 1.1 (2026) adds quat_xyzw of <origin> and <capsule>, 1.2
adds acceleration, deceleration and jerk of <limit>: https://github.com/ros/urdfdom. What no version
defines is in many files, and most of it does no harm: it is reported. It is refused where it must
be a slip, since the description would then be another than its author meant: any other attribute
of <origin> or <mimic>, and a name that is one letter off one that is missing.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from xml.dom.minidom import Element

from envs.robots.urdf.elements import iter_elements
from td3_robot.errors import ConfigError, unknown

_POSE = ("xyz", "rpy", "quat_xyzw")
_INERTIA = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
_LIMIT = ("lower", "upper", "effort", "velocity", "acceleration", "deceleration", "jerk")
_SAFETY = ("soft_lower_limit", "soft_upper_limit", "k_position", "k_velocity")
SHAPES = ("box", "cylinder", "sphere", "capsule", "mesh")

ATTRIBUTES: dict[str, Collection[str]] = {
    "robot": ("name", "version"),
    "link": ("name", "type"),
    "joint": ("name", "type"),
    "inertial": (),
    "visual": ("name", "group"),
    "collision": ("name", "group"),
    "geometry": ("name",),
    "origin": _POSE,
    "mass": ("value",),
    "inertia": _INERTIA,
    "box": ("size",),
    "cylinder": ("radius", "length"),
    "sphere": ("radius",),
    "capsule": ("radius", "length"),
    "mesh": ("filename", "scale"),
    "material": ("name",),
    "color": ("rgba",),
    "texture": ("filename",),
    "verbose": ("value",),
    "parent": ("link",),
    "child": ("link",),
    "axis": ("xyz",),
    "calibration": ("rising", "falling", "reference_position"),
    "dynamics": ("damping", "friction"),
    "limit": _LIMIT,
    "mimic": ("joint", "multiplier", "offset"),
    "safety_controller": _SAFETY,
}
_JOINT = ("origin", "parent", "child", "axis", "calibration", "dynamics", "limit", "mimic")
CHILDREN: dict[str, Collection[str]] = {
    "robot": ("link", "joint", "material"),
    "link": ("inertial", "visual", "collision"),
    "joint": (*_JOINT, "safety_controller"),
    "inertial": ("origin", "mass", "inertia"),
    "visual": ("origin", "geometry", "material"),
    # a material has no effect on a collision shape, and many files have one there
    "collision": ("origin", "geometry", "material", "verbose"),
    "geometry": SHAPES,
    "material": ("color", "texture"),
}
_SEVERAL = {"link", "joint", "material", "visual", "collision"}  # may stand beside their like
_MEANT = {"origin", "mimic"}  # no attribute of these is without a meaning
# nothing is lost with a slip in these
_UNUSED = frozenset(("calibration", "dynamics", "verbose", "texture"))
_UNUSED_IF_FIXED = _UNUSED | {"axis", "limit", "mimic", "safety_controller"}
_LISTED = 4  # unknown names in a notice


def check_names(robot: Element, make_error: Callable[[str], ConfigError]) -> list[str]:
    """Check the names of a description's elements and attributes; return notices of unknown ones.

    Elements of other programs directly inside <robot> (gazebo, ros2_control, transmission, ...),
    and names with a prefix (drake:acceleration), are theirs and are not looked into.

    Args:
        robot: the root element.
        make_error: makes the error of a message, with the file's name.

    Raises:
        ConfigError: names what must be a slip.
    """
    found: Counter[str] = Counter()
    for element in iter_elements(robot):
        if element.tagName in CHILDREN["robot"]:
            where = f"{element.tagName} {element.getAttribute('name')!r}"
            fixed = element.getAttribute("type") == "fixed"
            unused = _UNUSED_IF_FIXED if fixed else _UNUSED
            found.update(_find_unknown(element, where, unused, make_error))
        elif near := _find_slip(element.tagName, CHILDREN["robot"]):
            raise make_error(f"has <{element.tagName}>, which URDF does not define, for <{near}>")
    if not found:
        return []
    names = [f"{name} ({count} times)" if count > 1 else name for name, count in found.items()]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return [f"ignores what URDF does not define: {', '.join(names[:_LISTED])}{more}"]


def _find_unknown(
    element: Element, where: str, unused: frozenset[str], make_error: Callable[[str], ConfigError]
) -> Iterator[str]:
    """Yield what no version of URDF defines of an element and those inside it."""
    tag = element.tagName
    for name in element.attributes.keys():
        known = ATTRIBUTES[tag]
        if name in known or ":" in name or name == "xmlns":
            continue
        missing = [other for other in known if not element.hasAttribute(other)]
        if tag not in unused and (tag in _MEANT or _find_slip(name, missing)):
            raise make_error(str(unknown(f"attribute of <{tag}> in {where}", name, known)))
        yield f"{name} of <{tag}>"
    tags = [inner.tagName for inner in iter_elements(element)]
    for inner in iter_elements(element):
        name = inner.tagName
        known = CHILDREN.get(tag, ())
        if name in known:
            if name not in _SEVERAL and tag != "geometry" and tags.count(name) > 1:
                raise make_error(f"{where} has {tags.count(name)} <{name}> in a <{tag}>, not one")
            yield from _find_unknown(inner, where, unused, make_error)
        elif ":" not in name and tag != "geometry":  # a shape that is unknown is refused anyway
            missing = [other for other in known if other in _SEVERAL or other not in tags]
            if near := _find_slip(name, missing):
                raise make_error(f"{where} has <{name}>, which URDF does not define, for <{near}>")
            yield f"<{name}> in <{tag}>"


def _find_slip(name: str, known: Collection[str]) -> str | None:
    """Find the name that another was meant to be: in other case or order, or one letter off."""
    for other in known:
        lower = name.lower()
        if lower == other or sorted(lower) == sorted(other) or _is_one_edit(lower, other):
            return other
    return None


def _is_one_edit(first: str, second: str) -> bool:
    """Tell if one letter more, less or other makes one word of another."""
    if abs(len(first) - len(second)) > 1:
        return False
    same = 0
    while same < min(len(first), len(second)) and first[same] == second[same]:
        same += 1
    ends = (first[same:], second[same:])
    return ends[0][1:] == ends[1][1:] or ends[0] == ends[1][1:] or ends[0][1:] == ends[1]
