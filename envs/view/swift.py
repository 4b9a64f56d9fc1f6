"""The browser view: one arm, its gripper and what is around it in the Swift simulator."""

import html
import shlex
import subprocess
import tempfile
import time
import webbrowser
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import spatialgeometry as sg
from spatialmath import SE3
from swift import DirectionalLight, HemisphereLight, Label

from envs.robots import Robot
from envs.view.browser import HOW_TO_INSTALL, find_browser
from envs.view.scene import Shape, goal_shapes
from envs.view.server import LocalSwift
from td3_robot.errors import ConfigError, ViewerError

_PAGE_TIMEOUT = 30.0  # [s] from starting a browser to its page being up; a cold start on a slow disk takes long


class Frame(NamedTuple):
    """One picture: the arguments of `SwiftViewer.show`."""

    q: np.ndarray  # (n,) [rad or m]
    gripper: float = 0.0  # driver coordinate [rad or m]
    T_bt: np.ndarray | None = None  # (4, 4) goal pose in the base frame
    text: str = ""
    dt: float = 0.05  # [s] until the next picture
    shapes: tuple[Shape, ...] = ()  # what else is there to see


class SwiftViewer:
    """Shows frames in a browser tab, from construction to `close`. Use it as a context manager.

    Args:
        robot: what to show.
        open_browser: open the page in this machine's browser and wait for it. If False, open `url`
            yourself; the first `show` waits for that.
        realtime: `show` takes at least `dt` of wall time. If False it returns as soon as the page has it.

    Attributes:
        url: where the page is, on this machine only.
        addresses: (host, port) of the HTTP server and of the websocket.

    Raises:
        ViewerError: there is no browser or display, or the page did not come up.
    """

    def __init__(self, robot: Robot, open_browser: bool = True, realtime: bool = True):
        command = find_browser() if open_browser else None  # before anything is started
        self._robot, self._realtime = robot, realtime
        self._swift = LocalSwift()
        self.url, self.addresses = self._swift.url, self._swift.addresses
        self._arm = None  # Swift's handle of the robot, once the page is connected
        self._drawn: list[tuple[tuple, sg.Shape]] = []  # what each thing around the arm looks like, and the thing
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

    def show(
        self,
        q: np.ndarray,
        gripper: float = 0.0,
        T_bt: np.ndarray | None = None,
        text: str = "",
        dt: float = 0.05,
        shapes: Iterable[Shape] = (),
    ) -> bool:
        """Draw one state.

        Args:
            q: (n,) joint positions [rad or m].
            gripper: the gripper's driver coordinate [rad or m]; ignored without a gripper.
            T_bt: (4, 4) goal pose in the base frame, drawn as axes; None draws no goal.
            text: a line shown over the picture.
            dt: time until the next frame [s].
            shapes: what else to draw; where only poses differ from the last frame's, nothing is made anew.

        Returns:
            Whether the page is still there. False, from now on, once its tab was closed.

        Raises:
            ConfigError: q or T_bt is not finite or not of this robot's shape.
            ViewerError: nobody opened the page, or the page could not load the robot's meshes.
        """
        q, T_bt = self._checked("q", q, (self._robot.n,)), None if T_bt is None else self._checked("T_bt", T_bt, (4, 4))
        if self.closed:
            return False
        try:
            if self._arm is None:
                self._wait_for_page()
                self._build_scene()
            self._arm.q = q
            self._place_fingers(gripper)
            self._place([*(() if T_bt is None else goal_shapes(T_bt)), *shapes])
            self._label.label = html.escape(text)
            self._swift.step(dt)
        except TimeoutError:  # how Swift says that the tab was closed or no longer answers
            self.close()
        except SystemExit:  # what Swift makes of Ctrl-C, after closing itself
            self.closed = True
            raise KeyboardInterrupt from None
        return not self.closed

    def close(self) -> None:
        """Disconnect the page and stop the servers. Does nothing the second time."""
        if not self.closed:
            self.closed = True
            self._swift.close()

    def _checked(self, name: str, value, shape: tuple[int, ...]) -> np.ndarray:
        array = np.asarray(value, dtype=float)
        if array.shape != shape or not np.isfinite(array).all():
            raise ConfigError(f"{name} must be finite with shape {shape} for robot {self._robot.name!r}, got {value}")
        return array

    def _open(self, command: list[str] | None) -> None:
        """Open the page with `find_browser`'s command, wait for it and build the scene."""
        if command is None:
            if not webbrowser.open_new_tab(self.url):
                raise ViewerError(f"the system could not open a browser; {HOW_TO_INSTALL}")
            self._wait_for_page()
        else:
            with tempfile.TemporaryFile("w+") as complaints:  # a file: a pipe that nobody reads blocks at 64 kB
                try:
                    browser = subprocess.Popen(
                        [*command, self.url],
                        stdout=subprocess.DEVNULL,
                        stderr=complaints,
                        start_new_session=True,  # Ctrl-C in the terminal is not for the browser
                    )
                except OSError as error:
                    raise ViewerError(f"cannot run the browser {shlex.join(command)!r}: {error}") from None
                self._wait_for_page(browser, complaints)
        try:
            self._build_scene()
        except TimeoutError:
            raise ViewerError("the browser tab was closed before the robot was loaded") from None

    def _wait_for_page(self, browser: subprocess.Popen | None = None, complaints=None) -> None:
        """Wait until the page says hello, or until the browser that was to show it has failed."""
        give_up = time.monotonic() + _PAGE_TIMEOUT
        while not self._swift.connected(timeout=0.1):
            if browser is not None and browser.poll():
                complaints.seek(0)
                last = ([line.strip() for line in complaints if line.strip()] or ["it said nothing"])[-1]
                ended = f"the browser {browser.args[0]!r} stopped with exit code {browser.returncode}"
                raise ViewerError(f"{ended}: {last}")
            if time.monotonic() > give_up:
                raise ViewerError(f"no browser showed {self.url} within {_PAGE_TIMEOUT:.0f} s")
        self._swift.launch(realtime=self._realtime)

    def _build_scene(self) -> None:
        swift = self._swift
        swift.set_lights(
            [
                HemisphereLight(sky_color=(1.0, 1.0, 1.0), ground_color=(0.45, 0.45, 0.5), intensity=1.25),
                DirectionalLight(position=(1.2, -0.6, 2.2), target=(0.3, 0.0, 0.2), intensity=2.1),
            ]
        )
        low, high = self._robot.workspace
        reach = float(np.linalg.norm(np.abs([low, high]).max(0)))
        look_at = np.array([0.25, 0.0, 0.33]) * reach  # from here and there, all of the workspace is in view
        swift.set_camera_pose(look_at + np.array([0.97, -1.33, 0.51]) * reach, look_at)
        self._label = swift.add_ui(Label())
        try:
            self._arm = swift.add_robot(self._robot.rtb, readonly=True)
        except RuntimeError as error:  # a mesh that is missing or cannot be read
            raise ViewerError(f"cannot show robot {self._robot.name!r}: {str(error).splitlines()[0]}") from None

    def _place_fingers(self, gripper: float) -> None:
        """Joints of the drawn gripper, where its driver coordinate puts them."""
        hand = self._robot._gripper
        for drawn in self._robot.rtb.grippers if hand else ():
            drawn.q = hand.model_q(drawn, float(gripper))

    def _place(self, shapes: list[Shape]) -> None:
        """Move what is drawn to where it is now; what looks another way is drawn anew, what is gone is removed."""
        kept = []
        for i, shape in enumerate(shapes):
            pose = SE3(self._robot.rtb.base.A @ shape.T_bs, check=False)
            if i < len(self._drawn) and self._drawn[i][0] == shape.look:
                self._drawn[i][1].T = pose
                kept.append(self._drawn[i])
            else:
                kept.append((shape.look, _drawable(shape, pose)))
                self._swift.add_shape(kept[i][1])
        for pair in self._drawn:
            if not any(pair is other for other in kept):
                self._swift.remove(pair[1])
        self._drawn = kept


def _drawable(shape: Shape, pose: SE3) -> sg.Shape:
    """Swift's own description of a shape."""
    if shape.kind == "sphere":
        return sg.Sphere(shape.size[0], color=shape.colour, pose=pose)
    if shape.kind == "box":
        return sg.Cuboid(shape.size, color=shape.colour, pose=pose)
    if shape.kind == "axes":
        return sg.Axes(shape.size[0], arrows=True, radius=0.004, pose=pose)
    return sg.Polyline(np.transpose(shape.points), radius=shape.size[0], color=shape.colour, pose=pose)
