"""Episodes that are begun ahead of time: where a few arms of many start anew at each step, calls take all the time."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.world import Moment


@dataclass(frozen=True)
class Begun:
    """The first moments of B episodes.

    Attributes:
        true: the arms as they are.
        known: as their controller is to see them.
        observation: (B, o_dim) of the latter.
    """

    true: Moment
    known: Moment
    observation: Tensor

    def each(self, change: Callable[..., Tensor], *others: "Begun") -> "Begun":
        """See `Moment.each`."""
        return Begun(
            self.true.each(change, *(other.true for other in others)),
            self.known.each(change, *(other.known for other in others)),
            change(self.observation, *(other.observation for other in others)),
        )


class Beginnings:
    """Hands out first moments in the order in which they were made.

    Args:
        begin: makes so many.
        block: how many are made at a time, at least; with 0 just those that are asked for.
    """

    def __init__(self, begin: Callable[[int], Begun], block: int):
        self._begin, self._block = begin, block
        self.clear()

    def clear(self) -> None:
        """Forget what was made and not handed out."""
        self._ahead: Begun | None = None
        self._next = 0

    def take(self, count: int) -> Begun:
        """The next `count`."""
        left = self._left()
        if left is None or len(left.observation) < count:
            more = self._begin(max(self._block, count - (0 if left is None else len(left.observation))))
            left = more if left is None else left.each(lambda *parts: torch.cat(parts), more)
            self._ahead, self._next = left, 0
        self._next += count
        return left.each(lambda x: x[:count])

    def _left(self) -> Begun | None:
        ahead, start = self._ahead, self._next
        return None if ahead is None else ahead.each(lambda x: x[start:])

    def state_dict(self) -> dict:
        """What was made and not handed out; nothing where there is none."""
        left = self._left()
        if left is None or not len(left.observation):
            return {}
        return {"true": left.true.tensors(), "known": left.known.tensors(), "observation": left.observation}

    def load_state_dict(self, state: dict, device: torch.device) -> None:
        """Take back what `state_dict` gave, on any device."""
        self.clear()
        if state:
            true, known = (Moment.of_tensors(state[name]) for name in ("true", "known"))
            self._ahead = Begun(true, known, state["observation"]).each(lambda x: x.to(device))
