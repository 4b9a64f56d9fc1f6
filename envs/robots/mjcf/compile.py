"""Compilation of an MJCF file by MuJoCo, also where meshes and textures are not there."""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# MuJoCo's Python package has no type stubs.

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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


class _Model(NamedTuple):
    """A file, or a model that it attaches: its folder, and the names of its meshes and textures."""

    folder: Path
    assets: frozenset[str]  # as the whole has them, with the prefixes of what is attached


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
    _check_attached(path)
    try:
        spec = mujoco.MjSpec.from_file(str(path))
    except (ValueError, mujoco.FatalError) as error:
        raise _make_error(path, "cannot be read as MJCF", error) from None
    models = _list_models(path)
    missing, weightless = _remove_missing_meshes(spec, models)
    textures = _remove_missing_textures(spec, models)
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
    meshes = {mesh.name: _find_mesh(spec, models, mesh) for mesh in drawn}
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


def _check_attached(path: Path, above: tuple[Path, ...] = ()) -> None:
    """Check that no model is within itself; MuJoCo would load it until the process crashes."""
    if path.resolve() in above:
        raise ConfigError(f"{above[0]}: model {path.name!r} loads itself; a model loads others")
    for tag in _list_tags(_read_text(path), "model"):
        inner = path.parent / tag.get("file", "")
        if inner.is_file() and os.access(inner, os.R_OK):
            _check_attached(inner, (*above, path.resolve()))


def _read_text(path: Path) -> str:
    """Read a file without its comments."""
    content = path.read_text(encoding="utf-8", errors="replace")
    return re.sub("<!--.*?-->", "", content, flags=re.DOTALL)


def _make_error(path: Path, what: str, error: Exception) -> ConfigError:
    reason = " ".join(str(error).removeprefix("Error: ").split())
    return ConfigError(f"{path}: {what}: {reason or type(error).__name__}")


def _list_models(path: Path) -> list[_Model]:
    """List a file and the models that it attaches, each before those that it attaches itself."""
    import mujoco

    models = []
    found = [(path, "")]
    for file, prefix in found:  # grows while it is walked
        spec = mujoco.MjSpec.from_file(str(file))
        assets = {prefix + _name_asset(asset) for asset in (*spec.meshes, *spec.textures)}
        models.append(_Model(file.parent, frozenset(assets)))
        text = _read_text(file)
        attached = _list_tags(text, "attach")
        for tag in _list_tags(text, "model"):
            inner = file.parent / tag.get("file", "")
            if not inner.is_file():
                continue
            name = tag.get("name") or mujoco.MjSpec.from_file(str(inner)).modelname
            uses = [use.get("prefix", "") for use in attached if use.get("model") == name]
            new = [(inner, prefix + use) for use in uses]
            found += [each for each in new if each not in found]
    return models


def _list_tags(text: str, tag: str) -> list[dict[str, str]]:
    """List the attributes of each tag of a kind in XML."""
    attribute = r"""(\w+)\s*=\s*["']([^"']*)["']"""
    return [dict(re.findall(attribute, found)) for found in re.findall(rf"<{tag}\s[^>]*>", text)]


def _name_asset(asset: Any) -> str:
    """Return the name of a mesh or texture, which without one of its own has that of its file."""
    return asset.name or Path(asset.file).stem


def _find_mesh(spec: Any, models: list[_Model], mesh: Any) -> Path:
    return _find_asset(spec, models, mesh, str(mesh.compiler.meshdir), mesh.file)


def _find_asset(spec: Any, models: list[_Model], asset: Any, inner: str, file: str) -> Path:
    """Find the file of a mesh or texture as MuJoCo does: by its model's folder and `meshdir`."""
    name = os.path.basename(file) if spec.strippath else file
    # the innermost model that has it is its own; one that is attached may have the same paths
    owners = sorted(reversed(models), key=lambda model: _name_asset(asset) not in model.assets)
    places = [Path(os.path.abspath(model.folder / inner / name)) for model in owners]
    return next((place for place in places if place.exists()), places[0])


def _remove_missing_meshes(spec: Any, models: list[_Model]) -> tuple[list[str], list[str]]:
    """Remove meshes without a file, and the geoms that show them.

    Returns:
        Names of the meshes, and of the bodies whose inertia followed from them.
    """
    missing = [
        mesh for mesh in spec.meshes if mesh.file and not _find_mesh(spec, models, mesh).exists()
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


def _remove_missing_textures(spec: Any, models: list[_Model]) -> list[str]:
    """Remove textures without a file; return their names."""

    def is_gone(texture: Any) -> bool:
        inner = str(texture.compiler.texturedir)
        files = [file for file in (texture.file, *texture.cubefiles) if file]
        return any(not _find_asset(spec, models, texture, inner, file).exists() for file in files)

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
