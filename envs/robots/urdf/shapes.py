"""The visual and collision shapes of a robot description."""

import os
from pathlib import Path
from xml.dom.minidom import Element

from envs.robots.urdf.attributes import AttributeReader
from envs.robots.urdf.elements import find_child, find_children, iter_elements
from envs.robots.urdf.format import SHAPES
from envs.robots.urdf.ros_packages import RosPackages
from envs.robots.urdf.tree import Shape
from td3_robot.errors import unknown

_MESHES = (".stl", ".dae", ".obj", ".ply", ".glb", ".gltf")
_SIZES = {"box": (("size", 3),), "sphere": (("radius", 1),)}
_ROUND = (("radius", 1), ("length", 1))


class ShapeReader:
    """A reader of <visual> and <collision> elements.

    Args:
        path: the description's file.
        packages: finds the meshes.
        values: reads the attributes.
        robot: the root element, which may define materials.
    """

    def __init__(self, path: Path, packages: RosPackages, values: AttributeReader, robot: Element):
        self._path = path
        self._packages = packages
        self._values = values
        self._materials: dict[str, tuple[float, ...]] = {}
        for material in find_children(robot, "material"):
            if color := find_child(material, "color"):
                self._materials[material.getAttribute("name")] = self._read_color(color)

    def read_shape(self, element: Element, where: str) -> Shape:
        """Read one shape of a link."""
        geometry = find_child(element, "geometry")
        bodies = list(iter_elements(geometry)) if geometry else []
        if len(bodies) != 1:
            found = (
                f", not {' and '.join(f'<{body.tagName}>' for body in bodies)}" if bodies else ""
            )
            found += "; <material> belongs beside <geometry>" if "<material>" in found else ""
            raise self._values.make_error(
                f"{where}: a <{element.tagName}> needs a <geometry> with one shape{found}"
            )
        body = bodies[0]
        kind = body.tagName
        where = f"{where}, <{kind}>"
        if kind not in SHAPES:
            raise self._values.make_error(str(unknown(f"shape in {where}", kind, SHAPES)))
        pose = self._values.read_pose(element, where)
        color = self._read_material(find_child(element, "material"))
        if kind == "mesh":
            scale = (1.0, 1.0, 1.0)
            if body.hasAttribute("scale"):
                scale = self._values.read_numbers(body, "scale", 3, where)
                if 0.0 in scale:
                    what = f"scale must not be 0, got {body.getAttribute('scale')!r}"
                    raise self._values.make_error(f"{where}: {what}")
            if not (uri := body.getAttribute("filename")):
                raise self._values.make_error(f"{where}: filename is missing")
            mesh, fault = self._find_mesh(uri)
            return Shape(kind, scale, pose, mesh, color, fault)
        size = ()
        for key, count in _SIZES.get(kind, _ROUND):
            size += self._values.read_size(body, key, count, where)
        return Shape(kind, size, pose, color=color)

    def _find_mesh(self, uri: str) -> tuple[Path, str | None]:
        """Find the mesh file of a URI, or of a path relative to the description.

        Returns:
            The file, and why it cannot be used, if it cannot: kinematics needs no mesh.
        """
        scheme, _, rest = uri.rpartition("://")
        if scheme == "package":
            package, _, inner = rest.partition("/")
            file = self._packages.find(package) / inner
            if self._packages.locate(package) is None and not os.path.isfile(file):
                return file, f"the mesh {uri!r} does not exist: package {package!r} is not found"
        elif scheme in ("", "file"):
            file = self._path.resolve().parent / rest
        else:
            return Path(uri), f"the mesh {uri!r} is neither a file nor a package:// address"
        if file.suffix.lower() not in _MESHES:
            return file, f"the mesh {uri!r} must be one of {', '.join(_MESHES)}"
        if not os.path.isfile(file):
            return file, f"the mesh {uri!r} does not exist; looked for {file}"
        return file.resolve(), None

    def _read_material(self, element: Element | None) -> tuple[float, ...] | None:
        if element is None:
            return None
        color = find_child(element, "color")
        return (
            self._read_color(color) if color else self._materials.get(element.getAttribute("name"))
        )

    def _read_color(self, element: Element) -> tuple[float, ...]:
        rgba = self._values.read_numbers(element, "rgba", 4, "a material")
        return tuple(min(max(value, 0.0), 1.0) for value in rgba)
