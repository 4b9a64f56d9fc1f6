"""Where a training's batches come from: environments, a dataset, or whatever of yours keeps to this
Protocol.
"""

from typing import Protocol

from torch import Tensor

from td3_robot.replay import Batch


class Source(Protocol):
    """What `Collector` is to online and `Dataset` to offline learning."""

    env_steps: int  # control steps of all environments together; 0 where there are none

    @property
    def ready(self) -> bool:
        """Whether there is enough to learn from."""
        ...

    def collect(self, progress: float) -> None:
        """Whatever comes before the next gradient steps; `progress` in [0, 1] places it in the
        run.
        """

    def sample(self, progress: float) -> Batch:
        """A batch to learn from."""
        ...

    def update_priorities(self, error: Tensor) -> None:
        """How wrong the critics were, error (B,), about the batch sampled last; told where batches
        have weights.
        """

    def metrics(self) -> dict[str, float]:
        """What happened since the last call, to be logged: the same names every time, NaN where
        nothing is known.
        """
        ...

    def metadata(self) -> dict[str, object]:
        """What a checkpoint is to say of where it learned, as plain values."""
        ...

    def state_dict(self, with_replay: bool) -> dict:
        """All that the next batches depend on, as tensors and plain values; `replay` of it is None
        without it.
        """
        ...

    def load_state_dict(self, state: dict) -> list[str]:
        """Take back what `state_dict` gave. Returns what could not be restored, a sentence each."""
        ...
