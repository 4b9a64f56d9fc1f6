"""The browser view among strangers: hostile requests, pages that misbehave, crowds, browsers that
are killed.

Nothing but the scene is given away, and only to who has the address; the slot for the page stays
free; whatever a page does, the program that shows it goes on or ends with one line, and no browser
stays.
"""

import contextlib
import functools
import http.client
import json
import os
import queue
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from urllib.parse import quote, unquote

from attempts import read_flags, torture
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from envs.robots import Robot, make_robot
from envs.view.recording import find_chromium
from envs.view.server import PageServer
from envs.view.swift import SwiftViewer
from td3_robot.errors import ViewerError

SECRET = "nobody's business but the file system's"
OPEN = 0.04
FRAMES = 30
CROWD = 1_000
PATIENCE = 30.0
HOSTS = [
    "127.0.0.1",
    "localhost",
    "localhost:1",
    "",
    "attacker.example",
    "127.0.0.1.attacker.example",
    "0.0.0.0",
]
HOSTS += [
    "[::1]",
    "localhost.attacker.example",
    "a" * 3000,
    "127.0.0.1\t",
    "2130706433",
    "LOCALHOST",
    "127.1",
]
PARTS = [
    "..",
    ".",
    "",
    "js",
    "retrieve",
    "etc",
    "passwd",
    "%2e%2e",
    "%252e%252e",
    "..%2f",
    "%5c..%5c",
    "\\..\\",
    "%00",
]
PARTS += [
    "%c0%ae%c0%ae",
    "..;",
    "~root",
    "proc/self/environ",
    "C:",
    "index.html",
    "socket",
    "\x7f",
    "é",
    "a" * 3000,
]


