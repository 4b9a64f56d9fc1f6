"""Pictures and videos, drawn by a real Chromium."""

import math
import re
import resource
import sys
from itertools import product

import imageio
import imageio.v3 as iio
import numpy as np
import pytest
from PIL import Image

from envs.config.yaml_values import CONFIGS, read_values
from envs.robots import robot_names
from envs.tasks.shapes import make_pose_shapes
from envs.view.camera import VIEWS, compute_camera_pose
from envs.view.files import write_pictures
from envs.view.recording import record
from envs.view.scene import Frame
from td3_robot.errors import ConfigError, ViewerError

SIZE = (320, 240)


def frames(robot, count: int) -> list[Frame]:
    T_bt = np.eye(4)
    T_bt[:3, 3] = [0.5, 0.2, 0.4]
    turn = np.eye(robot.n)[0]
    goal = tuple(make_pose_shapes(T_bt))
    return [
        Frame(robot.home + 0.3 * k * turn, 0.04, f"step {k}", shapes=goal) for k in range(count)
    ]


def assert_shows_an_arm(picture: np.ndarray) -> None:
    middle = picture[50:200, 80:240].astype(int)
    assert (middle.max(-1) < 90).sum() > 30, "none of the Panda's black caps"
    assert ((middle[..., 2] - middle[..., 1]) > 80).sum() > 5, "no violet of the goal"
    assert picture[:50, :20].min() > 200, "the backdrop is not bright: something covers the picture"


def test_png_keeps_the_last_frame(robot, tmp_path):
    without_goal = Frame(robot.home, 0.04)
    picture = iio.imread(
        record(robot, [without_goal, *frames(robot, 1)], tmp_path / "last.png", SIZE)
    )
    assert picture.shape == (240, 320, 3)
    assert_shows_an_arm(picture)


def test_a_film_has_every_frame_once_at_the_speed_of_the_simulation(robot, tmp_path):
    path = record(robot, frames(robot, 3), tmp_path / "reach.gif", SIZE, camera="front")
    reader = imageio.get_reader(path)
    pictures = [np.asarray(picture)[..., :3] for picture in reader]
    assert len(pictures) == 3
    for before, after in zip(pictures, pictures[1:]):
        assert (np.abs(before.astype(int) - after).max(-1) > 40).mean() > 0.01
    assert_shows_an_arm(pictures[0])
    assert reader.get_meta_data()["duration"] / 1000 == pytest.approx(0.05)


def bars(count: int) -> list[np.ndarray]:
    """Pictures that differ in where a bar is."""
    pictures = np.full((count, 48, 64, 3), 230, np.uint8)
    for number, picture in enumerate(pictures):
        picture[:, 16 * number : 16 * number + 16] = (200, 30, 30)
    return list(pictures)


@pytest.mark.parametrize("ending", [".png", ".gif", ".mp4", ".webm", ""])
def test_each_kind_of_file_has_every_picture_once(tmp_path, ending):
    path = tmp_path / f"film{ending}"
    given = bars(4)
    write_pictures(path, given, dt=0.05)
    assert list(tmp_path.iterdir()) == [path]
    if ending in ("", ".png"):
        files = sorted(path.iterdir()) if ending == "" else [path]
        shown = [iio.imread(file) for file in files]
        names = [file.name for file in files]
        np.testing.assert_array_equal(shown, given if ending == "" else given[-1:])
        assert names == (
            ["0000.png", "0001.png", "0002.png", "0003.png"] if ending == "" else ["film.png"]
        )
        return
    reader = imageio.get_reader(path)
    shown = [np.asarray(picture)[..., :3].astype(int) for picture in reader]
    meta = reader.get_meta_data()
    assert [np.abs(one - np.array(given)).mean(axis=(1, 2, 3)).argmin() for one in shown] == [
        0,
        1,
        2,
        3,
    ]
    assert (meta["duration"] / 1000 if ending == ".gif" else 1 / meta["fps"]) == pytest.approx(0.05)


def test_what_cannot_be_recorded_is_said_before_anything_is_drawn(robot, tmp_path):
    for path, size, named in [
        (tmp_path / "a.avi", SIZE, "valid choices: .gif, .mp4, .png, .webm, a folder's name"),
        (tmp_path, SIZE, "it exists"),
        (tmp_path / "nowhere" / "a.png", SIZE, "does not exist"),
        (tmp_path / f"{'a' * 252}.png", SIZE, "File name too long"),
        (tmp_path / "a.png", (321, 240), "even"),
    ]:
        with pytest.raises(ConfigError, match=named):
            record(robot, frames(robot, 1), path, size)
    with pytest.raises(ConfigError, match="no frames"):
        record(robot, [], tmp_path / "a.png", SIZE)


def test_a_gif_has_the_colours_of_what_comes_late(tmp_path):
    # more shades than are needed
    grey = np.tile(np.arange(64, dtype=np.uint8)[None, :, None] * 4, (48, 1, 3))
    late = grey.copy()
    late[10:14, 10:14] = (20, 60, 240)
    write_pictures(tmp_path / "a.gif", [grey, grey, late], dt=0.05)
    *_, last = imageio.get_reader(tmp_path / "a.gif")
    assert np.abs(np.asarray(last)[12, 12, :3].astype(int) - (20, 60, 240)).max() < 30


