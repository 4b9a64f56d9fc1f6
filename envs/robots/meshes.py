"""The one reader of mesh files, for fitting capsules, contact by meshes, and the browser view.

A point of a link's mesh is `scale * unit * vertex` [m]: `scale` is that of the URDF's <mesh>, and
`unit` is COLLADA's <unit meter="...">, 1 in the other formats. COLLADA's <up_axis> turns nothing:
RViz loads meshes of robots with assimp's IMPORT_COLLADA_IGNORE_UP_DIRECTION, and makers draw their
links for it. Swift's page follows the same rules, see `envs.view.page`.

`check_mesh` needs the standard library alone, since the view shows arms without the packages that
read meshes into Python.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.parsers.expat import ExpatError, ParserCreate

import numpy as np
from numpy.typing import ArrayLike

from td3_robot.errors import ConfigError, get_first_line, require_packages

if TYPE_CHECKING:
    import trimesh

LARGEST = 100.0  # [m] from the link's frame; farther away nothing is resolved to 1e-5 in float32

_POINTER = b"version https://git-lfs.github.com/spec/"
_STL_HEADER = 84  # bytes: 80 of text, and the number of triangles
_STL_TRIANGLE = 50  # bytes
_GLB_HEADER = 12  # bytes: "glTF", the version, and the length of the file
_PLY_BYTES = {  # of the format's number types
    **dict.fromkeys((b"char", b"uchar", b"int8", b"uint8"), 1),
    **dict.fromkeys((b"short", b"ushort", b"int16", b"uint16"), 2),
    **dict.fromkeys((b"int", b"uint", b"float", b"int32", b"uint32", b"float32"), 4),
    **dict.fromkeys((b"double", b"float64"), 8),
}
_NOTHING = "has no triangles; remove its <mesh> from the description if the link has no surface"
_DAE_SURFACES = ("triangles", "polylist", "polygons", "tristrips", "trifans")


def load_mesh(path: str | Path, scale: ArrayLike = (1.0, 1.0, 1.0)) -> trimesh.Trimesh:
    """Load the triangles of a mesh file [m]; its parts become one.

    Args:
        path: a .stl, .dae, .obj, .ply, .glb or .gltf file.
        scale: factors along x, y and z, of the URDF's <mesh>.

    Raises:
        ConfigError: the file is no whole mesh, in one line that names it, or the packages that read
            meshes are missing.
    """
    require_packages("reading meshes", "trimesh", "collada")
    import trimesh  # here: it is an extra

    path = Path(path)
    unit = check_mesh(path)
    try:
        scene = trimesh.load_scene(path, process=False)
        for part in scene.geometry.values():
            if not np.isfinite(part.vertices).all():  # trimesh would leave them out in silence
                raise _make_error(path, "has corners that are not finite")
            part.process()  # merges the corners that triangles share
        mesh = scene.to_mesh()
    except ConfigError:
        raise
    except Exception as error:  # whatever the readers of a dozen formats raise
        raise _make_error(path, f"cannot be read: {get_first_line(error)}") from None
    if not isinstance(mesh, trimesh.Trimesh) or not len(mesh.faces):
        raise _make_error(path, _NOTHING)
    if mesh.vertices.shape[1] != 3:
        raise _make_error(path, "has corners of other than three coordinates")
    mesh.apply_transform(np.diag([*(unit * np.asarray(scale, float)), 1.0]))
    corners = mesh.vertices[np.unique(mesh.faces)]
    if not np.ptp(corners, axis=0).any():
        raise _make_error(path, "has all its corners in one point")
    if (farthest := float(np.abs(corners).max())) > LARGEST:
        reach = f"reaches {farthest:.4g} m from its link's frame, at most {LARGEST:g} are taken"
        raise _make_error(path, f'{reach}; a mesh in millimetres needs scale="0.001 0.001 0.001"')
    return mesh


def check_mesh(path: str | Path) -> float:
    """Check that a file is a whole mesh, as far as its format states the length.

    Returns:
        The length of one of its units [m].

    Raises:
        ConfigError: it is empty, cut, a Git LFS pointer, or of another format than its name says,
            in one line that names it.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _make_error(path, f"cannot be read: {error.strerror}") from None
    if not content.strip():
        raise _make_error(path, "is empty")
    if content.startswith(_POINTER):
        pointer = "is a Git LFS pointer, which stands for a mesh that was not downloaded"
        raise _make_error(path, f"{pointer}; run `git lfs pull` in its repository")
    fault, unit = _CHECKS.get(path.suffix.lower(), _pass)(content)
    if fault:
        raise _make_error(path, fault)
    return unit


def _make_error(path: Path, fault: str) -> ConfigError:
    return ConfigError(f"mesh {path} {fault}")


def _pass(content: bytes) -> tuple[str, float]:
    return "", 1.0


