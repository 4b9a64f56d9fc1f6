"""Rendering of our Gymnasium environments: pictures, or a page in the browser."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from envs.arm_env.arm_env import ArmEnv
from envs.tasks.registry import find_task_name
from envs.view.playback import make_frame
from envs.view.scene import Frame
from envs.world import Moment
from td3_robot.errors import ConfigError, ViewerError

_SIZE = (480, 360)  # [px]
PATIENCE = 300.0  # [s] for somebody to open the page; gymnasium's `check_env` has nobody


class Renderer(Protocol):
    """Protocol of a renderer."""

    def show(self, arm: ArmEnv, moment: Moment) -> np.ndarray | None:
        """Show a moment of one arm; return a picture (height, width, 3) uint8 or None."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


def make_renderer(mode: str | None) -> Renderer | None:
    """Make the renderer of a render mode; None for None.

    Raises:
        ConfigError: unknown mode.
    """
    if mode is None:
        return None
    if mode not in MODES:
        raise ConfigError(f"render_mode must be None or one of {', '.join(MODES)}, got {mode!r}")
    return MODES[mode]()


def _make_frame(arm: ArmEnv, moment: Moment) -> Frame:
    return make_frame(arm, moment, f"{arm.robot.name}, {find_task_name(arm.task)}")


class BrowserRenderer:
    """Renderer to the browser view, in real time."""

    def __init__(self):
        self._viewer = None

    def show(self, arm: ArmEnv, moment: Moment) -> None:
        """Show a moment in the page.

        Raises:
            ViewerError: the page could not be opened, or nobody opened it within `PATIENCE`.
        """
        from envs.view.browser import have_browser
        from envs.view.swift import open_viewer

        self._viewer = self._viewer or open_viewer(
            arm.robot, open_browser=have_browser(), patience=PATIENCE
        )
        self._viewer.show(*_make_frame(arm, moment))

    def close(self) -> None:
        """Close the page."""
        if self._viewer is not None:
            self._viewer.close()


class PictureRenderer:
    """Renderer to pictures by headless Chromium, in a thread since a notebook's cannot drive it."""

    def __init__(self):
        self._thread = ThreadPoolExecutor(1)
        self._drawn: Generator[np.ndarray, None, None] | None = None
        self._frame: Frame | None = None
        self._closed = False

    def show(self, arm: ArmEnv, moment: Moment) -> np.ndarray:
        """Draw a moment as a picture.

        Raises:
            ViewerError: a package or Chromium is missing or fails, or the renderer is closed.
        """
        if self._closed:
            raise ViewerError("there is no picture: the renderer is closed")
        self._frame = _make_frame(arm, moment)
        return self._thread.submit(self._draw_next, arm).result()

    def _draw_next(self, arm: ArmEnv) -> np.ndarray:
        if self._drawn is None:
            self._drawn = self._draw_all(arm)
        try:
            return next(self._drawn)
        except BaseException:
            self._drawn = None  # one that has raised yields no more
            raise

    def _draw_all(self, arm: ArmEnv) -> Generator[np.ndarray, None, None]:
        from envs.view.recording import draw, open_headless_page
        from envs.view.swift import SwiftViewer

        with (
            open_headless_page(_SIZE) as page,
            SwiftViewer(arm.robot, open_browser=False, realtime=False) as viewer,
        ):
            yield from draw(page, viewer, iter(lambda: self._frame, None))

    def close(self) -> None:
        """Close the browser."""
        self._closed = True
        if self._drawn is not None:
            self._thread.submit(self._drawn.close).result()
            self._drawn = None
        self._thread.shutdown()


MODES = {"human": BrowserRenderer, "rgb_array": PictureRenderer}
