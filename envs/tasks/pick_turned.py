"""Pick and place for contact dynamics: the cube is turned and stops fingers from above.

The task is `pick_place` with other scenes, see docs/reference/tasks/pick_turned.md.
"""

import math
from dataclasses import dataclass

import torch

from envs.config.env_options import KINEMATIC, MUJOCO
from envs.tasks.pick_place import PickPlace
from envs.tasks.registry import register_task
from envs.world import Scene, World
from td3_robot.vec_env import draw_uniform


@register_task("pick_turned")
@dataclass(frozen=True)
class PickTurned(PickPlace):
    """The task `pick_turned`: `pick_place` with turned cubes.

    The scene also holds `yaw` (), the cube's initial turn about the vertical [rad], and
    `contact_depth` (), the depth of a finger in its top [m].
    """

    engines = (MUJOCO, KINEMATIC)

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Sample the scenes of `pick_place` with turned cubes."""
        scene = super().sample_scenes(world, count, generator)
        turn = draw_uniform(generator, len(scene["goal"]))
        return {**scene, "yaw": 0.5 * math.pi * turn, "contact_depth": torch.zeros_like(turn)}
