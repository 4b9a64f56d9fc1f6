"""Browser view of an arm, its gripper and its surroundings in the Swift simulator."""

import math
import sys
import tempfile
import time
import webbrowser
from typing import Any

import numpy as np

from envs.robots import Robot
from envs.robots.meshes import check_mesh
from envs.view.browser import HOW_TO_INSTALL, Browser, explain_opening, find_browser
from envs.view.camera import CORNER, Camera, check_camera
from envs.view.scene import Drawing, Frame, list_parts
from envs.view.server import LocalSwift, Panel
from td3_robot.errors import ConfigError, ViewerError

_RELOAD = 5.0  # [s] for a reloaded page to come back
_PAGE_TIMEOUT = 30.0  # [s] for a browser to start, from a slow disk too


class SwiftViewer:
    """Viewer of frames in a browser tab, from construction to `close`; a context manager.

    Args:
        robot: the robot to show.
        open_browser: open the page in this machine's browser and wait for it. If False, open `url`
            yourself; the first `show` waits for that.
        panel: controls beside the picture, in place of Swift's own.
        wide: half width of a grid of arms [m].
        camera: see `camera.compute_camera_pose`.
        port: to serve the page on; 0 takes a free one.
        patience: how long to wait for somebody to open the page [s].
        realtime: `show` takes at least `dt` of wall time. If False it returns as soon as the page
            has it.

    Attributes:
        url: address of the page, on this machine only.
        address: (host, port) of its server.

    Raises:
        ConfigError: a mesh of the robot is empty, cut or no mesh.
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
        check_camera(camera)
        for part in list_parts(robot):
            if part.stype == "mesh":
                check_mesh(part.filename)
        self._robot = robot
        self._realtime = realtime
        self._panel = panel
        self._patience = patience
        self._view = (wide, camera)
        self._swift = LocalSwift(port)
        self.url = self._swift.url
        self.address = self._swift.address
        self._drawing: Drawing | None = None  # once the page is connected
        self._browser: Browser | None = None  # the one started for the page
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
            True while the page is open or reloaded. False once its tab was closed, with a line on
            stderr.

        Raises:
            ConfigError: q is not finite or not of this robot's shape.
            ViewerError: nobody opened the page, or the page could not load the robot's meshes.
        """
        frame = Frame(*frame, **named)
        ghosts = tuple(ghost._replace(q=self._check_q(ghost.q)) for ghost in frame.ghosts)
        frame = frame._replace(q=self._check_q(frame.q), ghosts=ghosts)
        if self.closed:
            return False
        try:
            if self._drawing is None:
                self._wait_for_page()
                self._drawing = Drawing(self._swift, self._robot, *self._view)
            self._drawing.draw(frame)
        except TimeoutError:  # Swift's error when the tab was closed or does not answer
            self._handle_lost_page()
        except SystemExit:  # Swift's answer to Ctrl-C, after closing itself
            self._end_browser()
            self.closed = True
            raise KeyboardInterrupt from None
        return not self.closed

    def _handle_lost_page(self) -> None:
        """Wait for the page to be reloaded; otherwise end with a message."""
        stopped = self._browser.failed if self._browser is not None else ""
        if self.closed or (not stopped and self._wait_for_reload()):
            return
        if self._browser is not None:
            self._browser.leave()  # what else is open in it is not ours to close
        self._browser = None
        self.close()
        print(
            f"{stopped or 'the page was closed'}: the view has ended", file=sys.stderr, flush=True
        )

    def _wait_for_reload(self) -> bool:
        """Return whether the page came back, ready to be drawn."""
        self._swift = self._swift.renew()
        self._drawing = None
        give_up = time.monotonic() + _RELOAD
        while not self.closed and time.monotonic() < give_up:
            try:
                if self._swift.wait_for_page(timeout=0.1):
                    self._swift.launch(self._realtime, self._panel)
                    self._drawing = Drawing(self._swift, self._robot, *self._view)
                    return True
            except TimeoutError:  # gone again
                self._swift = self._swift.renew()
        return False

    def close(self) -> None:
        """Disconnect the page, stop server and browser. Do nothing the second time."""
        if not self.closed:
            self._end_browser()
            self.closed = True
            self._swift.close()

    def _end_browser(self) -> None:
        """Stop the browser; one that was running before only got another tab."""
        if self._browser is not None:
            self._browser.end()

    def _check_q(self, q) -> np.ndarray:
        array = np.asarray(q, dtype=float)
        shape = (self._robot.n,)
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
                # a file, since a pipe that nobody reads blocks at 64 kB
                with tempfile.TemporaryFile("w+") as complaints:
                    self._browser = Browser(command, self.url, complaints)
                    self._wait_for_page(complaints)
            self._drawing = Drawing(self._swift, self._robot, *self._view)
        except TimeoutError:
            raise ViewerError("the browser tab was closed before the robot was loaded") from None

    def _wait_for_page(self, complaints: Any = ()) -> None:
        """Wait until the page connects, or until its browser has failed."""
        give_up = time.monotonic() + self._patience
        browser = self._browser
        while not self._swift.wait_for_page(timeout=0.1):
            if browser is not None and browser.failed:
                complaints.seek(0)
                lines = [line.strip() for line in complaints if line.strip()]
                raise ViewerError(f"{browser.failed}: {(lines or ['it printed nothing'])[-1]}")
            if self.closed:  # by another thread
                raise TimeoutError
            if time.monotonic() > give_up:
                raise ViewerError(f"no browser showed {self.url} within {self._patience:.0f} s")
        self._swift.launch(self._realtime, self._panel)


def open_viewer(
    robot: Robot,
    open_browser: bool = True,
    note: str | None = None,
    patience: float | None = None,
    **named,
) -> SwiftViewer:
    """Open a `SwiftViewer` in this machine's browser, or print the address of its page.

    Args:
        robot, open_browser, named: as of `SwiftViewer`.
        note: printed once the page is served.
        patience: as of `SwiftViewer`; None waits forever for somebody to open the printed address.
    """
    if patience is None:
        patience = _PAGE_TIMEOUT if open_browser else math.inf
    viewer = SwiftViewer(robot, open_browser, patience=patience, **named)
    for line in (None if open_browser else explain_opening(viewer.url), note):
        if line is not None:
            print(line, flush=True)
    return viewer
