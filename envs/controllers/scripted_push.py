"""The scripted push: what a programmer would write for the task `push` instead of learning it."""

from torch import Tensor

from envs.controllers.controlled import Controlled
from envs.controllers.pointing import PointingDown


class ScriptedPush:
    """Down behind the cube, against it towards the goal, and again from behind when it has slid aside.

    It keeps no state: the hand follows `Push.way`, pointing down, and turns by `Push.turn`.

    Args:
        env: an environment of the task `push` to act in.
        gain, damping: see `PointingDown`.
    """

    def __init__(self, env: Controlled, gain: float = 5.0, damping: float = 0.05):
        self._env, self._hand = env, PointingDown(env, gain, damping)

    def __call__(self, observation: Tensor) -> Tensor:
        """(B, o_dim) -> (B, n) in [-1, 1]; of the observation only the moment matters, not the values."""
        task, world, moment = self._env.task, self._env.world, self._env.moment
        return self._hand.action(task.way(world, moment), task.turn(world, moment))
