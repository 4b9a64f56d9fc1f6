"""Which transitions are drawn: what a sampler is, and the uniform one."""

from typing import Protocol

import torch
from torch import Tensor

from td3_robot.replay.sum_tree import SumTree


class Sampler(Protocol):
    """Which rows are drawn. A row is known by its index, slot * num_envs + environment."""

    def allocate(self, size: int, device: torch.device, generator: torch.Generator) -> None:
        """Forget everything and make room for `size` rows."""

    def stored(self, first: int, count: int, valid: Tensor | None) -> None:
        """New transitions lie in the `count` rows from `first` on, but for those where `valid`
        (count,) is False.
        """

    def draw(self, batch_size: int) -> tuple[Tensor, Tensor | None]:
        """Indices (batch_size,) of rows, with replacement, and importance weights (batch_size, 1)
        or None.
        """
        ...

    def update(self, index: Tensor, error: Tensor) -> None:
        """Learn how wrong the critics were, error (B,), about the rows of a draw, index (B,)."""

    def anneal(self, progress: float) -> None:
        """Told the share of the run already done, in [0, 1]."""

    def state_dict(self, index: Tensor) -> dict:
        """What the sampler knows of the rows at `index`, oldest first."""
        ...

    def load_state_dict(self, state: dict, index: Tensor) -> None:
        """Take back what any sampler knew of the newest rows of its time, which now are at `index`,
        oldest first.
        """


class Uniform:
    """Draws uniformly with replacement; a `Sampler`.

    As long as every row is a transition that is one random integer a sample. The first row that is
    none, or that `weigh` gives a weight, turns it into draws from a sum tree of weights: 0 of what
    is no transition, else 1.
    """

    def allocate(self, size: int, device: torch.device, generator: torch.Generator) -> None:
        """See `Sampler.allocate`."""
        self._size, self._device, self._generator = size, device, generator
        self._count = 0  # rows 0 to count - 1 are in use
        self._tree: SumTree | None = None

    def stored(self, first: int, count: int, valid: Tensor | None) -> None:
        """See `Sampler.stored`."""
        self._count = max(self._count, first + count)
        if valid is None and self._tree is None:
            return
        tree = self._tree or self._draw_by_weight()
        tree.set_range(first, torch.ones(count, device=self._device) if valid is None else valid)

    def weigh(self, index: Tensor, weight: Tensor) -> None:
        """Draw the transitions at index (K,) in proportion to weight (K,) > 0, until they are
        overwritten.
        """
        tree = self._tree or self._draw_by_weight()
        now = tree.weights[index]
        changed = (now > 0) & (now != weight)
        tree.set(index[changed], weight[changed].to(now.dtype))

    def _draw_by_weight(self) -> SumTree:
        """From now on rows have weights, 1 for all so far."""
        self._tree = SumTree(self._size, self._device)
        self._tree.set_range(0, torch.ones(self._count, device=self._device))
        return self._tree

    def draw(self, batch_size: int) -> tuple[Tensor, None]:
        """See `Sampler.draw`."""
        if self._tree is not None:
            return self._tree.draw(batch_size, self._generator), None
        return torch.randint(
            self._count, (batch_size,), generator=self._generator, device=self._device
        ), None

    def update(self, index: Tensor, error: Tensor) -> None:
        """Errors change nothing."""

    def anneal(self, progress: float) -> None:
        """Progress changes nothing."""

    def state_dict(self, index: Tensor) -> dict:
        """How it draws: by which weights, where it has any."""
        weights = {} if self._tree is None else {"weights": self._tree.weights[index]}
        return {"by_weight": self._tree is not None, **weights}

    def load_state_dict(self, state: dict, index: Tensor) -> None:
        """See `Sampler.load_state_dict`; the priorities of a prioritised run are of no use here."""
        if not state.get("by_weight"):
            return
        tree = self._tree or self._draw_by_weight()
        if (
            "weights" in state
        ):  # older runs had 0 of what the buffer says, when it stores it again, is no transition
            tree.set(index, state["weights"][len(state["weights"]) - len(index) :].to(index.device))
