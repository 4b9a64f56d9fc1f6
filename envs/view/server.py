"""Server of Swift's page, for this machine alone.

The servers of swift-sim 2.1.0 (swift/SwiftRoute.py) listen on every network interface and return
any readable file of the machine under /retrieve/<absolute path>. `LocalSwift` is Swift with those
two servers replaced by one, and this is the only place that touches them:

- it listens on 127.0.0.1 alone, on one port, so that one line of SSH leads there;
- page, files and websocket lie under a token that only the printed address has;
- the rest of the path is looked up as a whole in a table of files, so ".." leads nowhere: it holds
  Swift's page files, ours, and the mesh, materials and textures of each shape sent to the page;
- the page must be addressed as this machine, which stops DNS rebinding, and the websocket takes one
  client, which must come from that page;
- the page fetches nothing from elsewhere, whatever a mesh refers to.
"""

import json
import logging
import mimetypes
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Protocol
from urllib.parse import unquote

import swift
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from envs.view.page import SOCKET, WITHOUT_WEBGL, list_mesh_files, list_page_files, patch_file
from td3_robot.errors import ViewerError

_LOCAL = "127.0.0.1"
_LOCAL_NAMES = (_LOCAL, "localhost")
_POLL = 0.1  # [s] how soon a closed tab is noticed while nothing is being sent
_RELOAD = 5.0  # [s] that a reloaded page waits for its former connection to end
_SLOW = 120.0  # [s] for a file to be fetched, such as a large mesh over a slow line
_PARTING = 2.0  # [s] for a page to close its connection
_LARGEST = 2**16  # bytes of an answer; the longest of Swift's page has a few thousand

# Browsers run scripts by their type, which Windows takes from a registry that may be wrong.
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}

# What the page may fetch; Swift's own has its modules named by a script in line.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'"
)

_NOT_SWIFT = "the page answered what Swift's page does not; close its tab and try again"

# Checks of the page's answers to messages of Swift.
_ANSWERS: dict[str, Callable[[object], bool]] = {
    "shape": lambda answer: isinstance(answer, int),
    "shape_mounted": lambda answer: (
        isinstance(answer, list) and len(answer) == 2 and answer[0] in (1, 0, -1, -2)
    ),
    "shape_poses": lambda answer: isinstance(answer, dict),
}
_NO_WEBGL = (
    "the browser draws no 3D graphics (WebGL): switch its hardware acceleration on, use another "
    "one, or write a recording instead, with: evaluate.py --record FILE"
)

