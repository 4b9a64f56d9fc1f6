"""Buffers of first moments, made in blocks: resetting few arms takes as long as many."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.world import Moment
from td3_robot.errors import not_none


@dataclass(frozen=True)
class ResetBatch:
    """The first moments of B episodes.

    Attributes:
        true: the arms as they are.
        known: the arms as their controller observes them.
        observation: (B, o_dim) of `known`.
    """

    true: Moment
    known: Moment
    observation: Tensor

    def each(self, change: Callable[..., Tensor], *others: "ResetBatch") -> "ResetBatch":
        """Apply a function to every tensor, see `Moment.each`."""
        return ResetBatch(
            self.true.each(change, *(other.true for other in others)),
            self.known.each(change, *(other.known for other in others)),
            change(self.observation, *(other.observation for other in others)),
        )

    def tensors(self) -> dict:
        """Return all tensors by name."""
        return {
            "true": self.true.tensors(),
            "known": self.known.tensors(),
            "observation": self.observation,
        }

    @staticmethod
    def of_tensors(tensors: dict) -> "ResetBatch":
        """Build a batch from what `tensors` returned."""
        true, known = (Moment.of_tensors(tensors[name]) for name in ("true", "known"))
        return ResetBatch(true, known, tensors["observation"])


class ResetBuffer:
    """Buffer of first moments, used in the order in which they were made.

    Args:
        begin: makes a number of first moments.
        block: least number that is made at a time; 0: exactly as many as are taken.
    """

    def __init__(self, begin: Callable[[int], ResetBatch], block: int):
        self._begin = begin
        self._block = block
        self.clear()

    def clear(self) -> None:
        """Drop all unused moments."""
        self._ahead: ResetBatch | None = None
        self._next = 0

    def take(self, count: int) -> ResetBatch:
        """Return the next `count` first moments."""
        left = self._get_unused()
        if left is None or len(left.observation) < count:
            missing = count - (0 if left is None else len(left.observation))
            more = self._begin(max(self._block, missing))
            left = more if left is None or not len(left.observation) else _join(left, more)
            self._ahead = left
            self._next = 0
        self._next += count
        return left.each(lambda x: x[:count])

    def _get_unused(self) -> ResetBatch | None:
        start = self._next
        return None if self._ahead is None else self._ahead.each(lambda x: x[start:])

    def state_dict(self) -> dict:
        """Return the unused moments; empty if there are none."""
        left = self._get_unused()
        if left is None or not len(left.observation):
            return {}
        return left.tensors()

    def load_state_dict(self, state: dict, device: torch.device) -> None:
        """Restore what `state_dict` returned, on any device."""
        self.clear()
        if state:
            self._ahead = ResetBatch.of_tensors(state).each(lambda x: x.to(device))
            self._next = int(state.get("handed_out", 0))  # of `AsyncResetBuffer`


def _join(first: ResetBatch, second: ResetBatch) -> ResetBatch:
    """Join two batches; the result is joined again and again, so it must not keep them."""
    joined = first.each(lambda *parts: torch.cat(parts), second)
    return ResetBatch(joined.true.flatten(), joined.known.flatten(), joined.observation)


class AsyncResetBuffer:
    """Buffer of first moments that never waits for the device to count how many are needed.

    A block of moments is replaced after about as many steps as use it up, judging by the previous
    block; if more are needed, its first ones are used again.

    Args:
        begin: makes a number of first moments.
        block: number that is made at a time, at least the number of arms.
    """

    FIRST = 8  # steps

    def __init__(self, begin: Callable[[int], ResetBatch], block: int):
        self._begin = begin
        self._block = block
        self.clear()

    def clear(self) -> None:
        """Drop all moments."""
        self._ahead: ResetBatch | None = None
        self._every = self.FIRST  # steps that a block lasts
        self._left = 0  # steps that this block still lasts

    def take(self, needed: Tensor) -> ResetBatch:
        """Return B first moments: new ones where `needed` (B,) is true, any elsewhere."""
        if self._ahead is None or not self._left:
            self._renew()
        self._left -= 1
        place = (self._handed_out + needed.cumsum(0) - 1) % self._block
        self._handed_out = self._handed_out + needed.sum()
        return not_none(self._ahead).each(lambda x: x.index_select(0, place))

    def _renew(self) -> None:
        if self._ahead is not None:  # making them waits for the device anyway
            lasted = self._every * self._block // max(int(self._handed_out), 1)
            self._every = max(1, min(lasted, 2 * self._every))
        self._ahead = self._begin(self._block)
        self._left = self._every
        self._handed_out = torch.zeros((), dtype=torch.long, device=self._ahead.observation.device)

    def state_dict(self) -> dict:
        """Return the block and its position; empty before the first use."""
        if self._ahead is None:
            return {}
        steps = {"every": self._every, "left": self._left, "handed_out": self._handed_out}
        return {**self._ahead.tensors(), **steps}

    def load_state_dict(self, state: dict, device: torch.device) -> None:
        """Restore what `state_dict` returned, on any device, unless a `ResetBuffer` did."""
        self.clear()
        if "handed_out" in state:
            self._ahead = ResetBatch.of_tensors(state).each(lambda x: x.to(device))
            self._every = state["every"]
            self._left = state["left"]
            self._handed_out = state["handed_out"].to(device)


def choose_rows(where: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """Return `new` (B, ...) in the rows `where` (B,) is true, `old` elsewhere."""
    return torch.where(where.view(-1, *[1] * (old.ndim - 1)), new, old)


def replace_rows(rows: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """Return `old` (B, ...) with `new` (N, ...) in the N rows of these indices."""
    return old.index_copy(0, rows, new)
