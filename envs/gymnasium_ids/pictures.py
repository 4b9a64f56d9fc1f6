"""What `render` of our Gymnasium environments gives: pictures, or a page in the browser."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from envs.arm_env.arm_env import ArmEnv
from envs.tasks.registry import name_of
from envs.view.playback import make_frame
from envs.view.scene import Frame
from envs.world import Moment
from td3_robot.errors import ConfigError

_SIZE = (480, 360)  # [px]


class Pictures(Protocol):
    """One of the two."""

    def show(self, arm: ArmEnv, moment: Moment) -> np.ndarray | None:
        """A moment of an environment of one arm; its picture (height, width, 3) uint8, where there
        is one.
        """
        ...

    def close(self) -> None:
        """End it."""
        ...


def pictures(mode: str | None) -> Pictures | None:
    """Those of a render mode.

    Raises:
        ConfigError: there is no such mode.
    """
    if mode is None:
        return None
    if mode not in MODES:
        raise ConfigError(f"render_mode must be None or one of {', '.join(MODES)}, got {mode!r}")
    return MODES[mode]()


def _frame(arm: ArmEnv, moment: Moment) -> Frame:
    return make_frame(arm, moment, f"{arm.robot.name}, {name_of(arm.task)}")


class Page:
    """The browser view, one control period at a time in real time."""

    def __init__(self):
        self._viewer = None

    def show(self, arm: ArmEnv, moment: Moment) -> None:
        """See `Pictures.show`."""
        from envs.view.browser import have_browser
        from envs.view.swift import open_viewer

        self._viewer = self._viewer or open_viewer(arm.robot, open_browser=have_browser())
        self._viewer.show(*_frame(arm, moment))

    def close(self) -> None:
        """See `Pictures.close`."""
        if self._viewer is not None:
            self._viewer.close()


class Array:
    """Pictures drawn by a Chromium without a window; in a thread, as a notebook's own cannot drive
    one.
    """

    def __init__(self):
        self._thread = ThreadPoolExecutor(1)
        self._drawn: Generator[np.ndarray, None, None] | None = None
        self._frame: Frame | None = None

    def show(self, arm: ArmEnv, moment: Moment) -> np.ndarray:
        """See `Pictures.show`."""
        self._frame = _frame(arm, moment)
        return self._thread.submit(self._next, arm).result()

    def _next(self, arm: ArmEnv) -> np.ndarray:
        if self._drawn is None:
            self._drawn = self._all(arm)
        return next(self._drawn)

    def _all(self, arm: ArmEnv) -> Generator[np.ndarray, None, None]:
        from envs.view.recording import draw, open_headless_page
        from envs.view.swift import SwiftViewer

        with (
            open_headless_page(_SIZE) as page,
            SwiftViewer(arm.robot, open_browser=False, realtime=False) as viewer,
        ):
            yield from draw(page, viewer, iter(lambda: self._frame, None))

    def close(self) -> None:
        """See `Pictures.close`."""
        if self._drawn is not None:
            self._thread.submit(self._drawn.close).result()
            self._drawn = None
        self._thread.shutdown()


MODES = {"human": Page, "rgb_array": Array}
