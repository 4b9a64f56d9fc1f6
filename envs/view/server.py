"""Swift's page, served to this machine alone.

The servers of swift-sim 2.1.0 (swift/SwiftRoute.py) listen on every network interface and return any
readable file of the machine under /retrieve/<absolute path>. `LocalSwift` is Swift with those two servers
replaced, and this is the only place that touches them:

- both listen on 127.0.0.1 alone;
- HTTP looks the whole path up in a table of files, so there is no path to climb out of: the table holds
  Swift's own page files and, once a shape has been sent to the page, that shape's mesh, materials and textures;
- the page must be addressed as this machine, which stops DNS rebinding, and the websocket takes one
  client, which must be that page.
"""

import json
import mimetypes
import os
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from queue import Empty, Queue
from socketserver import ThreadingTCPServer
from urllib.parse import unquote

import swift
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

_LOCAL = "127.0.0.1"
_LOCAL_NAMES = (_LOCAL, "localhost")  # swift's page opens its websocket as "localhost"
_POLL = 0.1  # [s] how soon a closed tab is noticed while nothing is being sent

# The type decides whether a browser runs a script; Windows takes it from a registry that may be wrong.
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}

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


class _FileHandler(BaseHTTPRequestHandler):
    """GET of a file in the server's table; 403 for a foreign host name, 404 for anything else."""

    def do_GET(self):  # noqa: N802 (the name http.server calls)
        if (self.headers.get("Host") or "").rsplit(":", 1)[0] not in _LOCAL_NAMES:
            self.send_error(403)
            return
        file = self.server.files.get(unquote(self.path.split("?", 1)[0]))
        try:
            body = file.read_bytes() if isinstance(file, Path) else file
        except OSError:
            body = None
        if body is None:
            self.send_error(404)
            return
        name = file.name if isinstance(file, Path) else ""
        if name == "index.html":
            body = body.replace(b"</head>", _THEME + b"</head>")
        elif name == "shapes.js":
            body = body.replace(_SHARED_LOADER, _OWN_LOADER).replace(_ADDED, _ADDED + _SEE_THROUGH)
        elif name.endswith(".obj"):
            body = _OBJ_LINES.sub(b"", body)
        self.send_response(200)
        kind = _TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "text/plain"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Requests are nobody's business."""


class _FileServer(ThreadingTCPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__((_LOCAL, 0), _FileHandler)
        self.files = page_files()

    def handle_error(self, request, client_address):
        """A tab that goes away while it loads is no error; there is nobody to tell about any other."""


class PageServers:
    """The page's HTTP server and its websocket, in daemon threads, from construction to `close`.

    Args:
        outgoing: Swift's queue of (is an answer expected, [name, data]) to send to the page.
        incoming: Swift's queue of the page's greeting and answers.
        disconnected: set once the page has gone.
    """

    def __init__(self, outgoing: Queue, incoming: Queue, disconnected: threading.Event):
        self._outgoing, self._incoming, self._disconnected = outgoing, incoming, disconnected
        self._taken = threading.Lock()
        self._http = _FileServer()
        origins = [f"http://{name}:{self.http_port}" for name in _LOCAL_NAMES]
        self._websocket = serve(self._talk, _LOCAL, 0, origins=origins, compression=None, close_timeout=1)
        for server in (self._http, self._websocket):
            threading.Thread(target=server.serve_forever, daemon=True).start()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """What the two servers listen on: (host, port) of HTTP, then of the websocket."""
        return [self._http.socket.getsockname(), self._websocket.socket.getsockname()]

    @property
    def http_port(self) -> int:
        """Port of the HTTP server."""
        return self._http.server_address[1]

    @property
    def url(self) -> str:
        """Where the page is; it finds the websocket's port in the query."""
        return f"http://{_LOCAL}:{self.http_port}/?{self._websocket.socket.getsockname()[1]}"

    def _talk(self, page: ServerConnection) -> None:
        """One websocket connection: pass Swift's messages on and its answers back until the page is gone."""
        if not self._taken.acquire(blocking=False):
            page.close(1013, "the scene is already shown in another tab")
            return
        try:
            self._incoming.put(page.recv())
            for expects_answer, message in self._messages(page):
                self._allow(*message)
                page.send(json.dumps(message))
                if expects_answer:
                    self._incoming.put(page.recv())
        except ConnectionClosed:
            pass  # the tab was closed, which is one of the two ways this ends
        finally:
            self._disconnected.set()

    def _messages(self, page: ServerConnection) -> Iterator[tuple[bool, list]]:
        """What Swift sends, until `close`. Raises ConnectionClosed when the page goes in the meantime."""
        while True:
            try:
                message = self._outgoing.get(timeout=_POLL)
            except Empty:
                page.ping()  # raises if the connection is closed
                continue
            if message is None:
                return
            yield message

    def _allow(self, name: str, data) -> None:
        """Put the files of a shape that the page is about to be told of into the table."""
        parts = data if name == "shape" else data[1:] if name == "shape_update" else ()
        for part in parts:
            if "filename" in part:
                self._http.files.update(mesh_files(part["filename"], part.get("color") or 0))

    def close(self) -> None:
        """Stop both servers and free their ports."""
        self._outgoing.put(None)
        self._websocket.shutdown()
        self._http.shutdown()
        self._http.server_close()


class LocalSwift(swift.Swift):
    """Swift behind `PageServers`; the page can be opened from `url` as soon as this exists."""

    def __init__(self):
        super().__init__()
        self._servers = PageServers(self.outq, self.inq, self._disconnected)

    @property
    def url(self) -> str:
        """See `PageServers.url`."""
        return self._servers.url

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """See `PageServers.addresses`."""
        return self._servers.addresses

    def connected(self, timeout: float) -> bool:
        """Wait up to `timeout` s for the page's greeting. Once this is True, call `launch`."""
        try:
            self.inq.get(timeout=timeout)
        except Empty:
            return False
        return True

    def launch(self, realtime: bool) -> None:
        """Set up the connected page: `step` keeps to real time, or draws each call without waiting."""
        self.realtime_speed = 1.0 if realtime else None
        self.rate = 60 if realtime else 1_000_000  # without real time, Swift drops calls that come faster
        self.last_time = time.time()  # real time counts from here
        self._add_controls()
        self._send_socket("axes", False, expected=False)  # five metres long, through the whole picture
        self._send_socket("browser_timeout", 5, expected=False)

    def _stop_threads(self) -> None:
        self._servers.close()
