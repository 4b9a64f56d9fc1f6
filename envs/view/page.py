"""What the browser view serves: Swift's page, changed here and there, and the meshes of what is shown."""

import os
import re
from pathlib import Path
from urllib.parse import unquote

import swift

# Added to Swift's page: a label is a line over the picture instead of a column that hides a fifth of it,
# and the scene, which three.js announces to its developer tools, gets a bright backdrop that the ground
# fades into and a lens less wide than Swift's 70 degrees.
_THEME = b"""
<style>
.sidenav { background: none; height: auto; width: auto; max-width: none; padding: 0; left: 28px; top: 22px; }
.sidenav .label-div { margin: 0; }
.sidenav .label-div p { margin: 0; width: auto; white-space: pre; text-align: left; color: #26323d;
  font: 500 20px/1.3 system-ui, sans-serif; }
</style>
<script>
window.__THREE_DEVTOOLS__ = new EventTarget();
window.__THREE_DEVTOOLS__.addEventListener("observe", ({ detail: scene }) => {
  if (!scene.isScene) return;
  window.swiftScene = scene;
  queueMicrotask(() => {  // once Swift has filled it
    scene.background.set(0xe9eef2);
    scene.fog.color.set(0xe9eef2);
    scene.fog.near = 2.5;
    scene.fog.far = 7;
    scene.children.find((child) => child.geometry?.type === "PlaneGeometry").material.color.set(0xbac4cd);
  });
  scene.onBeforeRender = (renderer, scene, camera) => {
    if (camera.fov === 70) { camera.fov = 35; camera.updateProjectionMatrix(); }
  };
});
</script>
"""

# Swift's page finds the websocket's port in its own address; here the token that comes after it, too.
_ADDRESS = b"`ws://localhost:${portFromLocation()}/`"
_WITH_TOKEN = b"`ws://localhost:${portFromLocation()}/${location.search.split('&')[1]}`"

# Swift's page loads Wavefront meshes by one loader, side by side, so that the materials of one end up on another.
# Here each load gets a loader of its own.
_SHARED_LOADER = b"objLoader.setMaterials(materials);"
_OWN_LOADER = b"const objLoader = new OBJLoader().setMaterials(materials);"

# Swift's page takes a shape's opacity for what it makes itself; meshes come with materials that have their own.
_ADDED = b"function finish(part, mesh, scene, cb) {"
_SEE_THROUGH = b"""
  if (part.opacity < 1) mesh.traverse(({ material }) => {
    for (const one of [material ?? []].flat()) Object.assign(one, { transparent: true, opacity: part.opacity });
  });"""

# Wavefront's line elements, left over from CAD: where there is one, three.js draws the whole object as lines.
_OBJ_LINES = re.compile(rb"(?m)^l .*\n?")

# File of Swift's page -> what is replaced in it, and by what.
_CHANGES = {
    "index.html": [(b"</head>", _THEME + b"</head>")],
    "main.js": [(_ADDRESS, _WITH_TOKEN)],
    "shapes.js": [(_SHARED_LOADER, _OWN_LOADER), (_ADDED, _ADDED + _SEE_THROUGH)],
}

# How each mesh format names the files it needs. Collada, Wavefront (in its .mtl), glTF and VRML.
_REFERENCES = {
    ".dae": rb"<init_from>\s*([^<]+?)\s*</init_from>",
    ".mtl": rb"(?m)^\s*(?:map_\w+|bump|disp|decal|norm)\s.*?(\S+)\s*$",
    ".gltf": rb'"uri"\s*:\s*"([^"]+)"',
    ".glb": rb'"uri"\s*:\s*"([^"]+)"',
    ".wrl": rb'url\s*\[?\s*"([^"]+)"',
}
_REFERENCED_TYPES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tga", ".webp", ".bin"}


def page_files() -> dict[str, Path]:
    """Swift's own page: URL path -> file. A link that leads out of the page's folder is left out."""
    root = (Path(swift.__file__).parent / "public").resolve()
    inside = [path for path in root.rglob("*") if path.is_file() and path.resolve().is_relative_to(root)]
    files = {f"/{path.relative_to(root).as_posix()}": path for path in inside}
    return files | {"/": root / "index.html"}


def mesh_files(filename: str, color: int = 0x888888) -> dict[str, Path | bytes]:
    """One mesh and the files it refers to: URL path under which Swift's page asks for it -> file, or its content.

    Args:
        color: 0xRRGGBB, of a Wavefront mesh that has no material file. Swift's page asks for one all the same, and it
            takes the material without a name for faces that name none.
    """
    mesh = Path(filename)
    materials, found = mesh.with_suffix(".mtl"), [mesh]
    if mesh.suffix.lower() == ".obj" and mesh.is_file() and not materials.is_file():
        diffuse = " ".join(f"{channel / 255:.4f}" for channel in color.to_bytes(3))
        return {_retrieve_path(mesh): mesh.resolve(), _retrieve_path(materials): f"newmtl \nKd {diffuse}\n".encode()}
    if mesh.suffix.lower() == ".obj":
        found.append(materials)
    for path in list(found):
        pattern = _REFERENCES.get(path.suffix.lower())
        if pattern and path.is_file():
            names = [unquote(name.decode("utf-8", "replace")) for name in re.findall(pattern, path.read_bytes())]
            found += [path.parent / name for name in names if Path(name).suffix.lower() in _REFERENCED_TYPES]
    return {_retrieve_path(path): path.resolve() for path in found if path.is_file()}


def _retrieve_path(path: Path) -> str:
    """The decoded URL path, as `retrieveUrl` of swift/public/js/shapes.js makes it: no drive, no `..`."""
    return "/retrieve" + re.sub(r"^[A-Za-z]:", "", os.path.normpath(path).replace("\\", "/"))


def served(name: str, body: bytes) -> bytes:
    """The content of a file as the page gets it.

    Args:
        name: of the file, without its folder.
        body: what it holds.
    """
    for old, new in _CHANGES.get(name, ()):
        body = body.replace(old, new)
    return _OBJ_LINES.sub(b"", body) if name.endswith(".obj") else body
