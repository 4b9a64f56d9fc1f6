"""Compilation of an MJCF file by MuJoCo, also where meshes and textures are not there."""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# MuJoCo's Python package has no type stubs.

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envs.robots.mjcf.frames import make_transform
from envs.robots.urdf.tree import join_names
from td3_robot.errors import ConfigError, require_packages

_MAX_BYTES = 10_000_000
_READABLE = (".stl", ".obj")  # MuJoCo has formats of its own besides, and meshes without a file
_PLACEHOLDER = (1.0, (0.01, 0.01, 0.01))  # [kg], [kg m2] of a body whose shapes are missing


@dataclass(frozen=True)
class CompiledFile:
    """An MJCF file as MuJoCo understands it.

    Attributes:
        source: the file, as messages name it.
        model: the compiled mujoco.MjModel.
        meshes: path of each mesh's file, by the name of the mesh; only of those that can be read.
        references: by that name, (4, 4) pose in the file of the frame that MuJoCo takes for the
            mesh's own, its `refpos` and `refquat`.
        weightless: names of bodies whose inertia is unknown, since it follows from missing meshes.
        notices: what of the file is not used; a line each.
    """

    source: str
    model: Any
    meshes: dict[str, Path]
    references: dict[str, np.ndarray]
    weightless: frozenset[str]
    notices: tuple[str, ...]


def compile_mjcf(path: str | Path) -> CompiledFile:
    """Compile an MJCF file.

    Raises:
        ConfigError: one line that says why it cannot be read or compiled, or that MuJoCo is not
            installed.
    """
    require_packages("a robot from an MJCF file", "mujoco")
    import mujoco  # here: it is an extra

    path = Path(path)
    _check_file(path)
    try:
        spec = mujoco.MjSpec.from_file(str(path))
    except (ValueError, mujoco.FatalError) as error:
        raise _make_error(path, "cannot be read as MJCF", error) from None
    folders = _list_folders(path)
    missing, weightless = _remove_missing_meshes(spec, folders)
    textures = _remove_missing_textures(spec, folders)
    try:
        model = spec.compile()
    except (ValueError, mujoco.FatalError) as error:
        raise _make_error(path, "MuJoCo cannot compile it", error) from None
    notices = []
    if missing:
        notices.append(f"nothing is drawn of {join_names(missing)}, whose files are not there")
    if weightless:
        notices.append(f"no inertia of {join_names(weightless)} is known without these files")
    if textures:
        notices.append(f"textures whose files are not there: {join_names(textures)}")
    read = [mesh for mesh in spec.meshes if Path(mesh.file).suffix.lower() in _READABLE]
    if unread := sorted({mesh.name for mesh in spec.meshes} - {mesh.name for mesh in read}):
        notices.append(f"nothing is drawn of {join_names(unread)}, in no {' or '.join(_READABLE)}")
    drawn = [mesh for mesh in read if not _is_sheared(mesh)]
    if sheared := [mesh.name for mesh in read if _is_sheared(mesh)]:
        why = "whose refquat is beside a scale that is not the same along x, y and z"
        notices.append(f"nothing is drawn of {join_names(sheared)}, {why}")
    meshes = {mesh.name: _find_mesh(spec, folders, mesh) for mesh in drawn}
    references = {mesh.name: make_transform(mesh.refpos, mesh.refquat) for mesh in drawn}
    return CompiledFile(str(path), model, meshes, references, frozenset(weightless), tuple(notices))


def _is_sheared(mesh: Any) -> bool:
    """Tell if a mesh is scaled along other axes than those of its file, as no `Shape` is."""
    turned = not np.allclose(make_transform(mesh.refpos, mesh.refquat)[:3, :3], np.eye(3))
    return turned and float(np.ptp(mesh.scale)) > 0.0


def _check_file(path: Path) -> None:
    """Check that a file can be read, is not very large, and is no URDF."""
    try:
        if not path.is_file():
            raise ConfigError(f"there is no robot file {str(path)!r}")
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{path}: has more than {_MAX_BYTES // 1_000_000} MB")
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from None
    if b"<robot" in content and b"<mujoco" not in content.partition(b"<robot")[0]:
        raise ConfigError(f"{path}: is a URDF, not MJCF; give the file a name that ends in .urdf")


def _make_error(path: Path, what: str, error: Exception) -> ConfigError:
    reason = " ".join(str(error).removeprefix("Error: ").split())
    return ConfigError(f"{path}: {what}: {reason or type(error).__name__}")


def _list_folders(path: Path) -> list[Path]:
    """List the folders of a file and of the models that it attaches, its own first."""
    folders = [path.parent]
    files = [path]
    for file in files:  # grows while it is walked
        text = file.read_text(encoding="utf-8", errors="replace")
        for name in re.findall(r"""<model\s[^>]*?\bfile\s*=\s*["']([^"']+)["']""", text):
            attached = file.parent / name
            if attached.is_file() and attached not in files:
                files.append(attached)
                folders.append(attached.parent)
    return folders


def _find_mesh(spec: Any, folders: list[Path], mesh: Any) -> Path:
    return _find_asset(spec, folders, str(mesh.compiler.meshdir), mesh.file)


def _find_asset(spec: Any, folders: list[Path], inner: str, file: str) -> Path:
    """Find the file of a mesh or texture as MuJoCo does: by a model's folder and `meshdir`."""
    name = os.path.basename(file) if spec.strippath else file
    places = [Path(os.path.abspath(folder / inner / name)) for folder in folders]
    return next((place for place in places if place.exists()), places[0])


def _remove_missing_meshes(spec: Any, folders: list[Path]) -> tuple[list[str], list[str]]:
    """Remove meshes without a file, and the geoms that show them.

    Returns:
        Names of the meshes, and of the bodies whose inertia followed from them.
    """
    missing = [
        mesh for mesh in spec.meshes if mesh.file and not _find_mesh(spec, folders, mesh).exists()
    ]
    names = {mesh.name or Path(mesh.file).stem for mesh in missing}
    weightless = []
    for body, geom in list(_iter_geoms(spec)):
        if geom.meshname not in names:
            continue
        if not body.explicitinertial and geom.mass != 0.0 and body.name not in weightless:
            weightless.append(body.name)
        spec.delete(geom)
    for body in spec.bodies:
        if body.name in weightless:
            body.mass, body.inertia = _PLACEHOLDER
            body.ipos = (0.0, 0.0, 0.0)
            body.explicitinertial = True
    for mesh in missing:
        spec.delete(mesh)
    return sorted(names), weightless


def _remove_missing_textures(spec: Any, folders: list[Path]) -> list[str]:
    """Remove textures without a file; return their names."""

    def is_gone(texture: Any) -> bool:
        inner = str(texture.compiler.texturedir)
        files = [file for file in (texture.file, *texture.cubefiles) if file]
        return any(not _find_asset(spec, folders, inner, file).exists() for file in files)

    gone = [texture.name for texture in spec.textures if is_gone(texture)]
    for material in spec.materials:
        for index, name in enumerate(material.textures):
            if name in gone:
                material.textures[index] = ""
    for texture in [texture for texture in spec.textures if texture.name in gone]:
        spec.delete(texture)
    return gone


def _iter_geoms(spec: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each body with each of its geoms."""
    for body in spec.bodies:
        for geom in body.geoms:
            yield body, geom
