"""What a controller needs of an environment; `ArmEnv` is one."""

from typing import Any, Protocol

import torch

from envs.collision import Nearest, known_collision, nearest
from envs.simulation.engine import SimModel
from envs.world import GROUND, Moment, World


class Assignment(Protocol):
    """What is to be done.

    Attributes:
        controllers: names of those that can do it.
    """

    controllers: tuple[str, ...]


class Controlled(Protocol):
    """B arms at one moment.

    Attributes:
        num_envs: B.
        world: what stays the same; model: its robot as the simulator's tensors.
        moment: the arms now, with their kinematics and scene.
        task: what they do; it names the controllers that can do it, and one made for a single task asks it for more.
    """

    num_envs: int
    world: World
    model: SimModel
    moment: Moment
    task: Any

    def nearest(self) -> Nearest:
        """What the arms are near to. Needs `World.collision`."""
        ...


class Surroundings:
    """What the arms of an environment are near to: obstacles, the ground and themselves, in any task.

    Where the environment has no need of capsules the robot's own are read; a robot without any is near to nothing.
    """

    def __init__(self, env: Controlled):
        self._env, world = env, env.world
        self._own = known_collision(world.robot, world.device) if world.collision is None else None

    def __call__(self) -> Nearest:
        """Now."""
        moment, q = self._env.moment, self._env.moment.state.q
        if self._env.world.collision is not None:
            return self._env.nearest()
        if self._own is not None:
            return nearest(self._own, q, moment.obstacles, GROUND)
        return Nearest(q.new_full((len(q), 1), torch.inf), q.new_zeros(len(q), 1, q.shape[1]))
