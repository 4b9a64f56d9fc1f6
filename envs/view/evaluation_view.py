"""Views of an evaluation: interactive control, one episode, or a grid of arms."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from envs.evaluation import Evaluation
from envs.registry import make_from_config
from envs.view.camera import CORNER, Camera
from envs.view.files import check_pictures, write_pictures
from envs.view.grid import compute_width, play_grid, show_grid
from envs.view.panel import run_interactive
from envs.view.playback import record_episodes, show_episode
from envs.view.recording import record as record_frames
from td3_robot.utils.progress import iter_with_progress


def show(
    evaluation: Evaluation, episode: int | None = None, grid: int | None = None, **opened
) -> None:
    """Show an evaluation in the browser until its page is closed.

    Args:
        evaluation: with its controllers.
        episode: the number of the one to play; the evaluation was made for it.
        grid: number of arms to show beside each other; None is interactive control of one.
        opened: see `swift.open_viewer`.

    Raises:
        ViewerError: the page cannot be shown.
    """
    if grid is not None:
        first = evaluation.feedback_controllers[0]
        show_grid(*evaluation.make_copy(first, grid), evaluation.seed, first, **opened)
    elif episode is not None:
        seed, row = evaluation.place
        show_episode(evaluation.make_copies(), seed, episode, row, **opened)
    else:
        run_interactive(evaluation, **opened)


def record(
    evaluation: Evaluation,
    path: Path,
    episode: int | None = None,
    grid: int | None = None,
    camera: Camera = CORNER,
) -> None:
    """Record an evaluation: its first episodes, one of them, or one of each arm of a grid.

    Args:
        path: see `recording.record`.
        camera: see `camera.compute_camera_pose`; Gymnasium environments draw their own pictures.
        episode, grid: as of `show`.

    Raises:
        ConfigError, ViewerError: as `recording.record`.
        EnvError: a Gymnasium environment that gives no pictures.
    """
    if evaluation.options.env is not None:
        _record_gymnasium(evaluation, path)
        return
    if grid is None:
        seed, row = evaluation.place
        record_episodes(evaluation.make_copies(), seed, path, episode, row, camera)
        return
    name = evaluation.feedback_controllers[0]
    policy, env = evaluation.make_copy(name, grid)
    first = env.task.horizon - 1 if path.suffix.lower() == ".png" else 0  # a picture is of the end
    frames = islice(play_grid(policy, env, evaluation.seed, name), first, env.horizon)
    wide = compute_width(env)
    record_frames(env.robot, frames, path, wide=wide, camera=camera, count=env.horizon - first)


def _record_gymnasium(evaluation: Evaluation, path: Path) -> None:
    """Record three episodes by the environment's own rgb_array, or the end of one for a picture."""
    check_pictures(path)
    controller = next(iter(evaluation.controllers.values()))
    options = replace(evaluation.options, vector="sync")
    env: Any = make_from_config(
        options, 1, evaluation.device, evaluation.seed, render_mode="rgb_array"
    )
    try:
        pictures = _play_pictures(
            controller.make(env), env, evaluation.seed, 1 if path.suffix.lower() == ".png" else 3
        )
        pictures = iter_with_progress(pictures, "recording", unit="pictures")
        write_pictures(path, pictures, 1.0 / env.frame_rate)
    finally:
        env.close()


def _play_pictures(policy: Any, env: Any, seed: int, episodes: int) -> Iterator[np.ndarray]:
    """Play some episodes and yield a picture of each one's start and of the end of each step."""
    observation = env.reset(seed)
    yield env.render()
    while episodes:
        step = env.step(policy(observation))
        yield env.render()
        observation = step.observation
        episodes -= int(step.terminated | step.truncated)
