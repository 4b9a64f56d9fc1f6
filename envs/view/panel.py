"""Panel of an arm under interactive control: its controls, and dragging in the picture."""

import math
from typing import Any

import numpy as np
from spatialmath.base import q2r, rpy2r, tr2rpy

from envs.config.disturbance_options import LONGEST
from envs.evaluation import Evaluation
from envs.view.controls import ROUNDING, Controls, is_number
from envs.view.handles import GOAL
from envs.view.interactive_control import InteractiveControl
from envs.view.swift import open_viewer

_NOBODY = "nobody"
_LATENCY = "latency"
_LONGEST = 1000.0 * LONGEST  # latency of the slider [ms]
LEAST_NORM = 1e-6  # of a quaternion that is a rotation; below, its direction is lost
_AXES = ("x", "y", "z")
_ANGLES = ("roll", "pitch", "yaw")  # about the base frame's x, y and z, in this order


def run_interactive(evaluation: Evaluation, **opened) -> None:
    """Show one arm under interactive control, until its page is closed.

    Args:
        evaluation: see `InteractiveControl`.
        opened: see `open_viewer`.

    Raises:
        ViewerError: the page cannot be shown.
    """
    control = InteractiveControl(evaluation)
    panel = Panel(control)
    with open_viewer(control.robot, panel=panel, **opened) as viewer:
        while viewer.show(*control.frame):
            panel.apply()
            control.step()


class Panel(Controls):
    """Controls of an `InteractiveControl`."""

    def __init__(self, control: InteractiveControl):
        super().__init__()
        self._control = control

    def add(self) -> None:
        """Add sliders of the goal, choices of controllers and guard, latency and buttons."""
        control = self._control
        self._swift.on_moved = self._request_move
        if not control.goal_moves:
            for name, least, most in zip(_AXES, *control.placement_bounds):
                self._add_slider(name, (least, most), 0.001, " m", self._request_goal)
            for name in _ANGLES if len(control.goal) == 7 else ():
                self._add_slider(name, (-180.0, 180.0), 1.0, "°", self._request_goal)
        self._add_choice(
            "controller", control.names, control.choose, control.names.index(control.acting)
        )
        others = [_NOBODY, *control.names]

        def compare(name):
            return control.compare(None if name == _NOBODY else name)

        self._add_choice("compare", others, compare, others.index(control.compared or _NOBODY))
        self._add_choice(
            "guard",
            ["off", "on"],
            lambda one: control.disturb(guard=one == "on"),
            int(control.options.guard),
        )
        self._add_slider(_LATENCY, (0.0, _LONGEST), 5.0, " ms", self._set_latency)
        self._add_button("new goal", control.draw_goal)
        self._add_button("new episode", control.draw_episode)
        self._add_button("reset", control.reset)
        if control.robot.gripper is not None:
            self._add_button("gripper", control.toggle_gripper)

    def step(self) -> None:
        """Make one control period."""
        self._control.step_once()

    def apply(self) -> None:
        """Apply the requests and the pause."""
        super().apply()
        self._control.paused = self.paused

    def report_failure(self, why: str) -> None:
        """Put the reason on the label."""
        self._control.note = why

    def get_values(self) -> dict[str, float]:
        """Return goal [m, deg] and latency [ms] for the sliders."""
        goal = self._control.goal
        values = {**dict(zip(_AXES, goal)), _LATENCY: 1000.0 * self._control.latency}
        if len(goal) == 7 and not self._control.goal_moves:
            R = q2r(goal[3:])
            # keep the angles shown where they mean the same rotation
            shown = [self._shown.get(name, math.inf) for name in _ANGLES]
            same = (
                np.isfinite(shown).all() and np.abs(rpy2r(shown, unit="deg") - R).max() < ROUNDING
            )
            values |= dict(zip(_ANGLES, shown if same else tr2rpy(R, unit="deg")))
        return values

    def _request_move(self, name: Any, position: Any, turned: Any) -> None:
        """Request the move of a handle to a position [m] and quaternion xyzw in the world frame."""
        numbers = (
            [*position, *turned] if isinstance(position, list) and isinstance(turned, list) else []
        )
        if not (isinstance(name, str) and len(numbers) == 7 and all(map(is_number, numbers))):
            return
        length = np.linalg.norm(numbers[3:])
        if not LEAST_NORM < length < np.inf:  # of no direction
            return
        x, y, z, w = np.array(numbers[3:]) / length
        T = np.eye(4)
        T[:3, :3] = q2r([w, x, y, z])
        T[:3, 3] = numbers[:3]
        T_bh = np.linalg.inv(self._control.robot.rtb.base.A) @ T
        self._requests[f"move {name}"] = lambda: self._control.put(name, T_bh)

    def _request_goal(self) -> None:
        """Put the goal where its sliders are."""
        T = np.eye(4)
        T[:3, 3] = [self._shown[name] for name in _AXES]
        if all(name in self._shown for name in _ANGLES):
            T[:3, :3] = rpy2r([self._shown[name] for name in _ANGLES], unit="deg")
        self._control.put(GOAL, T)

    def _set_latency(self) -> None:
        self._control.disturb(latency=self._shown[_LATENCY] / 1000.0)
