"""One episode again, out of many."""

from torch import Tensor

from envs.arm_env import ArmEnv


class Replay(ArmEnv):
    """One arm whose every episode is the same: that in which an arm of another environment is.

    Args:
        source: whose robot, task, reward and guard this one takes over; not to be stepped while this one is in use.
        row: the arm.
    """

    def __init__(self, source: ArmEnv, row: int):
        self._source, self._row = source, row
        options = {"sparse": source.sparse, "guard": source.guard}
        super().__init__(source.robot, source.task, 1, str(source.device), seed=0, **options)

    def reset(self, seed: int | None = None) -> Tensor:
        """Begin the episode, whatever the seed. Returns the observation (1, o_dim)."""
        return self.episode(self._row, self._source)

    def _reset_where(self, done: Tensor, observation: Tensor) -> Tensor:
        return self.reset() if done.any() else observation
