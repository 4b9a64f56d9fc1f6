"""Pick and place as a cube with forces would have it: it lies turned any way, and stops fingers
that come from above.

It is `pick_place` but for the scenes, see docs/physics.md.
"""

import math
from dataclasses import dataclass

import torch

from envs.tasks.pick_place import PickPlace
from envs.tasks.registry import register_task
from envs.world import Scene, World


@register_task("pick_turned")
@dataclass(frozen=True)
class PickTurned(PickPlace):
    """See `PickPlace`. The scene further holds `yaw` (), by how much the cube is turned at first
    about the vertical [rad], and `contact_depth` (), how deep a finger is in its top [m].
    """

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """See `PickPlace.candidates`."""
        scene = super().sample_scenes(world, count, generator)
        turn = torch.rand(len(scene["goal"]), generator=generator, device=world.device)
        return {**scene, "yaw": 0.5 * math.pi * turn, "contact_depth": torch.zeros_like(turn)}
