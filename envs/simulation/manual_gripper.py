"""Grippers that are opened and shut by hand, whatever their controller says."""

from dataclasses import replace

import torch

from envs.simulation.engine import Command, Engine, Scene, SimModel, SimState


class GripperOverride:
    """An engine like another one, but for its grippers; an `Engine`.

    Args:
        engine: the other one.

    Attributes:
        opening: wanted of all grippers, in [0, 1], 1 is open; None leaves them to their controller.
    """

    def __init__(self, engine: Engine):
        self._engine = engine
        self.opening: float | None = None

    def begin(self, model: SimModel, state: SimState, scene: Scene) -> Scene:
        """See `Engine.begin`."""
        return self._engine.begin(model, state, scene)

    def step(
        self, model: SimModel, state: SimState, command: Command, scene: Scene
    ) -> tuple[SimState, Scene]:
        """See `Engine.step`."""
        if self.opening is not None:
            command = replace(command, grip=torch.full_like(state.gripper, self.opening))
        return self._engine.step(model, state, command, scene)