class Requests:
    """One server for all attempts, which serves a file and has a secret beside it."""

    def __init__(self, folder: Path):
        self._secret = folder / "secret"
        self._secret.write_text(SECRET)
        self._server = PageServer(queue.Queue(), queue.Queue(), threading.Event())
        self._root = "/" + self._server.url.split("/")[3]

    def attempt(self, random: Random, _: Path) -> str | None:
        """One request, after which the page is served as before."""
        path = self._path(random)
        host = random.choice(HOSTS)
        method = random.choice(
            ["GET"] * 8 + ["HEAD", "POST", "OPTIONS", "CONNECT", "get", "G\0T", ""]
        )
        version = random.choice(["1.1", "1.1", "1.1", "1.0", "9"])
        raw = f"{method} {path} HTTP/{version}\r\nHost: {host}\r\n"
        if random.random() < 0.3:
            raw += "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            raw += f"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nOrigin: {random.choice(['null', 'http://a.b'])}\r\n"
        status, body = self._answer(raw + "\r\n")
        known = unquote(path.split("?", 1)[0]).removeprefix(self._root)
        allowed = path.startswith(self._root) and known in self._server._files and method == "GET"
        if status not in (0, 400, 403, 404, 405, 426) and not (status == 200 and allowed):
            return f"{raw!r}: {status}"
        if SECRET.encode() in body or b"root:" in body:
            return f"{raw!r} gave a file away"
        page, _ = self._answer(f"GET {self._root}/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        return None if page == 200 else f"after {raw!r} the page is not served: {page}"

    def _path(self, random: Random) -> str:
        root = random.choice(
            [
                self._root,
                self._root,
                self._root,
                "",
                "/" + "x" * 22,
                self._root[:-1],
                self._root.upper(),
            ]
        )
        tricks = [
            str(self._secret),
            quote(str(self._secret), safe=""),
            quote(quote(str(self._secret), safe="")),
        ]
        parts = random.choices(
            [*PARTS, *tricks, "/etc/passwd", *self._server._files], k=random.randint(1, 6)
        )
        return (
            root
            + random.choice(["/", "//", "/retrieve/", "\\"])
            + "/".join(parts).replace(" ", "%20")
        )

    def _answer(self, raw: str) -> tuple[int, bytes]:
        """Status and body, (0, b"") where there is none."""
        with socket.create_connection(self._server.address, timeout=PATIENCE) as line:
            with contextlib.suppress(ConnectionError):
                line.sendall(raw.encode())
            answer = http.client.HTTPResponse(line)
            try:
                answer.begin()
                return answer.status, answer.read()
            except (http.client.HTTPException, ConnectionError, ValueError):
                return 0, b""


@functools.cache
def robot() -> Robot:
    """What is shown."""
    return make_robot("panda")


def _answered(message: str) -> str:
    """What Swift's page would say."""
    known = {"shape": "1", "shape_mounted": "[1, 1]", "shape_poses": "{}"}
    return known.get(json.loads(message)[0], "0")


def _misbehave(random: Random, url: str, until: threading.Event) -> None:
    """A page that answers as it should a number of times, and then does not."""
    place = url.replace("http", "ws", 1) + "socket"
    last = random.randint(0, 40)
    how = random.choice(
        ["close", "reset", "silence", "garbage", "giant", "binary", "deep", "slow", "flood"]
    )
    with (
        contextlib.suppress(WebSocketException, OSError),
        connect(place, origin=url.rsplit("/", 2)[0], compression=None, close_timeout=1) as page,
    ):
        page.send("hello" if random.random() < 0.9 else "\0" * 1000)
        for number, message in enumerate(page):
            if number < last:
                page.send(_answered(message))
            elif how == "close":
                return
            elif how == "reset":
                page.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return page.socket.close()
            elif how == "silence":
                until.wait()
                return
            elif how == "slow":
                until.wait(random.uniform(0.0, 0.3))
                page.send(_answered(message))
            elif how == "flood":
                for _ in range(2_000):
                    page.send("1")
            else:
                words = {
                    "garbage": "}{",
                    "giant": "1" * random.choice([2**16 + 1, 2**22]),
                    "deep": "[" * 60_000,
                }
                page.send(words.get(how, b"\xff\xfe"))


def pages(random: Random, folder: Path) -> str | None:
    """A page that misbehaves: the program goes on or ends with one line, within the page's time."""
    over = threading.Event()
    began = time.monotonic()
    with SwiftViewer(robot(), open_browser=False, realtime=False, patience=PATIENCE) as viewer:
        page = threading.Thread(target=_misbehave, args=(random, viewer.url, over), daemon=True)
        page.start()
        wrong = None
        try:
            all(viewer.show(robot().home, OPEN) for _ in range(FRAMES))
        except ViewerError as error:
            wrong = (
                None
                if str(error).isprintable() and len(str(error)) < 300
                else f"not one line: {error}"
            )
        over.set()
    page.join(10.0)
    seconds = time.monotonic() - began
    return wrong or (f"took {seconds:.0f} s" if seconds > PATIENCE else None)


def crowd(random: Random, folder: Path) -> str | None:
    """A thousand connections that say nothing, or half of something: the page is served, and its
    slot is free.
    """
    server = PageServer(queue.Queue(), queue.Queue(), threading.Event())
    idle = []
    try:
        for _ in range(CROWD):
            idle.append(socket.create_connection(server.address, timeout=PATIENCE))
            idle[-1].sendall(
                random.choice(
                    [b"", b"GET / HT", b"\0", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"\x16\x03"]
                )
            )
        began = time.monotonic()
        with connect(
            server.url.replace("http", "ws", 1) + "socket",
            origin=server.url.rsplit("/", 2)[0],
            open_timeout=PATIENCE,
        ) as page:
            page.send("hello")
            if server._incoming.get(timeout=PATIENCE) != "hello":
                return "the page was not heard"
        return (
            f"the page waited {time.monotonic() - began:.0f} s"
            if time.monotonic() - began > 10
            else None
        )
    finally:
        for line in idle:
            line.close()
        server.close()


def browsers(random: Random, folder: Path) -> str | None:
    """A real browser that is killed, all of it or its first process: no orphan; the program goes on
    or ends.
    """
    flags = f"--headless --no-sandbox --user-data-dir={folder / 'profile'} --use-angle=swiftshader"
    (folder / "browser").write_text(
        f'#!/bin/sh\nexec {find_chromium()} {flags} --enable-unsafe-swiftshader "$1"\n'
    )
    (folder / "browser").chmod(0o755)
    os.environ["BROWSER"] = str(folder / "browser")
    wrong = None
    group = 0
    try:
        with SwiftViewer(robot(), realtime=False) as viewer:
            assert viewer._browser is not None
            group = viewer._browser._process.pid
            shown = random.randint(0, 20)
            for number in range(10 * FRAMES):
                if number == shown:
                    (os.killpg if random.random() < 0.5 else os.kill)(group, signal.SIGKILL)
                if not viewer.show(robot().home, OPEN):
                    break
            else:
                wrong = "a page that is gone was shown to"
    except ViewerError as error:
        wrong = None if str(error).isprintable() else f"not one line: {error}"
    until = time.monotonic() + 10
    while time.monotonic() < until and group and _alive(group):
        time.sleep(0.05)
    return wrong or ("the browser stays" if group and _alive(group) else None)


def _alive(group: int) -> bool:
    """Whether anything of a process group still runs."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, found, *_ = stat.read_text().rsplit(")", 1)[1].split()
            if int(found) == group and state != "Z":
                return True
    return False


def main() -> int:
    """Returns the exit code."""
    flags = read_flags(__doc__ or "", ("requests", "pages", "crowd", "browsers"))
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(
            resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2
        )
    with tempfile.TemporaryDirectory(prefix="viewer") as folder:
        kinds = {
            "requests": Requests(Path(folder)).attempt,
            "pages": pages,
            "crowd": crowd,
            "browsers": browsers,
        }
        return min(
            1,
            sum(
                torture(f"viewer {kind}", flags.count, flags.seed, kinds[kind])
                for kind in flags.kind
            ),
        )


if __name__ == "__main__":
    sys.exit(main())
