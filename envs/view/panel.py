"""The controls beside the picture: sliders, buttons and choices, and what is dragged in it, as wishes to a `Control`.

What the page says is held to what it can say: a number that is finite and in its range, a name that there is. Anything
else is dropped. Of each kind of wish only the latest between two pictures is heard.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from spatialmath.base import q2r, rpy2r, tr2rpy
from swift import Button, Select, Slider

from envs.evaluation import Evaluation
from envs.view.control import Control
from envs.view.handles import GOAL
from envs.view.server import LocalSwift
from envs.view.swift import shown_by
from td3_robot.errors import Td3RobotError

_SPEEDS = {"1x": 1.0, "0.5x": 0.5, "0.25x": 0.25, "2x": 2.0, "max": None}
_NOBODY, _LATENCY = "nobody", "latency"
_LONGEST = 200.0  # latency of the slider [ms]
_AXES, _ANGLES = ("x", "y", "z"), ("roll", "pitch", "yaw")  # about the base frame's x, y and z, in this order
_ROUNDING = 1e-4  # of a slider's value [m, degrees, ms]


def lead(evaluation: Evaluation, **opened) -> None:
    """Show one arm that is led by hand, until its page is closed.

    Args:
        evaluation: see `Control`.
        opened: see `shown_by`.

    Raises:
        ViewerError: the page cannot be shown.
    """
    control = Control(evaluation)
    panel = Panel(control)
    with shown_by(control.robot, panel=panel, **opened) as viewer:
        while viewer.show(*control.frame):
            panel.apply()
            control.step()


class Panel:
    """The controls of a `Control`."""

    def __init__(self, control: Control):
        self._control = control
        self._wishes: dict[str, Callable[[], object]] = {}
        self._sliders: dict[str, Slider] = {}
        self._told: dict[str, float] = {}  # what the sliders show

    def attach(self, swift: LocalSwift) -> None:
        """Put the controls into a connected page."""
        control, self._swift = self._control, swift
        swift.on_moved = self._moved
        self._pause = self._button("❚❚", self._pause_or_go, builtin=True)  # the first: the space bar clicks it
        self._button("step", control.step_once, builtin=True)
        self._choice("speed", _SPEEDS, lambda name: swift.pace(_SPEEDS[name]), builtin=True)
        if not control.goal_moves:
            for name, least, most in zip(_AXES, *control.room):
                self._slider(name, (least, most), 0.001, " m")
            for name in _ANGLES if len(control.goal) == 7 else ():
                self._slider(name, (-180.0, 180.0), 1.0, "°")
        self._choice("controller", control.names, control.choose)
        others = [_NOBODY, *control.names]
        compare = lambda name: control.compare(None if name == _NOBODY else name)  # noqa: E731
        self._choice("compare", others, compare, others.index(control.compared or _NOBODY))
        self._choice("guard", ["off", "on"], lambda one: control.disturb(guard=one == "on"), int(control.options.guard))
        self._slider(_LATENCY, (0.0, _LONGEST), 5.0, " ms")
        for label in ("new goal", "new episode", "reset"):
            self._button(label, getattr(control, label.replace(" ", "_")))

    def apply(self) -> None:
        """Do what was wished for since the last time, and show what holds then."""
        wishes, self._wishes = self._wishes, {}
        for wish in wishes.values():
            self._control.note = ""
            try:
                wish()
            except Td3RobotError as error:
                self._control.note = str(error)
        now = self._values()
        for name, slider in self._sliders.items():
            if abs(now[name] - self._told[name]) > _ROUNDING:  # else it stays untouched: a finger may be on it
                slider.value = self._told[name] = now[name]

    # The elements -------------------------------------------------------------------------------------------

    def _button(self, label: str, wish: Callable[[], object], builtin: bool = False) -> Button:
        def clicked(_: Any) -> None:
            self._wishes[label] = wish

        button = Button(clicked, label=label)
        button.builtin = builtin
        self._swift.add_ui(button)
        return button

    def _choice(self, label: str, names: Iterable[str], wish: Callable, now: int = 0, builtin: bool = False) -> None:
        choices = {str(number): name for number, name in enumerate(names)}  # as the page has them

        def chosen(index: Any) -> None:
            if isinstance(index, str) and index in choices:
                self._wishes[label] = lambda: wish(choices[index])

        select = Select(chosen, label=label, options=list(choices.values()), value=now)
        select.builtin = builtin
        self._swift.add_ui(select)

    def _slider(self, name: str, ends: tuple[float, float], step: float, unit: str) -> None:
        def moved(value: Any) -> None:
            echo = step / 2 + _ROUNDING  # the page says again what it was told, rounded to the slider's steps
            if not (_number(value) and ends[0] <= value <= ends[1]):
                self._sliders[name].value = self._told[name]
            elif abs(value - self._told[name]) > echo:
                self._told[name] = float(value)
                self._wishes[_LATENCY if name == _LATENCY else GOAL] = self._delay if name == _LATENCY else self._aim

        self._told[name] = self._values()[name]
        look = {"min": ends[0], "max": ends[1], "step": step, "unit": unit, "precision": 3 if step < 1 else 0}
        self._sliders[name] = Slider(moved, label=name, value=self._told[name], **look)
        self._swift.add_ui(self._sliders[name])

    def _values(self) -> dict[str, float]:
        """What the sliders are to show."""
        goal = self._control.goal
        values = {**dict(zip(_AXES, goal)), _LATENCY: 1000.0 * self._control.options.latency}
        if len(goal) == 7:
            R = q2r(goal[3:])
            shown = [self._told.get(name, math.inf) for name in _ANGLES]  # other angles may mean the same
            same = np.isfinite(shown).all() and np.abs(rpy2r(shown, unit="deg") - R).max() < _ROUNDING
            values |= dict(zip(_ANGLES, shown if same else tr2rpy(R, unit="deg")))
        return values

    # The wishes ---------------------------------------------------------------------------------------------

    def _moved(self, name: Any, position: Any, turned: Any) -> None:
        """Something was dragged to a position [m] and a quaternion, x y z w, both in the world's frame."""
        numbers = [*position, *turned] if isinstance(position, list) and isinstance(turned, list) else []
        if not (isinstance(name, str) and len(numbers) == 7 and all(map(_number, numbers)) and any(numbers[3:])):
            return
        x, y, z, w = np.array(numbers[3:]) / np.linalg.norm(numbers[3:])
        T = np.eye(4)
        T[:3, :3], T[:3, 3] = q2r([w, x, y, z]), numbers[:3]
        T_bh = np.linalg.inv(self._control.robot.rtb.base.A) @ T
        self._wishes[f"move {name}"] = lambda: self._control.put(name, T_bh)

    def _aim(self) -> None:
        """Put the goal where its sliders say."""
        T = np.eye(4)
        T[:3, 3] = [self._told[name] for name in _AXES]
        if all(name in self._told for name in _ANGLES):
            T[:3, :3] = rpy2r([self._told[name] for name in _ANGLES], unit="deg")
        self._control.put(GOAL, T)

    def _delay(self) -> None:
        self._control.disturb(latency=self._told[_LATENCY] / 1000.0)

    def _pause_or_go(self) -> None:
        self._control.paused = not self._control.paused
        self._pause.label = "▶" if self._control.paused else "❚❚"


def _number(value: Any) -> bool:
    """Whether something from the page is a finite number of a sane size."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e6
