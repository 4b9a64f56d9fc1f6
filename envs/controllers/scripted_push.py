"""Scripted expert for the task `push`, as a programmer would write it."""

from torch import Tensor

from envs.controllers.controlled import Controlled


class ScriptedPush:
    """Scripted expert that comes down behind the cube and pushes it to the goal, again if it slips.

    It has no state, see `Push.compute_scripted_action`.

    Args:
        env: an environment of the task `push` to act in.
    """

    def __init__(self, env: Controlled):
        self._env = env

    def __call__(self, observation: Tensor) -> Tensor:
        """Return the action (B, n) in [-1, 1] for the environment's moment."""
        return self._env.task.compute_scripted_action(self._env.world, self._env.moment)
