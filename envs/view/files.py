"""Picture files: PNG, GIF, videos, and folders of PNGs."""

import contextlib
import math
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from td3_robot.errors import ConfigError, require_packages, unknown

_CRF = 20  # constant quality of the H.264 video; 18 to 23 is the usual range
_CRF_VP9 = 31  # that of VP9 as good, as its authors recommend for 1080p
_SHORTEST = 0.02  # [s] that a picture of a GIF stands; browsers show shorter ones for 0.1 s
_FOLDER = ""  # the ending of a folder's name


def check_pictures(path: Path) -> None:
    """Check a recording's path before minutes are spent on drawing.

    Raises:
        ConfigError: the path's ending or folder is wrong.
        ViewerError: a Python package is missing.
    """
    ending = path.suffix.lower()
    if ending not in _WRITERS:
        raise unknown(
            "recording format", ending, [name for name in _WRITERS if name] + ["a folder's name"]
        )
    if not os.path.isdir(path.parent):
        raise ConfigError(
            f"cannot record to {str(path)!r}: folder {str(path.parent)!r} does not exist"
        )
    try:
        with contextlib.suppress(FileNotFoundError):
            os.lstat(path)
    except (OSError, ValueError) as error:  # its name is too long, or no name
        reason = getattr(error, "strerror", error)
        raise ConfigError(f"cannot record to {str(path)!r}: {reason}") from error
    taken = os.path.exists(path) if ending == _FOLDER else os.path.isdir(path)
    if taken or not os.access(path.parent, os.W_OK):
        raise ConfigError(
            f"cannot record to {str(path)!r}: it exists, or its folder cannot be written to"
        )
    modules = ("imageio", "imageio_ffmpeg") if ending in _VIDEO else ("imageio",)
    require_packages("recording", *modules)


def write_pictures(path: Path, pictures: Iterable[np.ndarray], dt: float) -> None:
    """Write pictures as `record` does; on an error no file is left behind.

    Args:
        path: as `check_pictures` takes it.
        pictures: at least one, (height, width, 3) uint8.
        dt: how long each is shown [s].

    Raises:
        ConfigError: they cannot be written, for example because the disk is full.
    """
    # ffmpeg may end later than this process: cleaning up may fail
    hidden: Any = {"prefix": ".", "dir": path.parent, "ignore_cleanup_errors": True}
    try:
        with tempfile.TemporaryDirectory(**hidden) as folder:
            partial = Path(folder, path.name)
            _WRITERS[path.suffix.lower()](partial, iter(pictures), dt)
            partial.replace(path)
    except OSError as error:
        why = (
            error.strerror or "not all of it was written; is the disk full?"
        )  # ffmpeg says no more
        raise ConfigError(f"cannot record to {str(path)!r}: {why}") from error


def _write_png(path: Path, pictures: Iterator[np.ndarray], dt: float) -> None:
    for picture in pictures:
        last = picture
    path.write_bytes(_encode_png(last))


def _write_folder(path: Path, pictures: Iterator[np.ndarray], dt: float) -> None:
    path.mkdir()
    for number, picture in enumerate(pictures):
        (path / f"{number:04}.png").write_bytes(_encode_png(picture))


def _encode_png(picture: np.ndarray) -> bytes:
    import imageio.v3 as iio

    return iio.imwrite("<bytes>", picture, extension=".png")  # type: ignore[return-value]


def _write_gif(path: Path, pictures: Iterator[np.ndarray], dt: float) -> None:
    """Write a GIF; its pictures share one palette, made from samples of each.

    Its time unit is 1/100 s, and browsers show pictures of less than 2/100 s for 10/100 s.
    """
    from PIL import Image  # imageio's own library to read and write pictures

    every = max(1, math.ceil(_SHORTEST / dt - 1e-9))
    pictures = islice(pictures, 0, None, every)
    dt *= every
    first = next(pictures)
    packed = []
    sample = [first]
    for picture in chain([first], pictures):
        packed.append(zlib.compress(picture.tobytes(), 1))
        sample += [_select_vivid(picture), _sample_evenly(picture.reshape(-1, 3), len(first[0]))]
    palette = Image.fromarray(np.concatenate(sample)).quantize(256)
    unpacked = (
        np.frombuffer(zlib.decompress(one), np.uint8).reshape(first.shape) for one in packed
    )
    begin, *rest = [
        Image.fromarray(one).quantize(palette=palette, dither=Image.Dither.NONE) for one in unpacked
    ]
    begin.save(
        path,
        save_all=True,
        append_images=rest,
        duration=_compute_durations(len(packed), dt),
        loop=0,
    )


def _compute_durations(count: int, dt: float) -> list[int]:
    """Compute each picture's duration [ms] in multiples of 10 ms that add up to the true time."""
    ends = [round(100 * dt * number) for number in range(count + 1)]
    return [10 * (end - begin) for begin, end in pairwise(ends)]


def _select_vivid(picture: np.ndarray) -> np.ndarray:
    """Select a row (1, width, 3) of the picture's vivid pixels; (0, width, 3) if there are none.

    Palettes are weighted by area: without it the small goal would get no colour.
    """
    pixels = picture[np.ptp(picture, axis=-1) > 60]
    return (
        _sample_evenly(pixels, picture.shape[1])
        if len(pixels)
        else np.empty((0, picture.shape[1], 3), np.uint8)
    )


def _sample_evenly(pixels: np.ndarray, count: int) -> np.ndarray:
    """Sample `count` pixels evenly as a row (1, count, 3)."""
    return pixels[np.linspace(0, len(pixels) - 1, count).astype(int)][None]


def _write_video(path: Path, pictures: Iterator[np.ndarray], dt: float) -> None:
    import imageio
    import imageio_ffmpeg

    codec, options = _VIDEO[path.suffix.lower()]
    named = {
        "fps": 1.0 / dt,
        "codec": codec,
        "output_params": options,
        "quality": None,
        "macro_block_size": 2,
    }
    with imageio.get_writer(path, **named) as video:
        writer: Any = video
        count = 0
        for picture in pictures:
            writer.append_data(picture)
            count += 1
    try:  # imageio does not ask how ffmpeg has ended
        is_whole = imageio_ffmpeg.count_frames_and_secs(path)[0] == count
    except RuntimeError:
        is_whole = False
    if not is_whole:
        raise OSError


_VIDEO = {
    ".mp4": ("libx264", ["-crf", str(_CRF)]),
    ".webm": ("libvpx-vp9", ["-crf", str(_CRF_VP9), "-b:v", "0", "-row-mt", "1"]),
}
_WRITERS: dict[str, Callable[[Path, Iterator[np.ndarray], float], None]] = {
    **{".gif": _write_gif, ".mp4": _write_video, ".png": _write_png, ".webm": _write_video},
    _FOLDER: _write_folder,
}