@pytest.mark.parametrize(("rate", "every"), [(20, 1), (30, 1), (67, 2), (125, 3), (500, 10)])
def test_a_gif_is_at_true_speed_in_delays_that_browsers_keep(tmp_path, rate, every):
    pictures = np.full((60, 48, 64, 3), 230, np.uint8)
    for number, picture in enumerate(pictures):
        picture[:, number] = (200, 30, 30)
    write_pictures(tmp_path / "a.gif", list(pictures), dt=1 / rate)
    with Image.open(tmp_path / "a.gif") as gif:
        delays = [gif.seek(number) or gif.info["duration"] for number in range(gif.n_frames)]
    shown = math.ceil(60 / every)
    assert len(delays) == shown and min(delays) >= 20
    assert sum(delays) == pytest.approx(1000 * shown * every / rate, abs=5.0)


@pytest.mark.parametrize("ending", [".png", ".gif", ".mp4", ".webm", ""])
def test_a_failure_leaves_no_file(tmp_path, ending):
    def failing():
        yield from bars(2)
        raise ConfigError("of a frame")

    with pytest.raises(ConfigError, match="of a frame"):
        write_pictures(tmp_path / f"film{ending}", failing(), dt=0.05)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [".png", ".gif", ".mp4", ".webm", ""])
def test_a_disk_that_is_full_is_told_of_and_a_former_file_stays(tmp_path, ending):
    noise = np.random.default_rng(0).integers(0, 256, (20, 128, 128, 3), dtype=np.uint8)
    path = tmp_path / f"film{ending}"
    if ending:
        path.write_text("the former one")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, limits[1]))  # [bytes]
    try:
        with pytest.raises(ConfigError, match=f"^cannot record to '{re.escape(str(path))}': "):
            write_pictures(path, noise, dt=0.05)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == ([path] if ending else [])
    assert not ending or path.read_text() == "the former one"


def test_missing_chromium_is_named(robot, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ViewerError, match="apt install chromium"):
        record(robot, frames(robot, 1), tmp_path / "a.png", SIZE)


@pytest.mark.parametrize("module", ["playwright", "imageio", "imageio_ffmpeg"])
def test_a_missing_package_is_named(robot, tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    needed = rf"recording needs {module}, .*pip install 'td3-robot\[record\]'"
    with pytest.raises(ConfigError, match=needed):
        record(robot, frames(robot, 1), tmp_path / "a.mp4", SIZE)


def in_picture(points, camera, target, aspect: float) -> bool:
    """Whether a camera of 35 degrees that keeps upright sees all points."""
    forward = (target - camera) / np.linalg.norm(target - camera)
    right = np.cross(forward, (0.0, 0.0, 1.0)) / np.linalg.norm(np.cross(forward, (0.0, 0.0, 1.0)))
    depth = (points - camera) @ forward
    half = np.tan(np.radians(17.5))
    across = (points - camera) @ right
    up = (points - camera) @ np.cross(right, forward)
    return bool(
        (np.abs(across) < half * aspect * depth).all() and (np.abs(up) < half * depth).all()
    )


def test_the_whole_workspace_and_every_arm_of_a_grid_is_in_the_picture():
    for name in robot_names():
        workspace = np.array(read_values(CONFIGS / "robots" / f"{name}.yaml")["workspace"])
        corners = np.array([(0.0, 0.0, 0.0), *product(*workspace.T)])
        assert in_picture(corners, *compute_camera_pose("corner", workspace), aspect=1.2), name
        for wide in (1.5, 3.0):
            grid = np.concatenate(
                [corners + (x, y, 0.0) for x, y in product((-wide, 0.0, wide), repeat=2)]
            )
            for view in VIEWS:
                assert in_picture(grid, *compute_camera_pose(view, workspace, wide), aspect=1.5), (
                    name,
                    view,
                    wide,
                )


def test_a_camera_is_a_view_by_name_or_two_positions():
    workspace = np.array([[0.2, -0.5, 0.0], [0.8, 0.5, 0.8]])
    away = {name: np.subtract(*compute_camera_pose(name, workspace)) for name in VIEWS}
    assert away["front"][0] > 1 and away["side"][1] < -1 and away["top"][2] > 1
    # further away
    assert all(
        np.linalg.norm(np.subtract(*compute_camera_pose(name, workspace, wide=2.0))) > 3
        for name in VIEWS
    )
    np.testing.assert_array_equal(
        compute_camera_pose("1,-2,0.5,0,0,0.3", workspace), [[1, -2, 0.5], [0, 0, 0.3]]
    )
    for bad in ("above", "1,2,3", "1,2,3,1,2,3", "1,2,nan,0,0,0", ""):
        with pytest.raises(ConfigError, match="camera must be corner, front, side, top, or"):
            compute_camera_pose(bad, workspace)
