"""An episode that was played, to be looked at again: at any speed, at any of its moments."""

from collections.abc import Sequence

from envs.robots import Robot
from envs.view.controls import Controls
from envs.view.scene import Frame
from envs.view.swift import shown_by

_TIME = "time"
_HELD = 20  # pictures for which the last one stays, before it begins again


def replay(robot: Robot, frames: Sequence[Frame], **opened) -> None:
    """Show an episode again and again, with a slider for its time, until its page is closed.

    Args:
        robot: whose.
        frames: of the episode.
        opened: see `shown_by`.

    Raises:
        ViewerError: the page cannot be shown.
    """
    player = Player(frames)
    with shown_by(robot, panel=player, **opened) as viewer:
        while viewer.show(*player.frame):
            player.apply()
            player.go_on()


class Player(Controls):
    """Which picture of an episode is shown."""

    def __init__(self, frames: Sequence[Frame]):
        super().__init__()
        self._frames, self._now = frames, 0

    @property
    def frame(self) -> Frame:
        """The picture."""
        return self._frames[min(self._now, len(self._frames) - 1)]

    def go_on(self) -> None:
        """To the next picture, unless paused."""
        if not self.paused:
            self._now = (self._now + 1) % (len(self._frames) + _HELD)

    def add(self) -> None:
        """See `Controls.add`."""
        dt = self._frames[0].dt
        self._slider(_TIME, (0.0, dt * (len(self._frames) - 1)), dt, " s", self._seek)

    def step(self) -> None:
        """See `Controls.step`."""
        self._now = (min(self._now, len(self._frames) - 1) + 1) % len(self._frames)

    def values(self) -> dict[str, float]:
        """See `Controls.values`."""
        return {_TIME: self._frames[0].dt * min(self._now, len(self._frames) - 1)}

    def _seek(self) -> None:
        """To where the slider is, and stay there."""
        self._now = round(self._told[_TIME] / self._frames[0].dt)
        if not self.paused:
            self._pause_or_go()
