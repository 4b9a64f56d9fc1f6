"""What the browser view serves: Swift's page, changed here and there, and the meshes of what is
shown.
"""

import os
import re
from pathlib import Path
from urllib.parse import unquote

import swift

OWN = Path(__file__).with_name("page_files")  # what the page gets beside Swift's files, under /own

# Ours come first: their script has to be there when Swift's looks for it.
_HEAD = b"""<link rel="icon" href="./favicon.ico">
<link rel="stylesheet" href="./own/view.css">
<script type="module" src="./own/view.js"></script>
</head>"""

# The hooks for view.js: what is drawn with, all messages and ours, and what the page tells beside
# its own controls.
_MADE = b"= createScene();"
_HOOK = b"= createScene();\nwindow.viewMade({ scene, camera, renderer, controls, ground, lights });"
_HEARD = b"transport.onMessage((func, data) => {"
_HEARD_TOO = b"\n  window.heard(func, data);"
_UNKNOWN = b"default:\n      console.error"
_EXTRA = b"default:\n      if (!window.extraMessage(func, data)) console.error"
_EVENTS = b"const changes = {};"
_MORE_EVENTS = b"const changes = window.takeEvents();"

# Swift's page draws without end, and as finely as can be on any machine; see page_files/pace.js.
_NEXT = b"requestAnimationFrame(animate);\n  updateGround"
_IF_DUE = b"requestAnimationFrame(animate);\n  if (!window.isDue()) return;\n  updateGround"
_SMOOTH = b"{ antialias: true,"
_AS_CAN_BE = b"{ antialias: !window.drawnBySoftware,"

# It says "Disconnected" to whoever comes second, too.
_CLOSED, _REASON = b"transport.onClose(() => {", b"transport.onClose(({ reason }) => {"
_BANNER, _BANNER_WHY = b'= "Disconnected";', b'= reason || "The view has ended.";'

# Swift's page has its websocket and its meshes elsewhere; here everything lies where the page does.
SOCKET, WITHOUT_WEBGL = "/socket", "/without-webgl"
_ADDRESS = b"`ws://localhost:${portFromLocation()}/`"
_BESIDE = b"`ws://${location.host}${location.pathname}socket`"
_ABSOLUTE = b'return "/retrieve"'
_RELATIVE = b'return "retrieve"'

# Swift's page loads Wavefront meshes by one loader, side by side, so that the materials of one end
# up on another. Here each load gets a loader of its own.
_SHARED_LOADER = b"objLoader.setMaterials(materials);"
_OWN_LOADER = b"const objLoader = new OBJLoader().setMaterials(materials);"

# Swift's page takes a shape's opacity for what it makes itself; meshes come with materials that
# have their own.
_ADDED = b"function finish(part, mesh, scene, cb) {"
_OURS_TOO = b"\n  window.shapeAdded(part, mesh);"

# Shadows reach a metre around the middle of Swift's scene.
_REACH = b"const d = 1;"
_FURTHER = (
    b"const d = 1.8;\n  light.shadow.mapSize.set(1024, 1024);\n  light.shadow.normalBias = 0.004;"
)
_DEPTH = b"light.shadow.camera.far = 4;"
_DEEPER = b"light.shadow.camera.far = 8;"

# A slider is told its value before its range, and so cuts it to the range that it had.
_RANGE = b"this.slider.max = data.max;"
_VALUE = b"\n    this.slider.value = data.value;"

# Wavefront's line elements, left over from CAD: where there is one, three.js draws the whole object
# as lines.
_OBJ_LINES = re.compile(rb"(?m)^l .*\n?")

# File of Swift's page -> what is replaced in it, and by what.
CHANGES = {
    "index.html": [(b"</head>", _HEAD)],
    "main.js": [
        *[(_ADDRESS, _BESIDE), (_MADE, _HOOK), (_HEARD, _HEARD + _HEARD_TOO), (_UNKNOWN, _EXTRA)],
        *[(_EVENTS, _MORE_EVENTS), (_NEXT, _IF_DUE), (_CLOSED, _REASON), (_BANNER, _BANNER_WHY)],
    ],
    "ui.js": [(_RANGE, _RANGE + _VALUE)],
    "scene.js": [(_REACH, _FURTHER), (_DEPTH, _DEEPER), (_SMOOTH, _AS_CAN_BE)],
    "shapes.js": [
        (_ABSOLUTE, _RELATIVE),
        (_SHARED_LOADER, _OWN_LOADER),
        (_ADDED, _ADDED + _OURS_TOO),
    ],
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


def page_files() -> dict[str, Path | bytes]:
    """Swift's page and what is ours in it: URL path -> file. A link that leads out of Swift's
    folder is left out.
    """
    root = (Path(swift.__file__).parent / "public").resolve()
    inside = [
        path for path in root.rglob("*") if path.is_file() and path.resolve().is_relative_to(root)
    ]
    files: dict[str, Path | bytes] = {
        f"/{path.relative_to(root).as_posix()}": path for path in inside
    }
    return (
        files
        | {"/": root / "index.html", WITHOUT_WEBGL: b""}
        | {f"/own/{path.name}": path for path in OWN.iterdir()}
    )


def mesh_files(filename: str, color: int = 0x888888) -> dict[str, Path | bytes]:
    """One mesh and the files it refers to: URL path under which Swift's page asks for it -> file,
    or its content.

    Args:
        color: 0xRRGGBB, of a Wavefront mesh that has no material file. Swift's page asks for one
            all the same, and it takes the material without a name for faces that name none.
    """
    mesh = Path(filename)
    materials, found = mesh.with_suffix(".mtl"), [mesh]
    if mesh.suffix.lower() == ".obj" and mesh.is_file() and not materials.is_file():
        diffuse = " ".join(f"{channel / 255:.4f}" for channel in color.to_bytes(3))
        return {
            _retrieve_path(mesh): mesh.resolve(),
            _retrieve_path(materials): f"newmtl \nKd {diffuse}\n".encode(),
        }
    if mesh.suffix.lower() == ".obj":
        found.append(materials)
    for path in list(found):
        pattern = _REFERENCES.get(path.suffix.lower())
        if pattern and path.is_file():
            names = [
                unquote(name.decode("utf-8", "replace"))
                for name in re.findall(pattern, path.read_bytes())
            ]
            found += [
                path.parent / name
                for name in names
                if Path(name).suffix.lower() in _REFERENCED_TYPES
            ]
    return {_retrieve_path(path): path.resolve() for path in found if path.is_file()}


def _retrieve_path(path: Path) -> str:
    """The decoded URL path, as `retrieveUrl` of swift/public/js/shapes.js makes it: no drive, no
    `..`.
    """
    return "/retrieve" + re.sub(r"^[A-Za-z]:", "", os.path.normpath(path).replace("\\", "/"))


def served(name: str, body: bytes) -> bytes:
    """The content of a file as the page gets it.

    Args:
        name: of the file, without its folder.
        body: what it holds.
    """
    for old, new in CHANGES.get(name, ()):
        body = body.replace(old, new)
    return _OBJ_LINES.sub(b"", body) if name.endswith(".obj") else body
