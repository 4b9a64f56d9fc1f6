"""An arm in a notebook's cell: it moves in a thread, the cell holds the page that shows it."""

import html
import math
import threading
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, cast

from envs.arm_env.arm_env import ArmEnv
from envs.controllers import make_baseline
from envs.robots import Robot
from envs.view.browser import how_to_open
from envs.view.playback import Policy, episodes
from envs.view.scene import Frame
from envs.view.swift import SwiftViewer

_PATIENCE = 5.0  # [s] for the thread to end


def shown(env: ArmEnv, policy: Policy | None, seed: int, height: int, **opened) -> "Shown":
    """See `envs.view.show`."""
    own = ArmEnv(env.robot, env.task, 1, str(env.device), seed, guard=env.guard, engine=env.engine)
    acting = policy or make_baseline(env.task.controllers[0], cast(Any, own))
    name = "policy" if policy else env.task.controllers[0]
    return Shown(
        env.robot, chain.from_iterable(episodes(acting, own, seed, name=name)), height, **opened
    )


class Shown:
    """Frames that are shown wherever the page is opened, in a notebook below the cell.

    Args:
        robot: whose.
        frames: what to show, one after the other in real time.
        height: of the picture [px].
        opened: see `SwiftViewer`.

    Attributes:
        url: where the page is, on this machine only.
    """

    def __init__(self, robot: Robot, frames: Iterable[Frame], height: int, **opened):
        self._viewer = SwiftViewer(robot, open_browser=False, patience=math.inf, **opened)
        self.url, self._height = self._viewer.url, height
        self._thread = threading.Thread(target=self._go_on, args=(iter(frames),), daemon=True)
        self._thread.start()

    def _go_on(self, frames: Iterator[Frame]) -> None:
        with self._viewer:
            while self._viewer.show(*next(frames)):
                pass

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        return f'<iframe src="{html.escape(self.url)}" width="100%" height="{self._height}" style="border: 0"></iframe>'

    def __repr__(self) -> str:
        return how_to_open(self.url)

    @property
    def going_on(self) -> bool:
        """Whether somebody may still be looking."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End it. Does nothing the second time."""
        self._viewer.close()
        self._thread.join(_PATIENCE)
