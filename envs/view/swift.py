"""The browser view: an arm, its gripper and what is around it in the Swift simulator."""

import math
import sys
import tempfile
import time
import webbrowser
from typing import Any

import numpy as np

from envs.robots import Robot
from envs.view.browser import HOW_TO_INSTALL, Browser, find_browser, how_to_open
from envs.view.camera import CORNER, Camera, check_camera
from envs.view.scene import Drawing, Frame
from envs.view.server import LocalSwift, Panel
from td3_robot.errors import ConfigError, ViewerError

_RELOAD = 5.0  # [s] that a page has to come back
_PAGE_TIMEOUT = (
    30.0  # [s] from starting a browser to its page being up; a cold start on a slow disk takes long
)


class SwiftViewer:
    """Shows frames in a browser tab, from construction to `close`. Use it as a context manager.

    Args:
        robot: what to show.
        open_browser: open the page in this machine's browser and wait for it. If False, open `url`
            yourself; the first `show` waits for that.
        panel: controls to put beside the picture, in place of Swift's own.
        wide: how far on the arm's sides others stand that are to be seen, too [m].
        camera: where from, see `camera.placed`.
        port: to serve the page on; 0 takes a free one.
        patience: how long to wait for somebody to open the page [s].
        realtime: `show` takes at least `dt` of wall time. If False it returns as soon as the page
            has it.

    Attributes:
        url: where the page is, on this machine only.
        address: (host, port) that it is served on.

    Raises:
        ViewerError: there is no browser or display, or the page did not come up.
    """

    def __init__(
        self,
        robot: Robot,
        open_browser: bool = True,
        realtime: bool = True,
        panel: Panel | None = None,
        wide: float = 0.0,
        camera: Camera = CORNER,
        port: int = 0,
        patience: float = _PAGE_TIMEOUT,
    ):
        command = find_browser() if open_browser else None  # before anything is started
        self._robot, self._realtime, self._panel = robot, realtime, panel
        self._patience, self._seen = patience, (wide, camera)
        check_camera(camera)
        self._swift = LocalSwift(port)
        self.url, self.address = self._swift.url, self._swift.address
        self._drawing: Drawing | None = None  # once the page is connected
        self._browser: Browser | None = None  # that was started for the page
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
            Whether the page is still there, or there again, reloaded. False, from now on, once its
            tab was closed, which a line on stderr says.

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
                self._drawing = Drawing(self._swift, self._robot, *self._seen)
            self._drawing.draw(frame)
        except TimeoutError:  # how Swift says that the tab was closed or no longer answers
            self._lost()
        except SystemExit:  # what Swift makes of Ctrl-C, after closing itself
            self._end_browser()
            self.closed = True
            raise KeyboardInterrupt from None
        return not self.closed

    def _lost(self) -> None:
        """Wait for the page to come back, as one does that is reloaded; else end, and say so."""
        stopped = self._browser.failed if self._browser is not None else ""
        if self.closed or (not stopped and self._comes_back()):
            return
        if self._browser is not None:
            self._browser.leave()  # what else is open in it is not ours to close
        self._browser = None
        self.close()
        print(
            f"{stopped or 'the page was closed'}: the view has ended", file=sys.stderr, flush=True
        )

    def _comes_back(self) -> bool:
        """Whether the page is there again after a moment, ready to be drawn anew."""
        self._swift, self._drawing = self._swift.renewed(), None
        give_up = time.monotonic() + _RELOAD
        while not self.closed and time.monotonic() < give_up:
            try:
                if self._swift.connected(timeout=0.1):
                    self._swift.launch(self._realtime, self._panel)
                    self._drawing = Drawing(self._swift, self._robot, *self._seen)
                    return True
            except TimeoutError:  # gone again
                self._swift = self._swift.renewed()
        return False

    def close(self) -> None:
        """Disconnect the page, stop the servers and the browser that was started. Does nothing the
        second time.
        """
        if not self.closed:
            self._end_browser()
            self.closed = True
            self._swift.close()

    def _end_browser(self) -> None:
        """A browser that was running before only got another tab, and started nothing that
        stays.
        """
        if self._browser is not None:
            self._browser.end()

    def _checked(self, q) -> np.ndarray:
        array, shape = np.asarray(q, dtype=float), (self._robot.n,)
        if array.shape != shape or not np.isfinite(array).all():
            raise ConfigError(
                f"q must be finite with shape {shape} for robot {self._robot.name!r}, got {q}"
            )
        return array

    def _open(self, command: list[str] | None) -> None:
        """Open the page with `find_browser`'s command, wait for it and draw the robot."""
        try:
            if command is None:
                if not webbrowser.open_new_tab(self.url):
                    raise ViewerError(f"the system could not open a browser; {HOW_TO_INSTALL}")
                self._wait_for_page()
            else:
                with tempfile.TemporaryFile(
                    "w+"
                ) as complaints:  # a file: a pipe that nobody reads blocks at 64 kB
                    self._browser = Browser(command, self.url, complaints)
                    self._wait_for_page(complaints)
            self._drawing = Drawing(self._swift, self._robot, *self._seen)
        except TimeoutError:
            raise ViewerError("the browser tab was closed before the robot was loaded") from None

    def _wait_for_page(self, complaints: Any = ()) -> None:
        """Wait until the page says hello, or until the browser that was to show it has failed."""
        give_up, browser = time.monotonic() + self._patience, self._browser
        while not self._swift.connected(timeout=0.1):
            if browser is not None and browser.failed:
                complaints.seek(0)
                last = (
                    [line.strip() for line in complaints if line.strip()] or ["it said nothing"]
                )[-1]
                raise ViewerError(f"{browser.failed}: {last}")
            if self.closed:  # by another thread
                raise TimeoutError
            if time.monotonic() > give_up:
                raise ViewerError(f"no browser showed {self.url} within {self._patience:.0f} s")
        self._swift.launch(self._realtime, self._panel)


def shown_by(robot: Robot, open_browser: bool = True, **named) -> SwiftViewer:
    """A `SwiftViewer` in this machine's browser; or one whose page is served, its address printed,
    for whoever comes.

    Args:
        robot, open_browser, named: as of `SwiftViewer`.
    """
    if open_browser:
        return SwiftViewer(robot, **named)
    viewer = SwiftViewer(robot, open_browser=False, patience=math.inf, **named)
    print(how_to_open(viewer.url), flush=True)
    return viewer
