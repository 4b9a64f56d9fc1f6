"""View of an arm in a notebook's cell; the arm moves in a thread."""

import html
import math
import threading
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, cast

from envs.arm_env.arm_env import ArmEnv
from envs.controllers import make_baseline
from envs.robots import Robot
from envs.view.browser import explain_opening
from envs.view.playback import Policy, play_episodes
from envs.view.scene import Frame
from envs.view.swift import SwiftViewer

_PATIENCE = 5.0  # [s] for the thread to end


def show_in_notebook(
    env: ArmEnv, policy: Policy | None, seed: int, height: int, **opened
) -> "NotebookView":
    """Show one arm in a notebook's cell; arguments as of `envs.view.show`."""
    own = ArmEnv(env.robot, env.task, 1, str(env.device), seed, guard=env.guard, engine=env.engine)
    own.guard_constants = env.guard_constants
    acting = policy or make_baseline(env.task.controllers[0], cast(Any, own))
    name = "policy" if policy else env.task.controllers[0]
    return NotebookView(
        env.robot,
        chain.from_iterable(play_episodes(acting, own, seed, name=name)),
        height,
        **opened,
    )


class NotebookView:
    """A page with frames, which a notebook shows below the cell.

    Args:
        robot: the robot to show.
        frames: shown one after the other in real time.
        height: of the picture [px].
        opened: see `SwiftViewer`.

    Attributes:
        url: address of the page, on this machine only.
    """

    def __init__(self, robot: Robot, frames: Iterable[Frame], height: int, **opened):
        self._viewer = SwiftViewer(robot, open_browser=False, patience=math.inf, **opened)
        self.url = self._viewer.url
        self._height = height
        self._thread = threading.Thread(target=self._run, args=(iter(frames),), daemon=True)
        self._thread.start()

    def _run(self, frames: Iterator[Frame]) -> None:
        with self._viewer:
            while self._viewer.show(*next(frames)):
                pass

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        size = f'width="100%" height="{self._height}"'
        return f'<iframe src="{html.escape(self.url)}" {size} style="border: 0"></iframe>'

    def __repr__(self) -> str:
        return explain_opening(self.url)

    @property
    def is_running(self) -> bool:
        """True while the page may be open."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End the view. Do nothing the second time."""
        self._viewer.close()
        self._thread.join(_PATIENCE)
