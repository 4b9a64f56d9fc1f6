"""Gymnasium environments are recorded by the pictures that they draw themselves."""

import gymnasium as gym
import imageio.v3 as iio
import numpy as np
import pytest
import torch
from gymnasium import spaces

from envs.config.env_options import EnvOptions
from envs.evaluation import Evaluation
from envs.view.evaluation_view import record
from td3_robot.errors import ConfigError, EnvError

STEPS = 5


class Counting(gym.Env):
    """Episodes of five steps; a picture is as bright as steps were made."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), 0.0, False, self.steps == STEPS, {}

    def render(self):
        return np.full((32, 48, 3), 40 * self.steps, np.uint8)


class Blind(Counting):
    """Draws nothing."""

    def render(self):
        return None


class Modeless(Counting):
    """Has not heard of render modes."""

    metadata: dict = {}  # noqa: RUF012

    def __init__(self):
        super().__init__()


def evaluation_of(kind) -> Evaluation:
    gym.register(f"{kind.__name__}-v0", kind)
    try:
        evaluation = Evaluation(EnvOptions(env=f"{kind.__name__}-v0"), 1)
    except BaseException:
        gym.registry.pop(f"{kind.__name__}-v0")
        raise
    evaluation.add("policy", lambda env: lambda observation: torch.zeros(len(observation), 1))
    return evaluation


@pytest.fixture(autouse=True)
def none_stays_registered():
    yield
    for kind in (Counting, Blind, Modeless):
        gym.registry.pop(f"{kind.__name__}-v0", None)


def test_a_recording_has_start_and_every_step_of_three_episodes_once(tmp_path):
    evaluation = evaluation_of(Counting)
    record(evaluation, tmp_path / "frames")
    files = sorted((tmp_path / "frames").iterdir())
    assert [iio.imread(file)[0, 0, 0] for file in files] == 3 * [0, 40, 80, 120, 160, 200]
    record(evaluation, tmp_path / "film.gif")
    film = iio.improps(tmp_path / "film.gif", plugin="pillow")
    assert film.n_images == 3 * (STEPS + 1) and iio.immeta(tmp_path / "film.gif")["duration"] == 100
    record(evaluation, tmp_path / "end.png")
    assert iio.imread(tmp_path / "end.png")[0, 0, 0] == 200


def test_one_that_draws_nothing_is_one_line_and_no_file(tmp_path):
    with pytest.raises(EnvError, match="'Blind-v0': render returned no picture"):
        record(evaluation_of(Blind), tmp_path / "film.gif")
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.*render_mode='rgb_array' that is not in:UserWarning")
def test_one_that_takes_no_render_mode_renders_no_pictures(tmp_path):
    with pytest.raises(ConfigError, match="'Modeless-v0' renders no pictures: it takes no"):
        record(evaluation_of(Modeless), tmp_path / "film.gif")
    assert not list(tmp_path.iterdir())
