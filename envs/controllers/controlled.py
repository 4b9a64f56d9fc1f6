"""What a controller needs of an environment; `ArmEnv` is one."""

from typing import Protocol

from envs.collision import Nearest
from envs.simulation.kinematic import SimModel
from envs.world import Moment, World


class Controlled(Protocol):
    """B arms at one moment.

    Attributes:
        num_envs: B.
        world: what stays the same; model: its robot as the simulator's tensors.
        moment: the arms now, with their kinematics and scene.
        task: what they do; only controllers that are made for one task look at it.
    """

    num_envs: int
    world: World
    model: SimModel
    moment: Moment
    task: object

    def nearest(self) -> Nearest:
        """What the arms are near to. Needs `World.collision`."""
