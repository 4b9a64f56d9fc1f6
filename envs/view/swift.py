"""The browser view: an arm, its gripper and what is around it in the Swift simulator."""

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
import webbrowser
from typing import Any

import numpy as np

from envs.robots import Robot
from envs.view.browser import HOW_TO_INSTALL, find_browser
from envs.view.scene import Drawing, Frame
from envs.view.server import LocalSwift, Panel
from td3_robot.errors import ConfigError, ViewerError

_PAGE_TIMEOUT = 30.0  # [s] from starting a browser to its page being up; a cold start on a slow disk takes long


class SwiftViewer:
    """Shows frames in a browser tab, from construction to `close`. Use it as a context manager.

    Args:
        robot: what to show.
        open_browser: open the page in this machine's browser and wait for it. If False, open `url`
            yourself; the first `show` waits for that.
        panel: controls to put beside the picture, in place of Swift's own.
        realtime: `show` takes at least `dt` of wall time. If False it returns as soon as the page has it.

    Attributes:
        url: where the page is, on this machine only.
        addresses: (host, port) of the HTTP server and of the websocket.

    Raises:
        ViewerError: there is no browser or display, or the page did not come up.
    """

    def __init__(self, robot: Robot, open_browser: bool = True, realtime: bool = True, panel: Panel | None = None):
        command = find_browser() if open_browser else None  # before anything is started
        self._robot, self._realtime, self._panel = robot, realtime, panel
        self._swift = LocalSwift()
        self.url, self.addresses = self._swift.url, self._swift.addresses
        self._drawing: Drawing | None = None  # once the page is connected
        self._browser: subprocess.Popen | None = None  # that was started for the page
        self.closed = False
        if open_browser:
            try:
                self._open(command)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> "SwiftViewer":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def show(self, *frame, **named) -> bool:
        """Draw one state.

        Args:
            frame, named: the fields of a `Frame`.

        Returns:
            Whether the page is still there. False, from now on, once its tab was closed.

        Raises:
            ConfigError: q is not finite or not of this robot's shape.
            ViewerError: nobody opened the page, or the page could not load the robot's meshes.
        """
        frame = Frame(*frame, **named)
        ghosts = tuple(ghost._replace(q=self._checked(ghost.q)) for ghost in frame.ghosts)
        frame = frame._replace(q=self._checked(frame.q), ghosts=ghosts)
        if self.closed:
            return False
        try:
            if self._drawing is None:
                self._wait_for_page()
                self._drawing = Drawing(self._swift, self._robot)
            self._drawing.draw(frame)
        except TimeoutError:  # how Swift says that the tab was closed or no longer answers
            self._browser = None  # what else is open in it is not ours to close
            self.close()
        except SystemExit:  # what Swift makes of Ctrl-C, after closing itself
            self._end_browser()
            self.closed = True
            raise KeyboardInterrupt from None
        return not self.closed

    def close(self) -> None:
        """Disconnect the page, stop the servers and the browser that was started. Does nothing the second time."""
        if not self.closed:
            self._end_browser()
            self.closed = True
            self._swift.close()

    def _end_browser(self) -> None:
        """A browser that was running before only got another tab, and started nothing that stays."""
        if self._browser is not None and self._browser.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._browser.pid, signal.SIGTERM)

    def _checked(self, q) -> np.ndarray:
        array, shape = np.asarray(q, dtype=float), (self._robot.n,)
        if array.shape != shape or not np.isfinite(array).all():
            raise ConfigError(f"q must be finite with shape {shape} for robot {self._robot.name!r}, got {q}")
        return array

    def _open(self, command: list[str] | None) -> None:
        """Open the page with `find_browser`'s command, wait for it and draw the robot."""
        try:
            if command is None:
                if not webbrowser.open_new_tab(self.url):
                    raise ViewerError(f"the system could not open a browser; {HOW_TO_INSTALL}")
                self._wait_for_page()
            else:
                with tempfile.TemporaryFile("w+") as complaints:  # a file: a pipe that nobody reads blocks at 64 kB
                    self._browser = _start(command, self.url, complaints)
                    self._wait_for_page(complaints)
            self._drawing = Drawing(self._swift, self._robot)
        except TimeoutError:
            raise ViewerError("the browser tab was closed before the robot was loaded") from None

    def _wait_for_page(self, complaints: Any = ()) -> None:
        """Wait until the page says hello, or until the browser that was to show it has failed."""
        give_up, browser = time.monotonic() + _PAGE_TIMEOUT, self._browser
        while not self._swift.connected(timeout=0.1):
            if browser is not None and browser.poll():
                complaints.seek(0)
                last = ([line.strip() for line in complaints if line.strip()] or ["it said nothing"])[-1]
                command: Any = browser.args
                ended = f"the browser {command[0]!r} stopped with exit code {browser.returncode}"
                raise ViewerError(f"{ended}: {last}")
            if time.monotonic() > give_up:
                raise ViewerError(f"no browser showed {self.url} within {_PAGE_TIMEOUT:.0f} s")
        self._swift.launch(self._realtime, self._panel)


def _start(command: list[str], url: str, complaints) -> subprocess.Popen:
    """Run a browser, in a session of its own: Ctrl-C in the terminal is not for it."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": complaints}
    try:
        return subprocess.Popen([*command, url], **quiet, start_new_session=True)
    except OSError as error:
        raise ViewerError(f"cannot run the browser {shlex.join(command)!r}: {error}") from None
