"""Controls next to the picture: buttons, choices and sliders make requests.

Input from the page is validated: numbers must be finite and in their range, names must exist.
Anything else is dropped. Requests are applied between pictures, of each kind only the latest.
"""

from collections.abc import Callable, Iterable
from typing import Any

from swift import Button, Select, Slider

from envs.view.server import LocalSwift
from td3_robot.errors import Td3RobotError

_SPEEDS = {"1x": 1.0, "0.5x": 0.5, "0.25x": 0.25, "2x": 2.0, "max": None}
ROUNDING = 1e-4  # of a slider's value


class Controls:
    """Buttons, choices and sliders of a page; a `server.Panel`. Subclasses add their own.

    Attributes:
        paused: whether the motion is paused.
    """

    def __init__(self):
        self.paused = False
        self._requests: dict[str, Callable[[], object]] = {}
        self._sliders: dict[str, Slider] = {}
        self._shown: dict[str, float] = {}  # what the sliders show

    def attach(self, swift: LocalSwift) -> None:
        """Put the controls into a connected page."""
        self._swift = swift
        label = self._pause_label  # a reloaded page may be paused
        # the first button, which the space bar clicks
        self._pause = self._add_button(label, self._toggle_pause, builtin=True)
        self._add_button("step", self.step, builtin=True)
        self._add_choice("speed", _SPEEDS, lambda name: swift.set_pace(_SPEEDS[name]), builtin=True)
        self.add()

    def add(self) -> None:
        """Add the subclass's controls, by `_add_button`, `_add_choice` and `_add_slider`."""
        raise NotImplementedError

    def step(self) -> None:
        """Advance by one control period, paused or not."""
        raise NotImplementedError

    def report_failure(self, why: str) -> None:
        """Report why a request failed; called with "" before each request."""

    def get_values(self) -> dict[str, float]:
        """Return the values that the sliders are to show."""
        raise NotImplementedError

    def apply(self) -> None:
        """Apply the requests since the last call, then update the sliders."""
        requests = self._requests
        self._requests = {}
        for request in requests.values():
            self.report_failure("")
            try:
                request()
            except Td3RobotError as error:
                self.report_failure(str(error))
        now = self.get_values()
        for name, slider in self._sliders.items():
            if abs(now[name] - self._shown[name]) > ROUNDING:  # else the user may be dragging it
                slider.value = self._shown[name] = now[name]

    def _toggle_pause(self) -> None:
        self.paused = not self.paused
        self._pause.label = self._pause_label

    @property
    def _pause_label(self) -> str:
        return "▶" if self.paused else "❚❚"

    # The elements

    def _add_button(
        self, label: str, request: Callable[[], object], builtin: bool = False
    ) -> Button:
        def on_click(_: Any) -> None:
            self._requests[label] = request

        button = Button(on_click, label=label)
        button.builtin = builtin
        self._swift.add_ui(button)
        return button

    def _add_choice(
        self,
        label: str,
        names: Iterable[str],
        request: Callable,
        now: int = 0,
        builtin: bool = False,
    ) -> None:
        choices = {str(number): name for number, name in enumerate(names)}  # as the page has them

        def on_choose(index: Any) -> None:
            if isinstance(index, str) and index in choices:
                self._requests[label] = lambda: request(choices[index])

        select = Select(on_choose, label=label, options=list(choices.values()), value=now)
        select.builtin = builtin
        self._swift.add_ui(select)

    def _add_slider(
        self,
        name: str,
        ends: tuple[float, float],
        step: float,
        unit: str,
        request: Callable[[], object],
    ) -> None:
        """Add a slider; `request` finds its value in `_shown`."""

        def on_move(value: Any) -> None:
            echo = step / 2 + ROUNDING  # the page returns a set value, rounded to the slider's step
            if not (is_number(value) and ends[0] <= value <= ends[1]):
                self._sliders[name].value = self._shown[name]
            elif abs(value - self._shown[name]) > echo:
                self._shown[name] = float(value)
                self._requests[request.__name__] = request

        self._shown[name] = self.get_values()[name]
        look = {"min": ends[0], "max": ends[1], "step": step, "unit": unit}
        digits = 3
        if step >= 1:
            digits = 0
        elif step >= 0.01:
            digits = 2
        self._sliders[name] = Slider(
            on_move, label=name, value=self._shown[name], precision=digits, **look
        )
        self._swift.add_ui(self._sliders[name])


def is_number(value: Any) -> bool:
    """Return whether a value from the page is a finite number of a sane size."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e6
