"""Our Gymnasium environments rendered: as pictures, or to a person in the browser."""

import gymnasium as gym
import numpy as np
import pytest

import envs.gymnasium_ids  # noqa: F401  registers them
from td3_robot.errors import ConfigError, ViewerError

REACH = "td3_robot/PandaReach-v0"


def test_a_picture_is_of_the_arm_after_the_last_step():
    env = gym.make(REACH, render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render().astype(int)
    for _ in range(10):
        env.step(np.ones(7, np.float32))
    after = env.render()
    env.close()
    assert (
        after.shape == (360, 480, 3)
        and after.dtype == np.uint8
        and env.metadata["render_fps"] == 20
    )
    assert (np.abs(after - before).max(-1) > 40).mean() > 0.01


def test_a_person_sees_each_reset_and_step(monkeypatch):
    shown = []

    class Viewer:
        def show(self, *frame):
            shown.append(frame[0])

        def close(self):
            shown.append("closed")

    monkeypatch.setattr("envs.view.swift.open_viewer", lambda robot, **options: Viewer())
    env = gym.make(REACH, render_mode="human")
    env.reset(seed=0)
    q = [env.step(np.ones(7, np.float32))[4]["q"] for _ in range(2)]
    assert env.render() is None
    env.close()
    np.testing.assert_array_equal(shown[1:4], [q[0], q[1], q[1]])
    assert shown[4:] == ["closed"]


def test_a_page_that_nobody_opens_ends_in_one_line(monkeypatch):
    monkeypatch.setattr("envs.view.browser.have_browser", lambda: False)
    monkeypatch.setattr("envs.gymnasium_ids.rendering.PATIENCE", 0.2)
    env = gym.make(REACH, render_mode="human")
    with pytest.raises(ViewerError, match="no browser showed http://.* within 0 s"):
        env.reset(seed=0)
    env.close()


@pytest.mark.filterwarnings("ignore:.*render_mode='")  # which Gymnasium says first
@pytest.mark.parametrize(("make", "mode"), [(gym.make, "ansi"), (gym.make_vec, "human")])
def test_another_way_to_be_shown_is_refused(make, mode):
    with pytest.raises(ConfigError, match=f"render_mode must be None .*got '{mode}'"):
        make(REACH, render_mode=mode)
