"""What an evaluation has to show: one arm led by hand, one episode again, or many arms."""

from itertools import islice
from pathlib import Path

from envs.evaluation import Evaluation
from envs.view.camera import CORNER, Camera
from envs.view.grid import grid_episodes, show_grid, width
from envs.view.panel import lead
from envs.view.playback import record_episodes, show_episode
from envs.view.recording import record as record_frames


def show(evaluation: Evaluation, episode: int | None = None, grid: int | None = None, **opened) -> None:
    """Show it in the browser until its page is closed.

    Args:
        evaluation: whose controllers.
        episode: the number of the one to play; the evaluation was made for it.
        grid: how many arms to show beside each other; None leads one by hand.
        opened: see `swift.shown_by`.

    Raises:
        ViewerError: the page cannot be shown.
    """
    if grid is not None:
        show_grid(*evaluation.alone(evaluation.acting[0], grid), evaluation.seed, **opened)
    elif episode is not None:
        show_episode(evaluation.shown(), evaluation.seed, episode, **opened)
    else:
        lead(evaluation, **opened)


def record(
    evaluation: Evaluation, path: Path, episode: int | None = None, grid: int | None = None, camera: Camera = CORNER
) -> None:
    """Write it to a file: the first episodes, one of them, or one of each of many arms.

    Args:
        path: see `recording.record`.
        camera: see `camera.placed`; the others as of `show`.

    Raises:
        ConfigError, ViewerError: as `recording.record`.
    """
    if grid is None:
        record_episodes(evaluation.shown(), evaluation.seed, path, episode, camera)
        return
    policy, env = evaluation.alone(evaluation.acting[0], grid)
    first = env.task.horizon - 1 if path.suffix.lower() == ".png" else 0  # a picture is of the end
    frames = islice(grid_episodes(policy, env, evaluation.seed), first, env.task.horizon)
    record_frames(env.robot, frames, path, wide=width(env), camera=camera)