_quiet = logging.getLogger("td3_robot.page")  # bad requests are not logged
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class PageServer:
    """Server of the page's files and websocket, in daemon threads, from construction to `close`.

    Args:
        outgoing: Swift's queue of (is an answer expected, [name, data]) to send to the page.
        incoming: Swift's queue of the page's greeting and answers.
        disconnected: set once the page has gone.
        port: to listen on; 0 takes a free one.

    Attributes:
        address: (host, port) that it listens on.
        url: where the page is.
        without_webgl: set once a browser has reported that it cannot draw the page.

    Raises:
        ViewerError: the port is taken, not permitted or none.
    """

    def __init__(
        self, outgoing: Queue, incoming: Queue, disconnected: threading.Event, port: int = 0
    ):
        self._outgoing = outgoing
        self._incoming = incoming
        self._disconnected = disconnected
        self._connection = threading.Lock()  # held while a page is connected
        self.without_webgl = threading.Event()
        self._files: dict[str, Path | bytes] = {**list_page_files()}
        self._root = f"/{secrets.token_urlsafe(16)}"
        options = {
            "process_request": self._respond,
            "compression": None,
            "close_timeout": _SLOW,
            "max_size": _LARGEST,
        }
        try:
            self._server = serve(self._relay, _LOCAL, port, logger=_quiet, **options)
        except (OSError, OverflowError) as error:  # the latter of a port that there is not
            why = error.strerror if isinstance(error, OSError) else "ports are 0 to 65535"
            raise ViewerError(
                f"cannot serve the page on port {port}: {why}; try another --port"
            ) from None
        self.address: tuple[str, int] = self._server.socket.getsockname()
        self.url = f"http://{_LOCAL}:{self.address[1]}{self._root}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _respond(self, page: ServerConnection, request: Request) -> Response | None:
        """Respond with a file or a refusal; None opens the websocket to our own page."""
        host = request.headers.get("Host", "")
        if host.rsplit(":", 1)[0] not in _LOCAL_NAMES:
            return page.respond(403, "not addressed as this machine\n")
        path = unquote(request.path.split("?", 1)[0])
        root = path[: len(self._root)]
        if not secrets.compare_digest(root.encode(), self._root.encode()):
            return page.respond(403, "the address has no valid token\n")
        rest = path[len(self._root) :]
        if rest == SOCKET:  # another site's page may know the address, but has another origin
            same = request.headers.get("Origin") == f"http://{host}"
            return None if same else page.respond(403, "not asked for by the page\n")
        if rest == WITHOUT_WEBGL:
            self.without_webgl.set()
        return self._make_response(page, rest)

    def _make_response(self, page: ServerConnection, path: str) -> Response:
        file = self._files.get(path)
        try:
            body = file.read_bytes() if isinstance(file, Path) else file
        except OSError:
            body = None
        if body is None:
            return page.respond(404, "there is no such file\n")
        name = file.name if isinstance(file, Path) else ""
        body = patch_file(name, body)
        headers = {
            "Content-Type": _TYPES.get(Path(name).suffix)
            or mimetypes.guess_type(name)[0]
            or "text/plain",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": _POLICY,
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "Connection": "close",
        }
        return Response(200, "OK", Headers(headers), body)

    def _relay(self, page: ServerConnection) -> None:
        """Relay Swift's messages and the page's answers on one connection until it ends."""
        if not self._connection.acquire(timeout=_RELOAD):
            page.close(1013, "The scene is shown in another tab already.")
            return
        outgoing = self._outgoing
        incoming = self._incoming
        disconnected = self._disconnected
        greeted = False
        page.close_timeout = _PARTING
        try:
            incoming.put(page.recv())
            greeted = True
            for expects_answer, message in self._iter_messages(page, outgoing):
                self._allow(*message)
                page.send(json.dumps(message))
                if expects_answer:
                    incoming.put(page.recv())
        except ConnectionClosed:
            pass  # the tab was closed
        finally:
            if greeted:
                disconnected.set()  # `reconnect` lets the next page in
            else:
                self._connection.release()

    def reconnect(self, outgoing: Queue, incoming: Queue, disconnected: threading.Event) -> None:
        """Let the next page connect after the last one; arguments as of the constructor."""
        self._outgoing = outgoing
        self._incoming = incoming
        self._disconnected = disconnected
        self._connection.release()

    def _iter_messages(
        self, page: ServerConnection, outgoing: Queue
    ) -> Iterator[tuple[bool, list]]:
        """Iterate over Swift's messages until `close`; raise ConnectionClosed if the page goes."""
        while True:
            try:
                message = outgoing.get(timeout=_POLL)
            except Empty:
                page.ping()  # raises if the connection is closed
                continue
            if message is None:
                return
            yield message

    def _allow(self, name: str, data) -> None:
        """Add the files of a shape that is about to be sent to the table."""
        parts = ()
        if name == "shape":
            parts = data
        elif name == "shape_update":
            parts = data[1:]
        for part in parts:
            if "filename" in part:
                self._files.update(list_mesh_files(part["filename"], part.get("color") or 0))

    def close(self) -> None:
        """Stop the server and free its port."""
        self._outgoing.put(None)
        ending = threading.Thread(target=self._server.shutdown, daemon=True)
        ending.start()
        ending.join(2 * _PARTING)  # the port is free by then; open downloads may go on


class Panel(Protocol):
    """Protocol of our controls in the page."""

    def attach(self, swift: "LocalSwift") -> None:
        """Add the controls to a connected page."""


