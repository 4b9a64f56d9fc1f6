"""An arm led by hand: the controls of a `Control`, and what is dragged in the picture."""

import math
from typing import Any

import numpy as np
from spatialmath.base import q2r, rpy2r, tr2rpy

from envs.evaluation import Evaluation
from envs.simulation.disturbances import LONGEST
from envs.view.control import Control
from envs.view.controls import ROUNDING, Controls, number
from envs.view.handles import GOAL
from envs.view.swift import shown_by

_NOBODY, _LATENCY = "nobody", "latency"
_LONGEST = 1000.0 * LONGEST  # latency of the slider [ms]
_AXES, _ANGLES = (
    ("x", "y", "z"),
    ("roll", "pitch", "yaw"),
)  # about the base frame's x, y and z, in this order


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


class Panel(Controls):
    """The controls of a `Control`."""

    def __init__(self, control: Control):
        super().__init__()
        self._control = control

    def add(self) -> None:
        """See `Controls.add`."""
        control = self._control
        self._swift.on_moved = self._moved
        if not control.goal_moves:
            for name, least, most in zip(_AXES, *control.room):
                self._slider(name, (least, most), 0.001, " m", self._aim)
            for name in _ANGLES if len(control.goal) == 7 else ():
                self._slider(name, (-180.0, 180.0), 1.0, "°", self._aim)
        self._choice(
            "controller", control.names, control.choose, control.names.index(control.acting)
        )
        others = [_NOBODY, *control.names]

        def compare(name):
            return control.compare(None if name == _NOBODY else name)

        self._choice("compare", others, compare, others.index(control.compared or _NOBODY))
        self._choice(
            "guard",
            ["off", "on"],
            lambda one: control.disturb(guard=one == "on"),
            int(control.options.guard),
        )
        self._slider(_LATENCY, (0.0, _LONGEST), 5.0, " ms", self._delay)
        for label in ("new goal", "new episode", "reset"):
            self._button(label, getattr(control, label.replace(" ", "_")))
        if control.robot.gripper is not None:
            self._button("gripper", control.grip)

    def step(self) -> None:
        """See `Controls.step`."""
        self._control.step_once()

    def apply(self) -> None:
        """See `Controls.apply`."""
        super().apply()
        self._control.paused = self.paused

    def failed(self, why: str) -> None:
        """See `Controls.failed`."""
        self._control.note = why

    def values(self) -> dict[str, float]:
        """See `Controls.values`."""
        goal = self._control.goal
        values = {**dict(zip(_AXES, goal)), _LATENCY: 1000.0 * self._control.latency}
        if len(goal) == 7:
            R = q2r(goal[3:])
            shown = [
                self._told.get(name, math.inf) for name in _ANGLES
            ]  # other angles may mean the same
            same = (
                np.isfinite(shown).all() and np.abs(rpy2r(shown, unit="deg") - R).max() < ROUNDING
            )
            values |= dict(zip(_ANGLES, shown if same else tr2rpy(R, unit="deg")))
        return values

    def _moved(self, name: Any, position: Any, turned: Any) -> None:
        """Something was dragged to a position [m] and a quaternion, x y z w, both in the world's
        frame.
        """
        numbers = (
            [*position, *turned] if isinstance(position, list) and isinstance(turned, list) else []
        )
        if not (
            isinstance(name, str)
            and len(numbers) == 7
            and all(map(number, numbers))
            and any(numbers[3:])
        ):
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
