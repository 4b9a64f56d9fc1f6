"""Pick and place as a cube with forces would have it: it lies turned any way, and stops fingers that come from above.

It is `pick_place` but for the scenes, and for what its policies are shown: what the scripted pick would do, to be
corrected. What is learnt here without forces also holds with them, see docs/physics.md.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.controllers.scripted_pick import scripted
from envs.tasks.layout import Column
from envs.tasks.pick_place import PickPlace
from envs.tasks.registry import register_task
from envs.world import Moment, Scene, World


@register_task("pick_turned")
@dataclass(frozen=True)
class PickTurned(PickPlace):
    """See `PickPlace`. The scene further holds `yaw` (), by how much the cube is turned at first about the vertical
    [rad], and `contact_depth` (), how deep a finger is in its top [m].
    """

    def columns(self, world: World) -> list[Column]:
        """See `observe`."""
        return [*super().columns(world), Column("scripted", len(world.model.qdlim) + 1, True)]

    def candidates(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """See `PickPlace.candidates`."""
        scene = super().candidates(world, count, generator)
        turn = torch.rand(len(scene["goal"]), generator=generator, device=world.device)
        return {**scene, "yaw": 0.5 * math.pi * turn, "contact_depth": torch.zeros_like(turn)}

    def observe(self, world: World, moment: Moment) -> Tensor:
        """See `PickPlace.observe`; last comes scripted, what the scripted pick would do."""
        return torch.cat((super().observe(world, moment), scripted(self, world, moment)), 1)
