"""Controls beside the picture: what is clicked, chosen and slid in the page becomes wishes, heard
between two pictures.

What the page says is held to what it can say: a number that is finite and in its range, a name that
there is. Anything else is dropped. Of each kind of wish only the latest between two pictures is
heard.
"""

from collections.abc import Callable, Iterable
from typing import Any

from swift import Button, Select, Slider

from envs.view.server import LocalSwift
from td3_robot.errors import Td3RobotError

_SPEEDS = {"1x": 1.0, "0.5x": 0.5, "0.25x": 0.25, "2x": 2.0, "max": None}
ROUNDING = 1e-4  # of a slider's value


class Controls:
    """Buttons, choices and sliders; a `server.Panel`. The subclasses say which.

    Attributes:
        paused: whether the button was clicked that stops the motion.
    """

    def __init__(self):
        self.paused = False
        self._wishes: dict[str, Callable[[], object]] = {}
        self._sliders: dict[str, Slider] = {}
        self._told: dict[str, float] = {}  # what the sliders show

    def attach(self, swift: LocalSwift) -> None:
        """Put the controls into a connected page."""
        self._swift = swift
        label = self._pause_label  # where the page was reloaded it may be paused
        self._pause = self._button(
            label, self._pause_or_go, builtin=True
        )  # the first: the space bar clicks it
        self._button("step", self.step, builtin=True)
        self._choice("speed", _SPEEDS, lambda name: swift.pace(_SPEEDS[name]), builtin=True)
        self.add()

    def add(self) -> None:
        """Add the others, by `_button`, `_choice` and `_slider`."""
        raise NotImplementedError

    def step(self) -> None:
        """One control period on, paused or not."""
        raise NotImplementedError

    def failed(self, why: str) -> None:
        """A wish could not be fulfilled; called with nothing before each."""

    def values(self) -> dict[str, float]:
        """What the sliders are to show."""
        raise NotImplementedError

    def apply(self) -> None:
        """Do what was wished for since the last time, and show what holds then."""
        wishes, self._wishes = self._wishes, {}
        for wish in wishes.values():
            self.failed("")
            try:
                wish()
            except Td3RobotError as error:
                self.failed(str(error))
        now = self.values()
        for name, slider in self._sliders.items():
            if (
                abs(now[name] - self._told[name]) > ROUNDING
            ):  # else it stays untouched: a finger may be on it
                slider.value = self._told[name] = now[name]

    def _pause_or_go(self) -> None:
        self.paused = not self.paused
        self._pause.label = self._pause_label

    @property
    def _pause_label(self) -> str:
        return "▶" if self.paused else "❚❚"

    # The elements

    def _button(self, label: str, wish: Callable[[], object], builtin: bool = False) -> Button:
        def clicked(_: Any) -> None:
            self._wishes[label] = wish

        button = Button(clicked, label=label)
        button.builtin = builtin
        self._swift.add_ui(button)
        return button

    def _choice(
        self, label: str, names: Iterable[str], wish: Callable, now: int = 0, builtin: bool = False
    ) -> None:
        choices = {str(number): name for number, name in enumerate(names)}  # as the page has them

        def chosen(index: Any) -> None:
            if isinstance(index, str) and index in choices:
                self._wishes[label] = lambda: wish(choices[index])

        select = Select(chosen, label=label, options=list(choices.values()), value=now)
        select.builtin = builtin
        self._swift.add_ui(select)

    def _slider(
        self,
        name: str,
        ends: tuple[float, float],
        step: float,
        unit: str,
        wish: Callable[[], object],
    ) -> None:
        """A wish finds what was slid to in `_told`."""

        def moved(value: Any) -> None:
            echo = (
                step / 2 + ROUNDING
            )  # the page says again what it was told, rounded to the slider's steps
            if not (number(value) and ends[0] <= value <= ends[1]):
                self._sliders[name].value = self._told[name]
            elif abs(value - self._told[name]) > echo:
                self._told[name] = float(value)
                self._wishes[wish.__name__] = wish

        self._told[name] = self.values()[name]
        look = {"min": ends[0], "max": ends[1], "step": step, "unit": unit}
        digits = 0 if step >= 1 else 2 if step >= 0.01 else 3
        self._sliders[name] = Slider(
            moved, label=name, value=self._told[name], precision=digits, **look
        )
        self._swift.add_ui(self._sliders[name])


def number(value: Any) -> bool:
    """Whether something from the page is a finite number of a sane size."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e6
