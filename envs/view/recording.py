"""Pictures and videos of the browser view, drawn by headless Chromium."""

import io
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from envs.robots import Robot
from envs.view.camera import CORNER, Camera
from envs.view.files import check_pictures, write_pictures
from envs.view.scene import Frame
from envs.view.swift import SwiftViewer
from td3_robot.errors import ConfigError, ViewerError, get_first_line, require_packages
from td3_robot.utils.progress import stage

_CHROMIUMS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
)
_PATIENCE = 300_000  # [ms] for a picture, where many other things run

# Software rendering is slower than real time and could show a half drawn state. So the page's
# animation loop is held: it draws once for each call of drawFrame.
_HOLD_ANIMATION = """
let pending = null;
window.requestAnimationFrame = (callback) => { pending = callback; return 0; };
window.drawFrame = () => { const draw = pending; pending = null; draw(performance.now()); };
"""
# Pictures show the scene and the label alone.
_HIDE_CONTROLS = ".control-panel, .info { display: none !important; }"


def find_chromium() -> str:
    """Find the path of the Chromium or Chrome that draws the pictures.

    Raises:
        ViewerError: neither is installed.
    """
    for name in _CHROMIUMS:
        path = shutil.which(name)
        if path:
            return path
    raise ViewerError(
        "recording needs Chromium; install it, for example on Debian or Ubuntu: "
        "apt install chromium"
    )


def record(
    robot: Robot,
    frames: Iterable[Frame],
    path: str | Path,
    size: tuple[int, int] = (960, 640),
    wide: float = 0.0,
    camera: Camera = CORNER,
    count: int | None = None,
) -> Path:
    """Draw frames as the browser view shows them, one picture a frame, and write them to a file.

    Args:
        robot: what to show.
        frames: arguments of `SwiftViewer.show`; the first one's `dt` sets the speed of a video.
        path: .png keeps the last frame; .gif, .mp4 and .webm keep all (a GIF shows equal neighbours
            as one, for longer); without an ending it becomes a folder of all of them as 0000.png
            and so on. Its folder must exist.
        size: width and height in pixels, both even.
        wide, camera: see `SwiftViewer`.
        count: number of frames, for the progress bar; None if it is unknown.

    Returns:
        The path written. On an error no file is left behind.

    Raises:
        ConfigError: the path's ending or folder is wrong, or there are no frames.
        ViewerError: Chromium or a Python package is missing, or the page could not be drawn.
    """
    path = Path(path)
    check(path, size)
    view: Any = {"wide": wide, "camera": camera}
    with stage("recording", count, "pictures") as progress:
        frames = iter(frames)
        first = next(frames, None)
        if first is None:
            raise ConfigError("there are no frames to record")
        with (
            open_headless_page(size) as page,
            SwiftViewer(robot, open_browser=False, realtime=False, **view) as viewer,
        ):
            pictures = progress.iterate(draw(page, viewer, chain([first], frames)))
            write_pictures(path, pictures, Frame(*first).dt)
    return path


def check(path: Path, size: tuple[int, int]) -> None:
    """Check `record`'s arguments before minutes are spent on drawing; it raises the same errors."""
    check_pictures(path)
    if any(pixels < 2 or pixels % 2 for pixels in size):
        raise ConfigError(f"size must be two even numbers of pixels, got {size}")
    find_chromium()
    require_packages("recording", "playwright")


@contextmanager
def open_headless_page(size: tuple[int, int]):
    """Open an empty page of a new Chromium whose animation loop is held (see above)."""
    from playwright.sync_api import Error, sync_playwright

    arguments = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--hide-scrollbars"]
    if sys.platform.startswith("linux") and os.geteuid() == 0:
        arguments.append("--no-sandbox")  # the sandbox refuses to run as root, as in a container
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=arguments)
            page = browser.new_page(viewport={"width": size[0], "height": size[1]})
            page.set_default_timeout(_PATIENCE)
            page.add_init_script(_HOLD_ANIMATION)
            yield page
            browser.close()
    except Error as error:
        raise ViewerError(f"Chromium could not draw the page: {get_first_line(error)}") from None


def draw(page, viewer: SwiftViewer, frames: Iterable[Frame]) -> Iterator[np.ndarray]:
    """Draw one picture (height, width, 3) uint8 per frame.

    Args:
        page: from `open_headless_page`; opens the viewer's page.
        viewer: serves the page; it has shown nothing yet.
        frames: the frames to draw.
    """
    import imageio.v3 as iio

    page.goto(viewer.url)
    page.add_style_tag(content=_HIDE_CONTROLS)

    def take_picture(frame: Frame) -> np.ndarray:
        if not viewer.show(*frame):
            raise ViewerError("Chromium closed the page while it was being recorded")
        page.evaluate("drawFrame()")
        return iio.imread(io.BytesIO(page.screenshot(type="png")))[..., :3]

    yield from map(take_picture, frames)
