"""The scripted push: what a programmer would write for the task `push` instead of learning it."""

from torch import Tensor

from envs.controllers.controlled import Controlled


class ScriptedPush:
    """Down behind the cube, against it towards the goal, and again from behind when it has slid
    aside.

    It keeps no state, see `Push.scripted`.

    Args:
        env: an environment of the task `push` to act in.
    """

    def __init__(self, env: Controlled):
        self._env = env

    def __call__(self, observation: Tensor) -> Tensor:
        """(B, o_dim) -> (B, n) in [-1, 1]; of the observation only the moment matters, not the
        values.
        """
        return self._env.task.compute_scripted_action(self._env.world, self._env.moment)
