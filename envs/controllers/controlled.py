"""Interface of environments to controllers; `ArmEnv` implements it."""

from typing import Any, Protocol

import torch

from envs.collision import Nearest
from envs.simulation.engine import SimModel
from envs.world import Moment, World


class Controlled(Protocol):
    """B arms at one moment.

    Attributes:
        num_envs: B.
        world: robot, workspace and capsules, which do not change.
        model: the robot as the simulator's tensors.
        moment: the observed arms with their kinematics and scene.
        task: the task; it names the controllers that can do it, and answers to those made for it.
    """

    num_envs: int
    world: World
    model: SimModel
    moment: Moment
    task: Any

    def find_nearest(self) -> Nearest:
        """Find the distances of the arms to anything. Needs `World.collision`."""
        ...


class Surroundings:
    """Distances of an environment's arms to obstacles, the ground and themselves, in any task.

    Those of a robot without capsules are infinite.
    """

    def __init__(self, env: Controlled):
        self._env = env

    def __call__(self) -> Nearest:
        """Return the distances now."""
        if self._env.world.collision is not None:
            return self._env.find_nearest()
        q = self._env.moment.state.q
        return Nearest(q.new_full((len(q), 1), torch.inf), q.new_zeros(len(q), 1, q.shape[1]))
