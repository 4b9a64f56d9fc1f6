"""Swift's page, served to this machine alone.

The servers of swift-sim 2.1.0 (swift/SwiftRoute.py) listen on every network interface and return any
readable file of the machine under /retrieve/<absolute path>. `LocalSwift` is Swift with those two servers
replaced, and this is the only place that touches them:

- both listen on 127.0.0.1 alone;
- HTTP looks the whole path up in a table of files, so there is no path to climb out of: the table holds
  Swift's own page files and, once a shape has been sent to the page, that shape's mesh, materials and textures;
- the page must be addressed as this machine, which stops DNS rebinding, and the websocket takes one
  client, which must be that page and know the token in the address that was opened.
"""

import json
import mimetypes
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from queue import Empty, Queue
from socketserver import ThreadingTCPServer
from typing import Any, Protocol
from urllib.parse import unquote

import swift
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from envs.view.page import mesh_files, page_files, served
from td3_robot.errors import ViewerError

_LOCAL = "127.0.0.1"
_LOCAL_NAMES = (_LOCAL, "localhost")  # swift's page opens its websocket as "localhost"
_POLL = 0.1  # [s] how soon a closed tab is noticed while nothing is being sent

# The type decides whether a browser runs a script; Windows takes it from a registry that may be wrong.
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}

_NOT_SWIFT = "the page answered what Swift's page does not; close its tab and try again"

# What Swift takes for the page's answer to some of its messages.
_ANSWERS: dict[str, Callable[[object], bool]] = {
    "shape": lambda answer: isinstance(answer, int),
    "shape_mounted": lambda answer: isinstance(answer, list) and len(answer) == 2 and answer[0] in (1, 0, -1, -2),
    "shape_poses": lambda answer: isinstance(answer, dict),
}


class _FileHandler(BaseHTTPRequestHandler):
    """GET of a file in the server's table; 403 for a foreign host name, 404 for anything else."""

    server: Any  # the one that has the table

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
        body = served(name, body)
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
        self.files: dict[str, Path | bytes] = {**page_files()}

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
        self._token = secrets.token_urlsafe(16)
        options = {"origins": origins, "process_request": self._admit, "compression": None, "close_timeout": 1}
        self._websocket = serve(self._talk, _LOCAL, 0, **options)
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
        """Where the page is; it finds the websocket's port and token in the query."""
        return f"http://{_LOCAL}:{self.http_port}/?{self._websocket.socket.getsockname()[1]}&{self._token}"

    def _admit(self, page: ServerConnection, request: Request) -> Response | None:
        """Refuse who was not given the address: an origin is easily forged by a program."""
        known = secrets.compare_digest(request.path, f"/{self._token}")
        return None if known else page.respond(403, "the address has no valid token\n")

    def _talk(self, page: ServerConnection) -> None:
        """One websocket connection: pass Swift's messages on and its answers back until the page is gone."""
        if not self._taken.acquire(blocking=False):
            page.close(1013, "the scene is already shown in another tab")
            return
        greeted = False
        try:
            self._incoming.put(page.recv())
            greeted = True
            for expects_answer, message in self._messages(page):
                self._allow(*message)
                page.send(json.dumps(message))
                if expects_answer:
                    self._incoming.put(page.recv())
        except ConnectionClosed:
            pass  # the tab was closed, which is one of the two ways this ends
        finally:
            if greeted:
                self._disconnected.set()
            else:
                self._taken.release()  # it was gone before it said anything: the next one is welcome

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


class Panel(Protocol):
    """Controls of ours in the page."""

    def attach(self, swift: "LocalSwift") -> None:
        """Put them there."""


class LocalSwift(swift.Swift):
    """Swift behind `PageServers`; the page can be opened from `url` as soon as this exists."""

    on_moved: Callable[[Any, Any, Any], None] = staticmethod(lambda name, position, turned: None)

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

    def launch(self, realtime: bool, panel: Panel | None = None) -> None:
        """Set up the connected page: `step` keeps to real time, or draws each call without waiting.

        A panel takes the place of Swift's own controls.
        """
        self.realtime_speed = 1.0 if realtime else None
        self.rate = 60 if realtime else 1_000_000  # without real time, Swift drops calls that come faster
        self.last_time = time.time()  # real time counts from here
        panel.attach(self) if panel else self._add_controls()
        self._send_socket("axes", False, expected=False)  # five metres long, through the whole picture
        self._send_socket("browser_timeout", 5, expected=False)

    def _send_socket(self, code: str, data=None, expected: bool = True):
        """What the page answers, as far as it is an answer.

        Raises:
            TimeoutError: the page has gone.
            ViewerError: it says what Swift's page does not.
        """
        answer = super()._send_socket(code, data, expected)
        try:
            understood = _ANSWERS.get(code, lambda answer: True)(json.loads(answer))
        except (ValueError, RecursionError):
            understood = False
        if not understood:
            raise ViewerError(_NOT_SWIFT)
        return answer

    def pace(self, speed: float | None) -> None:
        """Let `step` keep to a multiple of real time, or to none."""
        self._skipped, self.realtime_speed = 1, speed

    def offer(self, handles: list[dict]) -> None:
        """Let the page drag these; where to, `on_moved` is told. See page_files/gizmo.js."""
        self._send_socket("handles", handles, expected=False)

    def process_events(self, events: dict) -> None:
        """What was clicked and dragged in the page. Raises ViewerError where there is no such thing to click."""
        moved = events.pop("moved", None)
        if isinstance(moved, dict):
            self.on_moved(moved.get("name"), moved.get("t"), moved.get("q"))
        try:
            super().process_events(events)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise ViewerError(_NOT_SWIFT) from None

    def _stop_threads(self) -> None:
        self._servers.close()
