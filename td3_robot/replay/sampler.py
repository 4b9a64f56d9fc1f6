"""Samplers, which draw rows of a replay buffer, and the uniform one."""

from typing import Protocol

import torch
from torch import Tensor

from td3_robot.replay.sum_tree import SumTree
from td3_robot.utils.legacy import keep_old_names


@keep_old_names(stored="add_rows")
class Sampler(Protocol):
    """A drawer of rows, which are known by their index, slot * num_envs + environment."""

    def allocate(self, size: int, device: torch.device, generator: torch.Generator) -> None:
        """Forget everything and make room for `size` rows."""

    def add_rows(self, first: int, count: int, valid: Tensor | None) -> None:
        """Add the `count` rows from `first` on; `valid` (count,) is False at no transition."""

    def draw(self, batch_size: int) -> tuple[Tensor, Tensor | None]:
        """Draw indices (batch_size,) with replacement, and weights (batch_size, 1) or None."""
        ...

    def update(self, index: Tensor, error: Tensor) -> None:
        """Take the critics' errors (B,) of the rows of a draw, index (B,)."""

    def anneal(self, progress: float) -> None:
        """Take the progress of the run, in [0, 1]."""

    def state_dict(self, index: Tensor) -> dict:
        """Return the sampler's state of the rows at `index`, oldest first."""
        ...

    def load_state_dict(self, state: dict, index: Tensor) -> None:
        """Restore the state of any sampler, whose newest rows are now at `index`, oldest first."""


class Uniform:
    """A `Sampler` that draws uniformly with replacement.

    While every row is a transition, a sample is one random integer. After the first row that is
    none, or that `weigh` gives a weight, samples are drawn from a sum tree of weights: 0 of what is
    no transition, else 1.
    """

    def allocate(self, size: int, device: torch.device, generator: torch.Generator) -> None:
        """Forget everything and make room for `size` rows."""
        self._size = size
        self._device = device
        self._generator = generator
        self._count = 0  # rows 0 to count - 1 are in use
        self._tree: SumTree | None = None

    def add_rows(self, first: int, count: int, valid: Tensor | None) -> None:
        """Add the `count` rows from `first` on."""
        self._count = max(self._count, first + count)
        if valid is None and self._tree is None:
            return
        tree = self._tree or self._draw_by_weight()
        all_valid = torch.ones(count, device=self._device, dtype=torch.float32)
        tree.set_range(first, all_valid if valid is None else valid)

    def weigh(self, index: Tensor, weight: Tensor) -> None:
        """Set the weight (K,) > 0 of the transitions at index (K,) until they are overwritten."""
        tree = self._tree or self._draw_by_weight()
        now = tree.weights[index]
        changed = (now > 0) & (now != weight)
        tree.set(index[changed], weight[changed].to(now.dtype))

    def _draw_by_weight(self) -> SumTree:
        """Switch to weights, 1 for all rows so far."""
        self._tree = SumTree(self._size, self._device)
        self._tree.set_range(0, torch.ones(self._count, device=self._device, dtype=torch.float32))
        return self._tree

    def draw(self, batch_size: int) -> tuple[Tensor, None]:
        """Draw indices (batch_size,); there are no importance weights."""
        if self._tree is not None:
            return self._tree.draw(batch_size, self._generator), None
        shape = (batch_size,)
        index = torch.randint(self._count, shape, generator=self._generator, device=self._device)
        return index, None

    def update(self, index: Tensor, error: Tensor) -> None:
        """Ignore errors."""

    def anneal(self, progress: float) -> None:
        """Ignore progress."""

    def state_dict(self, index: Tensor) -> dict:
        """Return the weights of the rows at `index`, if there are any."""
        weights = {} if self._tree is None else {"weights": self._tree.weights[index]}
        return {"by_weight": self._tree is not None, **weights}

    def load_state_dict(self, state: dict, index: Tensor) -> None:
        """Restore weights; the priorities of a prioritised run are ignored."""
        if not state.get("by_weight"):
            return
        tree = self._tree or self._draw_by_weight()
        # older runs saved no weights: the buffer sets 0 again when it adds rows without transition
        if "weights" in state:
            tree.set(index, state["weights"][len(state["weights"]) - len(index) :].to(index.device))
