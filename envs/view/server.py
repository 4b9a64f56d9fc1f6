"""Swift's page, served to this machine alone.

The servers of swift-sim 2.1.0 (swift/SwiftRoute.py) listen on every network interface and return
any readable file of the machine under /retrieve/<absolute path>. `LocalSwift` is Swift with those
two servers replaced by one, and this is the only place that touches them:

- it listens on 127.0.0.1 alone, on one port, so that one line of SSH leads there;
- everything lies under a token that only the printed address has: the page, its files and its
    websocket;
- the rest of the path is looked up as a whole in a table of files, so there is nothing to climb out
  of: the table holds Swift's own page files, ours, and, once a shape has been sent to the page,
  that shape's mesh, materials and textures;
- the page must be addressed as this machine, which stops DNS rebinding, and the websocket takes one
  client, which must come from that page.
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

from envs.view.page import SOCKET, WITHOUT_WEBGL, mesh_files, page_files, served
from td3_robot.errors import ViewerError

_LOCAL = "127.0.0.1"
_LOCAL_NAMES = (_LOCAL, "localhost")
_POLL = 0.1  # [s] how soon a closed tab is noticed while nothing is being sent
_RELOAD = 5.0  # [s] that a page waits for a place, which one that is reloaded still has itself
# [s] that a file may take to whoever fetches it, a large mesh through a thin line for one
_SLOW = 120.0
_PARTING = 2.0  # [s] for a page to say goodbye; one that hangs never does
_LARGEST = 2**16  # bytes of an answer; the longest of Swift's page has a few thousand

# The type decides whether a browser runs a script; Windows takes it from a registry that may be
# wrong.
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}

_NOT_SWIFT = "the page answered what Swift's page does not; close its tab and try again"

# What Swift takes for the page's answer to some of its messages.
_ANSWERS: dict[str, Callable[[object], bool]] = {
    "shape": lambda answer: isinstance(answer, int),
    "shape_mounted": lambda answer: (
        isinstance(answer, list) and len(answer) == 2 and answer[0] in (1, 0, -1, -2)
    ),
    "shape_poses": lambda answer: isinstance(answer, dict),
}
_NO_WEBGL = (
    "the browser draws no 3D graphics (WebGL): switch its hardware acceleration on, take another one, or write a "
    "recording instead: evaluate.py --record"
)

_quiet = logging.getLogger("td3_robot.page")  # bad requests are nobody's business
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class PageServer:
    """The page's files and its websocket, in daemon threads, from construction to `close`.

    Args:
        outgoing: Swift's queue of (is an answer expected, [name, data]) to send to the page.
        incoming: Swift's queue of the page's greeting and answers.
        disconnected: set once the page has gone.
        port: to listen on; 0 takes a free one.

    Attributes:
        address: (host, port) that it listens on.
        url: where the page is.
        without_webgl: set once a browser has said that it cannot draw the page.

    Raises:
        ViewerError: the port is taken, or not to be had.
    """

    def __init__(
        self, outgoing: Queue, incoming: Queue, disconnected: threading.Event, port: int = 0
    ):
        self._outgoing, self._incoming, self._disconnected = outgoing, incoming, disconnected
        self._taken, self.without_webgl = threading.Lock(), threading.Event()
        self._files: dict[str, Path | bytes] = {**page_files()}
        self._root = f"/{secrets.token_urlsafe(16)}"
        options = {
            "process_request": self._answer,
            "compression": None,
            "close_timeout": _SLOW,
            "max_size": _LARGEST,
        }
        try:
            self._server = serve(self._talk, _LOCAL, port, logger=_quiet, **options)
        except OSError as error:
            raise ViewerError(
                f"cannot serve the page on port {port}: {error.strerror}; try another --port"
            ) from None
        self.address: tuple[str, int] = self._server.socket.getsockname()
        self.url = f"http://{_LOCAL}:{self.address[1]}{self._root}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, page: ServerConnection, request: Request) -> Response | None:
        """A file of the table; None, which opens the websocket, for the page itself; refusal for
        anybody else.
        """
        host = request.headers.get("Host", "")
        if host.rsplit(":", 1)[0] not in _LOCAL_NAMES:
            return page.respond(403, "not addressed as this machine\n")
        path = unquote(request.path.split("?", 1)[0])
        root = path[: len(self._root)]
        if not secrets.compare_digest(root.encode(), self._root.encode()):
            return page.respond(403, "the address has no valid token\n")
        rest = path[len(self._root) :]
        if (
            rest == SOCKET
        ):  # a page of ours is where it says; another's, which may know the address, is not
            same = request.headers.get("Origin") == f"http://{host}"
            return None if same else page.respond(403, "not asked for by the page\n")
        if rest == WITHOUT_WEBGL:
            self.without_webgl.set()
        return self._file(page, rest)

    def _file(self, page: ServerConnection, path: str) -> Response:
        file = self._files.get(path)
        try:
            body = file.read_bytes() if isinstance(file, Path) else file
        except OSError:
            body = None
        if body is None:
            return page.respond(404, "there is no such file\n")
        name = file.name if isinstance(file, Path) else ""
        body = served(name, body)
        headers = {
            "Content-Type": _TYPES.get(Path(name).suffix)
            or mimetypes.guess_type(name)[0]
            or "text/plain",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "Connection": "close",
        }
        return Response(200, "OK", Headers(headers), body)

    def _talk(self, page: ServerConnection) -> None:
        """One websocket connection: pass Swift's messages on and its answers back until the page is
        gone.
        """
        if not self._taken.acquire(timeout=_RELOAD):
            page.close(1013, "The scene is shown in another tab already.")
            return
        outgoing, incoming, disconnected = self._outgoing, self._incoming, self._disconnected
        greeted, page.close_timeout = False, _PARTING
        try:
            incoming.put(page.recv())
            greeted = True
            for expects_answer, message in self._messages(page, outgoing):
                self._allow(*message)
                page.send(json.dumps(message))
                if expects_answer:
                    incoming.put(page.recv())
        except ConnectionClosed:
            pass  # the tab was closed, which is one of the two ways this ends
        finally:
            if greeted:
                disconnected.set()  # `turn_to` frees the place
            else:
                # it was gone before it said anything: the next one is welcome
                self._taken.release()

    def turn_to(self, outgoing: Queue, incoming: Queue, disconnected: threading.Event) -> None:
        """Let the next page come, in place of one that was here and is gone; arguments as of the
        constructor.
        """
        self._outgoing, self._incoming, self._disconnected = outgoing, incoming, disconnected
        self._taken.release()

    def _messages(self, page: ServerConnection, outgoing: Queue) -> Iterator[tuple[bool, list]]:
        """What Swift sends, until `close`. Raises ConnectionClosed when the page goes in the
        meantime.
        """
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
        """Put the files of a shape that the page is about to be told of into the table."""
        parts = data if name == "shape" else data[1:] if name == "shape_update" else ()
        for part in parts:
            if "filename" in part:
                self._files.update(mesh_files(part["filename"], part.get("color") or 0))

    def close(self) -> None:
        """Stop the server and free its port."""
        self._outgoing.put(None)
        ending = threading.Thread(target=self._server.shutdown, daemon=True)
        ending.start()
        ending.join(
            2 * _PARTING
        )  # the port is free by then; who fetches a file still, or never asked, is let be


class Panel(Protocol):
    """Controls of ours in the page."""

    def attach(self, swift: "LocalSwift") -> None:
        """Put them there."""


class LocalSwift(swift.Swift):
    """Swift behind a `PageServer`; the page can be opened from `url` as soon as this exists."""

    on_moved: Callable[[Any, Any, Any], None] = staticmethod(lambda name, position, turned: None)
    speed: float | None = None  # of a panel, in real time

    def __init__(self, port: int = 0, server: PageServer | None = None):
        super().__init__()
        ends = self.outq, self.inq, self._disconnected
        if server is not None:
            server.turn_to(*ends)
        self._server = server or PageServer(*ends, port)
        self.url, self.address = self._server.url, self._server.address

    def renewed(self) -> "LocalSwift":
        """An empty one at the same address, for the next page, where this one's is gone."""
        return LocalSwift(server=self._server)

    def connected(self, timeout: float) -> bool:
        """Wait up to `timeout` s for the page's greeting. Once this is True, call `launch`.

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

        A panel takes the place of Swift's own controls.
        """
        speed = 1.0 if realtime else None
        self.realtime_speed = speed if panel is None else None  # with a panel `step` keeps to it
        self.rate = (
            60 if self.realtime_speed else 1_000_000
        )  # without real time, Swift drops calls that come faster
        self.last_time = time.time()  # real time counts from here
        if panel is not None:
            self.pace(speed)
            panel.attach(self)
        else:
            self._add_controls()
        self._send_socket(
            "axes", False, expected=False
        )  # five metres long, through the whole picture
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
        """Let `step` with a panel keep to a multiple of real time, or to none."""
        self.speed, self._due = speed, time.monotonic()

    def step(self, dt: float = 0.05, render: bool = True) -> None:
        """Draw; with a panel at once, and only then wait for the end of the period and hear what
        was done until then.

        So what comes of a drag is in the very next picture. Swift itself waits before it draws, and
        hears before it waits.
        """
        super().step(dt, render)
        if self.speed:
            now = time.monotonic()
            self._due = max(self._due + dt / self.speed, now)
            time.sleep(self._due - now)
            self.process_events(json.loads(self._send_socket("shape_poses", [])))

    def offer(self, handles: list[dict]) -> None:
        """Let the page drag these; where to, `on_moved` is told. See page_files/gizmo.js."""
        self._send_socket("handles", handles, expected=False)

    def mark(self, drops: list, ways: list, touches: list) -> None:
        """Let the page draw lines from goals to the table, lines through others, and contacts; see
        marks.js.
        """
        self._send_socket(
            "marks", {"drops": drops, "ways": ways, "touches": touches}, expected=False
        )

    def process_events(self, events: dict) -> None:
        """What was clicked and dragged in the page. Raises ViewerError where there is no such thing
        to click.
        """
        moved = events.pop("moved", None)
        if isinstance(moved, dict):
            self.on_moved(moved.get("name"), moved.get("t"), moved.get("q"))
        try:
            super().process_events(events)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise ViewerError(_NOT_SWIFT) from None

    def _stop_threads(self) -> None:
        self._server.close()
