"""Pictures and videos, drawn by a real Chromium."""

import sys

import imageio
import imageio.v3 as iio
import numpy as np
import pytest

from envs.tasks.shapes import pose_shapes
from envs.view.recording import record
from envs.view.scene import Frame
from td3_robot.errors import ConfigError, ViewerError

SIZE = (320, 240)


def frames(robot, count: int) -> list[Frame]:
    T_bt = np.eye(4)
    T_bt[:3, 3] = [0.5, 0.2, 0.4]
    turn = np.eye(robot.n)[0]
    goal = tuple(pose_shapes(T_bt))
    return [Frame(robot.home + 0.3 * k * turn, 0.04, f"step {k}", shapes=goal) for k in range(count)]


def assert_shows_an_arm(picture: np.ndarray) -> None:
    middle = picture[50:200, 80:240].astype(int)
    assert (middle.max(-1) < 90).sum() > 30, "none of the Panda's black caps"
    assert ((middle[..., 2] - middle[..., 1]) > 80).sum() > 5, "no violet of the goal"
    assert picture[:50, :20].min() > 200, "the backdrop is not bright: something covers the picture"


def test_png_keeps_the_last_frame(robot, tmp_path):
    without_goal = Frame(robot.home, 0.04)
    picture = iio.imread(record(robot, [without_goal, *frames(robot, 1)], tmp_path / "last.png", SIZE))
    assert picture.shape == (240, 320, 3)
    assert_shows_an_arm(picture)


@pytest.mark.parametrize("ending", [".gif", ".mp4"])
def test_a_video_has_every_frame_once_at_the_speed_of_the_simulation(robot, tmp_path, ending):
    path = record(robot, frames(robot, 4), tmp_path / f"reach{ending}", SIZE)
    reader = imageio.get_reader(path)
    pictures = [np.asarray(picture)[..., :3] for picture in reader]
    assert len(pictures) == 4
    for before, after in zip(pictures, pictures[1:]):
        assert (np.abs(before.astype(int) - after).max(-1) > 40).mean() > 0.01
    assert_shows_an_arm(pictures[0])
    meta = reader.get_meta_data()
    assert (meta["duration"] / 1000 if ending == ".gif" else 1 / meta["fps"]) == pytest.approx(0.05)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_what_cannot_be_recorded_is_said_before_anything_is_drawn(robot, tmp_path):
    for path, size, named in [
        (tmp_path / "a.webm", SIZE, "valid choices: .gif, .mp4, .png"),
        (tmp_path / "nowhere" / "a.png", SIZE, "does not exist"),
        (tmp_path / "a.png", (321, 240), "even"),
    ]:
        with pytest.raises(ConfigError, match=named):
            record(robot, frames(robot, 1), path, size)
    with pytest.raises(ConfigError, match="no frames"):
        record(robot, [], tmp_path / "a.png", SIZE)


def test_a_failure_leaves_no_file(robot, tmp_path):
    with pytest.raises(ConfigError, match="finite"):
        record(robot, [*frames(robot, 1), Frame(np.full(7, np.nan))], tmp_path / "a.png", SIZE)
    assert list(tmp_path.iterdir()) == []


def test_missing_chromium_is_named(robot, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ViewerError, match="apt install chromium"):
        record(robot, frames(robot, 1), tmp_path / "a.png", SIZE)


@pytest.mark.parametrize("module", ["playwright", "imageio", "imageio_ffmpeg"])
def test_a_missing_package_is_named(robot, tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ViewerError, match=f"pip install {module.replace('_', '-')}"):
        record(robot, frames(robot, 1), tmp_path / "a.mp4", SIZE)