def _check_stl(content: bytes) -> tuple[str, float]:
    """Check an STL: text from `solid` to `endsolid`, or a count of triangles and their bytes."""
    count = int.from_bytes(content[_STL_HEADER - 4 : _STL_HEADER], "little")
    wanted = _STL_HEADER + _STL_TRIANGLE * count
    if content.lstrip()[:5].lower() == b"solid" and len(content) != wanted:
        text = content.lower()
        if b"\0" not in content and b"facet" in text:
            whole = b"endsolid" in text[-1000:]
            return ("" if whole else "is cut: it has no endsolid"), 1.0
        if b"\0" not in content:
            return _NOTHING, 1.0
    if len(content) < _STL_HEADER:
        return "is no STL", 1.0
    if not count:
        return _NOTHING, 1.0
    if len(content) < wanted:
        return f"is cut, or no STL: {count} triangles take {wanted} bytes, it has {len(content)}", 1
    return "", 1.0


def _check_obj(content: bytes) -> tuple[str, float]:
    """Check that a Wavefront file has faces, whose corners are all there.

    The format does not say how long a file is. Exporters end the last line and use every corner, so
    that a file without either was cut.
    """
    if b"\0" in content:
        return "is no OBJ, which is text", 1.0
    content = re.sub(rb"\\\r?\n", b" ", content)  # a line that goes on in the next
    corners = len(re.findall(rb"^\s*v\s", content, re.MULTILINE))
    faces = re.findall(rb"^\s*f\s+([^\r\n]*)", content, re.MULTILINE)
    if not faces:
        return "has no faces, or is no OBJ", 1.0
    try:
        used = [[int(corner.split(b"/")[0]) for corner in face.split()] for face in faces]
    except ValueError:
        return "is cut, or no OBJ: a face has something else than numbers of corners", 1.0
    if any(0 in face for face in used):
        return "has a face with the corner 0; they are numbered from 1", 1.0
    if len(used[-1]) < 3:
        return "is cut: its last face has fewer than three corners", 1.0
    farthest = max(max(face, default=0) for face in used)
    if not content.endswith(b"\n") and 0 < farthest < corners:
        return "is cut: it ends within a line, and its last corners have no face", 1.0
    if farthest > corners or min(min(face, default=0) for face in used) < -corners:
        return f"is cut: a face has the corner {farthest}, there are {corners}", 1.0
    return "", 1.0


def _check_ply(content: bytes) -> tuple[str, float]:
    """Check that a PLY is at least as long as its header states."""
    header, end, body = content.partition(b"end_header")
    if not header.startswith(b"ply") or not end:
        return "is cut, or no PLY: its header does not end", 1.0
    body = body[body.find(b"\n") + 1 :]
    lines = [line.split() for line in header.splitlines()]
    if not any(line[:2] == [b"element", b"face"] and line[2:] != [b"0"] for line in lines):
        return _NOTHING, 1.0
    least = count = rows = 0
    for words in lines:
        if words[:1] == [b"element"] and len(words) == 3 and words[2].isdigit():
            count = int(words[2])
            rows += count
        elif words[:2] == [b"property", b"list"] and len(words) == 5:  # of three corners at least
            least += count * (_PLY_BYTES.get(words[2], 0) + 3 * _PLY_BYTES.get(words[3], 0))
        elif words[:1] == [b"property"] and len(words) == 3:
            least += count * _PLY_BYTES.get(words[1], 0)
    if b"ascii" in header:
        lines = sum(1 for line in body.splitlines() if line.strip())
        return (f"is cut: it has {lines} of {rows} lines" if lines < rows else ""), 1.0
    return (f"is cut: it has {len(body)} of {least} bytes" if len(body) < least else ""), 1.0


def _check_glb(content: bytes) -> tuple[str, float]:
    """Check that a binary glTF is as long as its header states."""
    if len(content) < _GLB_HEADER or content[:4] != b"glTF":
        return "is no binary glTF", 1.0
    wanted = int.from_bytes(content[8:_GLB_HEADER], "little")
    cut = len(content) < wanted
    return (f"is cut: it has {len(content)} of {wanted} bytes" if cut else ""), 1.0


def _check_dae(content: bytes) -> tuple[str, float]:
    """Check that COLLADA is a whole XML document with surfaces; return its unit."""
    tags = set()
    inside: list[str] = []  # the elements that are open
    unit = "1"

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal unit
        inside.append(tag.rpartition(":")[2])
        if inside == ["COLLADA", "asset", "unit"]:  # parts have assets of their own, for editors
            unit = attributes.get("meter", unit)
        tags.add(inside[-1])

    def end(_: str) -> None:
        inside.pop()

    def refuse(*_: object) -> None:
        raise ValueError("it declares entities")

    parser = ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except (ExpatError, LookupError, ValueError) as error:
        return f"is cut, or no COLLADA: it is not well-formed XML ({error})", 1.0
    if "COLLADA" not in tags:
        return "is no COLLADA", 1.0
    if not tags.intersection(_DAE_SURFACES):
        return _NOTHING, 1.0
    try:
        metres = float(unit)
    except ValueError:
        metres = 0.0
    if not 0.0 < metres < np.inf:
        return f"has the unit of {unit!r} metres, which must be a positive number", 1.0
    return "", metres


_CHECKS = {
    ".stl": _check_stl,
    ".obj": _check_obj,
    ".ply": _check_ply,
    ".glb": _check_glb,
    ".dae": _check_dae,
}
