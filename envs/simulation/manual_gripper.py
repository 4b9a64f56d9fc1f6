"""Manual control of grippers: an override of their controller."""

from dataclasses import replace

import torch

from envs.simulation.engine import Command, Engine, Scene, SimModel, SimState


class GripperOverride:
    """An `Engine` that overrides the gripper commands of another one.

    Args:
        engine: moves the arms.

    Attributes:
        opening: of all grippers, in [0, 1], 1 is open; None leaves them to their controller.
    """

    def __init__(self, engine: Engine):
        self._engine = engine
        self.opening: float | None = None

    def begin(self, model: SimModel, state: SimState, scene: Scene) -> Scene:
        """Begin episodes in the other engine."""
        return self._engine.begin(model, state, scene)

    def step(
        self, model: SimModel, state: SimState, command: Command, scene: Scene
    ) -> tuple[SimState, Scene]:
        """Step the other engine with the gripper's command replaced."""
        if self.opening is not None:
            command = replace(command, grip=torch.full_like(state.gripper, self.opening))
        return self._engine.step(model, state, command, scene)
