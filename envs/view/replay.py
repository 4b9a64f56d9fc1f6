"""Replay of a played episode, at any speed and from any time."""

from collections.abc import Sequence

from envs.robots import Robot
from envs.view.controls import Controls
from envs.view.scene import Frame
from envs.view.swift import open_viewer

_TIME = "time"
_LAST_REPEATS = 20  # pictures for which the last one stays


def replay(robot: Robot, frames: Sequence[Frame], **opened) -> None:
    """Show an episode again and again, with a slider for its time, until its page is closed.

    Args:
        robot: the robot to show.
        frames: of the episode.
        opened: see `open_viewer`.

    Raises:
        ViewerError: the page cannot be shown.
    """
    player = Player(frames)
    with open_viewer(robot, panel=player, **opened) as viewer:
        while viewer.show(*player.frame):
            player.apply()
            player.advance()


class Player(Controls):
    """Player of an episode's pictures."""

    def __init__(self, frames: Sequence[Frame]):
        super().__init__()
        self._frames = frames
        self._now = 0

    @property
    def frame(self) -> Frame:
        """Picture to show."""
        return self._frames[min(self._now, len(self._frames) - 1)]

    def advance(self) -> None:
        """Go to the next picture, unless paused."""
        if not self.paused:
            self._now = (self._now + 1) % (len(self._frames) + _LAST_REPEATS)

    def add(self) -> None:
        """Add the slider of the time."""
        dt = self._frames[0].dt
        self._add_slider(_TIME, (0.0, dt * (len(self._frames) - 1)), dt, " s", self._seek)

    def step(self) -> None:
        """Go to the next picture, or from the last to the first."""
        self._now = (min(self._now, len(self._frames) - 1) + 1) % len(self._frames)

    def get_values(self) -> dict[str, float]:
        """Return the time [s] for the slider."""
        return {_TIME: self._frames[0].dt * min(self._now, len(self._frames) - 1)}

    def _seek(self) -> None:
        """Go to the slider's time and pause there."""
        self._now = round(self._shown[_TIME] / self._frames[0].dt)
        if not self.paused:
            self._toggle_pause()
