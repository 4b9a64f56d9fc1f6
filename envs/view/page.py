"""Files of the browser view: Swift's page with our changes, and meshes."""

import os
import re
from pathlib import Path
from urllib.parse import unquote

import swift

OWN = Path(__file__).with_name("page_files")  # our files of the page, under /own

# Our script must be loaded before Swift's.
_HEAD = b"""<link rel="icon" href="./favicon.ico">
<link rel="stylesheet" href="./own/view.css">
<script type="module" src="./own/view.js"></script>
</head>"""

# Hooks of view.js: the scene, all messages, our own messages, and our events.
_MADE = b"= createScene();"
_HOOK = b"= createScene();\nwindow.viewMade({ scene, camera, renderer, controls, ground, lights });"
_HEARD = b"transport.onMessage((func, data) => {"
_HEARD_TOO = b"\n  window.heard(func, data);"
_UNKNOWN = b"default:\n      console.error"
_EXTRA = b"default:\n      if (!window.extraMessage(func, data)) console.error"
_EVENTS = b"const changes = {};"
_MORE_EVENTS = b"const changes = window.takeEvents();"

# Swift's page draws without end and always antialiased; see page_files/pace.js.
_NEXT = b"requestAnimationFrame(animate);\n  updateGround"
_IF_DUE = b"requestAnimationFrame(animate);\n  if (!window.isDue()) return;\n  updateGround"
_SMOOTH = b"{ antialias: true,"
_AS_CAN_BE = b"{ antialias: !window.drawnBySoftware,"

# Swift's page shows "Disconnected" in a second tab too.
_CLOSED = b"transport.onClose(() => {"
_REASON = b"transport.onClose(({ reason }) => {"
_BANNER = b'= "Disconnected";'
_BANNER_WHY = b'= reason || "The view has ended.";'

# Swift's page has websocket and meshes at other addresses; here all lie beside the page.
SOCKET = "/socket"
WITHOUT_WEBGL = "/without-webgl"
_ADDRESS = b"`ws://localhost:${portFromLocation()}/`"
_BESIDE = b"`ws://${location.host}${location.pathname}socket`"
_ABSOLUTE = b'return "/retrieve"'
_RELATIVE = b'return "retrieve"'

# Swift's page shares one loader among Wavefront meshes, which mixes up their materials. Here each
# load gets its own.
_SHARED_LOADER = b"objLoader.setMaterials(materials);"
_OWN_LOADER = b"const objLoader = new OBJLoader().setMaterials(materials);"

# Swift's page leaves a Collada mesh at the size that its loader gives it by the file's unit.
_COLLADA = b"const mesh = collada.scene;"
_SCALED = (
    b"const mesh = collada.scene;\n        mesh.scale.multiply(new THREE.Vector3(...part.scale));"
)

# Swift's page applies a shape's opacity to its own materials, but not to those of meshes.
_ADDED = b"function finish(part, mesh, scene, cb) {"
_OURS_TOO = b"\n  window.shapeAdded(part, mesh);"

# Swift's shadows reach only 1 m from the middle of the scene.
_REACH = b"const d = 1;"
_FURTHER = (
    b"const d = 1.8;\n  light.shadow.mapSize.set(1024, 1024);\n  light.shadow.normalBias = 0.004;"
)
_DEPTH = b"light.shadow.camera.far = 4;"
_DEEPER = b"light.shadow.camera.far = 8;"

# Swift sets a slider's value before its range, and so clips it to the former range.
_RANGE = b"this.slider.max = data.max;"
_VALUE = b"\n    this.slider.value = data.value;"

# With any Wavefront line element, left over from CAD, three.js draws the whole object as lines.
_OBJ_LINES = re.compile(rb"(?m)^l .*\n?")

# File of Swift's page -> (old, new) replacements.
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
        (_COLLADA, _SCALED),
        (_ADDED, _ADDED + _OURS_TOO),
    ],
}

# References to other files by mesh format: Collada, Wavefront (in its .mtl), glTF and VRML. No two
# repetitions can share blanks, which would take time in their square or cube.
_REFERENCES = {
    ".dae": rb"<init_from>([^<]+)</init_from>",
    ".mtl": rb"(?m)^[ \t]*(?:map_\w+|bump|disp|decal|norm)[ \t](?:.*[ \t])?(\S+)\s*?$",
    ".gltf": rb'"uri"\s*:\s*"([^"]+)"',
    ".glb": rb'"uri"\s*:\s*"([^"]+)"',
    ".wrl": rb'url\s*(?:\[\s*)?"([^"]+)"',
}
_REFERENCED_TYPES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tga", ".webp", ".bin"}


def list_page_files() -> dict[str, Path | bytes]:
    """List the files of the page: URL path -> file. Links out of Swift's folder are left out."""
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


def list_mesh_files(filename: str, color: int = 0x888888) -> dict[str, Path | bytes]:
    """List a mesh and the files it refers to: URL path of Swift's page -> file or content.

    Args:
        color: 0xRRGGBB, of a Wavefront mesh that has no material file. Swift's page asks for one
            all the same, and it takes the material without a name for faces that name none.
    """
    mesh = Path(filename)
    materials = mesh.with_suffix(".mtl")
    found = [mesh]
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
                unquote(name.decode("utf-8", "replace").strip())
                for name in re.findall(pattern, path.read_bytes())
            ]
            found += [
                path.parent / name
                for name in names
                if Path(name).suffix.lower() in _REFERENCED_TYPES
            ]
    return {_retrieve_path(path): path.resolve() for path in found if os.path.isfile(path)}


def _retrieve_path(path: Path) -> str:
    """Return the decoded URL path as `retrieveUrl` of Swift's shapes.js: no drive, no `..`."""
    return "/retrieve" + re.sub(r"^[A-Za-z]:", "", os.path.normpath(path).replace("\\", "/"))


def patch_file(name: str, body: bytes) -> bytes:
    """Return the content of a file with our changes; `name` is without its folder."""
    for old, new in CHANGES.get(name, ()):
        body = body.replace(old, new)
    return _OBJ_LINES.sub(b"", body) if name.endswith(".obj") else body
