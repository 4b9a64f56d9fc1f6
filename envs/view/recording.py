"""Pictures and videos of the browser view, drawn by a Chromium without a window."""

import importlib.util
import io
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from envs.robots import Robot
from envs.view.scene import Frame
from envs.view.swift import SwiftViewer
from td3_robot.errors import ConfigError, ViewerError, unknown

_CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")
_FORMATS = (".png", ".gif", ".mp4")
_PATIENCE = 300_000  # [ms] for a picture, where many other things run
_CRF = 20  # constant quality of the H.264 video; 18 to 23 is the usual range

# Software rendering is far slower than real time, and would show a state half drawn or not at all. So the
# page's animation loop is held: it draws once for each call of drawFrame.
_HOLD_ANIMATION = """
let pending = null;
window.requestAnimationFrame = (callback) => { pending = callback; return 0; };
window.drawFrame = () => { const draw = pending; pending = null; draw(performance.now()); };
"""
# The picture holds the scene and the label; Swift's buttons and clock are of no use in it.
_HIDE_CONTROLS = ".control-panel, .info { display: none !important; }"


def find_chromium() -> str:
    """Path of the Chromium or Chrome that draws the pictures.

    Raises:
        ViewerError: there is none.
    """
    for name in _CHROMIUMS:
        path = shutil.which(name)
        if path:
            return path
    raise ViewerError("recording needs Chromium; install it, for example on Debian or Ubuntu: apt install chromium")


def record(
    robot: Robot, frames: Iterable[Frame], path: str | Path, size: tuple[int, int] = (960, 640), wide: float = 0.0
) -> Path:
    """Draw frames as the browser view shows them, one picture a frame, and write them to a file.

    Args:
        robot: what to show.
        frames: arguments of `SwiftViewer.show`; the first one's `dt` sets the speed of a video.
        path: .png keeps the last frame; .gif and .mp4 keep all (a GIF shows equal neighbours as one, for
            longer). Its folder must exist.
        size: width and height in pixels, both even.
        wide: see `SwiftViewer`.

    Returns:
        The path written. On an error no file is left behind.

    Raises:
        ConfigError: the path's ending or folder is wrong, or there are no frames.
        ViewerError: Chromium or a Python package is missing, or the page could not be drawn.
    """
    path = Path(path)
    _check(path, size)
    frames = iter(frames)
    first = next(frames, None)
    if first is None:
        raise ConfigError("there are no frames to record")
    first = Frame(*first)
    with headless_page(size) as page, SwiftViewer(robot, open_browser=False, realtime=False, wide=wide) as viewer:
        pictures = _draw(page, viewer, first, frames)
        partial = path.with_name(f".{os.getpid()}-{path.name}")  # same ending: it names the format
        try:
            _WRITERS[path.suffix.lower()](partial, pictures, first.dt)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    return path


def _check(path: Path, size: tuple[int, int]) -> None:
    """Find out what is wrong before minutes are spent on drawing."""
    if path.suffix.lower() not in _FORMATS:
        raise unknown("recording format", path.suffix, _FORMATS)
    if not os.path.isdir(path.parent):
        raise ConfigError(f"cannot record to {str(path)!r}: folder {str(path.parent)!r} does not exist")
    if os.path.isdir(path) or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"cannot record to {str(path)!r}: it is a folder, or lies in one that cannot be written")
    if any(pixels < 2 or pixels % 2 for pixels in size):
        raise ConfigError(f"size must be two even numbers of pixels, got {size}")
    find_chromium()
    needed = {"playwright": "playwright", "imageio": "imageio"}
    if path.suffix.lower() == ".mp4":
        needed["imageio_ffmpeg"] = "imageio-ffmpeg"
    missing = [package for module, package in needed.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise ViewerError(f"recording needs {' and '.join(missing)}: pip install {' '.join(missing)}")


@contextmanager
def headless_page(size: tuple[int, int]):
    """An empty page of a fresh Chromium whose animation loop is held (see above)."""
    from playwright.sync_api import Error, sync_playwright

    arguments = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--hide-scrollbars"]
    if sys.platform.startswith("linux") and os.geteuid() == 0:
        arguments.append("--no-sandbox")  # Chromium's sandbox refuses to run as root, as in a container
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=arguments)
            page = browser.new_page(viewport={"width": size[0], "height": size[1]})
            page.set_default_timeout(_PATIENCE)
            page.add_init_script(_HOLD_ANIMATION)
            yield page
            browser.close()
    except Error as error:
        raise ViewerError(f"Chromium could not draw the page: {error.message.splitlines()[0]}") from None


def _draw(page, viewer: SwiftViewer, first: Frame, rest: Iterable[Frame]) -> Iterator[np.ndarray]:
    """One (height, width, 3) uint8 picture a frame."""
    import imageio.v3 as iio

    page.goto(viewer.url)
    page.add_style_tag(content=_HIDE_CONTROLS)

    def picture(frame: Frame) -> np.ndarray:
        if not viewer.show(*frame):
            raise ViewerError("Chromium closed the page while it was being recorded")
        page.evaluate("drawFrame()")
        return iio.imread(io.BytesIO(page.screenshot(type="png")))[..., :3]

    yield picture(first)
    yield from map(picture, rest)


def _write_png(path: Path, pictures: Iterator[np.ndarray], dt: float) -> None:
    import imageio.v3 as iio

    for picture in pictures:
        last = picture
    iio.imwrite(path, last)


def _write_gif(path: Path, pictures: Iterator[np.ndarray], dt: float) -> None:
    from PIL import Image  # imageio's own way to read and write pictures

    first = next(pictures)
    palette = Image.fromarray(_palette_sample(first)).quantize(256)
    indexed = lambda picture: Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE)  # noqa: E731
    rest = [indexed(picture) for picture in pictures]
    indexed(first).save(path, save_all=True, append_images=rest, duration=round(1000 * dt), loop=0)


def _palette_sample(picture: np.ndarray) -> np.ndarray:
    """The picture with more of its vivid pixels below it, (., width, 3).

    A palette goes by area, and so would spend all its colours on the backdrop's gradient and none on the
    small goal.
    """
    vivid = picture[np.ptp(picture, axis=-1) > 60]
    if len(vivid) == 0:
        return picture
    width = picture.shape[1]
    return np.concatenate((picture, np.resize(vivid, (len(picture) // 5, width, 3))))


def _write_mp4(path: Path, pictures: Iterator[np.ndarray], dt: float) -> None:
    import imageio

    options = ["-crf", str(_CRF)]
    with imageio.get_writer(path, fps=1.0 / dt, macro_block_size=2, output_params=options, quality=None) as video:
        writer: Any = video
        for picture in pictures:
            writer.append_data(picture)


_WRITERS = {".png": _write_png, ".gif": _write_gif, ".mp4": _write_mp4}
