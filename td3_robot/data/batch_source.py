"""The interface between a training and where its batches come from."""

from typing import Protocol

from torch import Tensor

from td3_robot.replay import Batch
from td3_robot.utils.legacy import find_old_names


class BatchSource(Protocol):
    """Source of a training's batches, such as `Collector`, `Dataset`, or a class of your own."""

    env_steps: int  # control steps of all environments together; 0 without environments

    @property
    def ready(self) -> bool:
        """True if there is enough to learn from."""
        ...

    def collect(self, progress: float) -> None:
        """Gather data before the next gradient steps; `progress` in [0, 1] is the run's."""

    def sample(self, progress: float) -> Batch:
        """Return a batch to learn from."""
        ...

    def update_priorities(self, error: Tensor) -> None:
        """Receive the critics' errors (B,) on the last batch, if its rows have weights."""

    def metrics(self) -> dict[str, float]:
        """Return figures to log since the last call: the same names every time, NaN if unknown.

        Of several processes that train together, each returns those of all.
        """
        ...

    def metadata(self) -> dict[str, object]:
        """Return plain values that a checkpoint records about the source."""
        ...

    def state_dict(self, with_replay: bool) -> dict:
        """Return all that the next batches depend on, as tensors and plain values.

        Its entry `replay` is None unless `with_replay`.
        """
        ...

    def load_state_dict(self, state: dict) -> list[str]:
        """Restore a `state_dict`. Return a sentence for each thing that could not be restored."""
        ...


__getattr__ = find_old_names(__name__)
