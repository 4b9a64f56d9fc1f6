"""What a controller needs of an environment; `ArmEnv` is one."""

from typing import Any, Protocol

import torch

from envs.collision import Nearest
from envs.simulation.engine import SimModel
from envs.world import Moment, World


class Controlled(Protocol):
    """B arms at one moment.

    Attributes:
        num_envs: B.
        world: what stays the same; model: its robot as the simulator's tensors.
        moment: the arms now, with their kinematics and scene.
        task: what they do; it names the controllers that can do it, and one made for a single task
            asks it for more.
    """

    num_envs: int
    world: World
    model: SimModel
    moment: Moment
    task: Any

    def find_nearest(self) -> Nearest:
        """What the arms are near to. Needs `World.collision`."""
        ...


class Surroundings:
    """What the arms of an environment are near to: obstacles, the ground and themselves, in any
    task.

    A robot without capsules is near to nothing.
    """

    def __init__(self, env: Controlled):
        self._env = env

    def __call__(self) -> Nearest:
        """Now."""
        if self._env.world.collision is not None:
            return self._env.find_nearest()
        q = self._env.moment.state.q
        return Nearest(q.new_full((len(q), 1), torch.inf), q.new_zeros(len(q), 1, q.shape[1]))