class LocalSwift(swift.Swift):
    """Swift with a `PageServer`; the page can be opened at `url` from construction on."""

    on_moved: Callable[[Any, Any, Any], None] = staticmethod(lambda name, position, turned: None)
    speed: float | None = None  # with a panel, relative to real time

    def __init__(self, port: int = 0, server: PageServer | None = None):
        super().__init__()
        queues = (self.outq, self.inq, self._disconnected)
        if server is not None:
            server.reconnect(*queues)
        self._server = server or PageServer(*queues, port)
        self.url = self._server.url
        self.address = self._server.address

    def renew(self) -> "LocalSwift":
        """Return an empty one at the same address, for the next page."""
        return LocalSwift(server=self._server)

    def wait_for_page(self, timeout: float) -> bool:
        """Wait up to `timeout` s and return whether a page has connected; then call `launch`.

        Raises:
            ViewerError: a browser has opened the page and cannot draw it.
        """
        if self._server.without_webgl.is_set():
            raise ViewerError(_NO_WEBGL)
        try:
            self.inq.get(timeout=timeout)
        except Empty:
            return False
        return True

    def launch(self, realtime: bool, panel: Panel | None = None) -> None:
        """Set up the connected page: `step` keeps to real time, or draws each call without waiting.

        A panel replaces Swift's own controls.
        """
        speed = 1.0 if realtime else None
        self.realtime_speed = speed if panel is None else None  # with a panel `step` keeps to it
        # without real time, Swift drops calls that come faster than this
        self.rate = 60 if self.realtime_speed else 1_000_000
        self.last_time = time.time()  # real time counts from here
        if panel is not None:
            self.set_pace(speed)
            panel.attach(self)
        else:
            self._add_controls()
        self._send_socket("axes", False, expected=False)  # they cross the whole picture
        self._send_socket("browser_timeout", 5, expected=False)

    def _send_socket(self, code: str, data=None, expected: bool = True):
        """Send a message and return the page's validated answer.

        Raises:
            TimeoutError: the page has gone.
            ViewerError: the answer is none of Swift's page.
        """
        answer = super()._send_socket(code, data, expected)
        try:
            is_valid = _ANSWERS.get(code, lambda answer: True)(json.loads(answer))
        except (ValueError, RecursionError):
            is_valid = False
        if not is_valid:
            raise ViewerError(_NOT_SWIFT)
        return answer

    def set_pace(self, speed: float | None) -> None:
        """Set the speed of `step` with a panel, relative to real time; None does not wait."""
        self.speed = speed
        self._due = time.monotonic()

    def step(self, dt: float = 0.05, render: bool = True) -> None:
        """Draw; with a panel, wait for the end of the period after drawing and then read input.

        So the next picture shows the effect of a drag. Swift itself reads, waits, then draws.
        """
        super().step(dt, render)
        if self.speed:
            now = time.monotonic()
            self._due = max(self._due + dt / self.speed, now)
            time.sleep(self._due - now)
            self.process_events(json.loads(self._send_socket("shape_poses", [])))

    def send_handles(self, handles: list[dict]) -> None:
        """Send handles to drag, whose moves `on_moved` receives; see page_files/gizmo.js."""
        self._send_socket("handles", handles, expected=False)

    def send_marks(self, drops: list, paths: list, contacts: list) -> None:
        """Send goals to drop lines from, paths and contacts; see page_files/marks.js."""
        marks = {"drops": drops, "paths": paths, "contacts": contacts}
        self._send_socket("marks", marks, expected=False)

    def process_events(self, events: dict) -> None:
        """Process clicks and drags of the page; raise ViewerError for unknown ones."""
        moved = events.pop("moved", None)
        if isinstance(moved, dict):
            self.on_moved(moved.get("name"), moved.get("t"), moved.get("q"))
        try:
            super().process_events(events)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise ViewerError(_NOT_SWIFT) from None

    def _stop_threads(self) -> None:
        self._server.close()
