"""Episodes that are begun ahead of time: where a few arms of many start anew at each step, calls
take all the time.
"""

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
        known: as their controller is to see them.
        observation: (B, o_dim) of the latter.
    """

    true: Moment
    known: Moment
    observation: Tensor

    def each(self, change: Callable[..., Tensor], *others: "ResetBatch") -> "ResetBatch":
        """See `Moment.each`."""
        return ResetBatch(
            self.true.each(change, *(other.true for other in others)),
            self.known.each(change, *(other.known for other in others)),
            change(self.observation, *(other.observation for other in others)),
        )

    def tensors(self) -> dict:
        """All of it by name."""
        return {
            "true": self.true.tensors(),
            "known": self.known.tensors(),
            "observation": self.observation,
        }

    @staticmethod
    def of_tensors(tensors: dict) -> "ResetBatch":
        """What `tensors` gave."""
        true, known = (Moment.of_tensors(tensors[name]) for name in ("true", "known"))
        return ResetBatch(true, known, tensors["observation"])


class ResetBuffer:
    """Hands out first moments in the order in which they were made.

    Args:
        begin: makes so many.
        block: how many are made at a time, at least; with 0 just those that are asked for.
    """

    def __init__(self, begin: Callable[[int], ResetBatch], block: int):
        self._begin, self._block = begin, block
        self.clear()

    def clear(self) -> None:
        """Forget what was made and not handed out."""
        self._ahead: ResetBatch | None = None
        self._next = 0

    def take(self, count: int) -> ResetBatch:
        """The next `count`."""
        left = self._left()
        if left is None or len(left.observation) < count:
            more = self._begin(
                max(self._block, count - (0 if left is None else len(left.observation)))
            )
            left = more if left is None else left.each(lambda *parts: torch.cat(parts), more)
            self._ahead, self._next = left, 0
        self._next += count
        return left.each(lambda x: x[:count])

    def _left(self) -> ResetBatch | None:
        ahead, start = self._ahead, self._next
        return None if ahead is None else ahead.each(lambda x: x[start:])

    def state_dict(self) -> dict:
        """What was made and not handed out; nothing where there is none."""
        left = self._left()
        if left is None or not len(left.observation):
            return {}
        return left.tensors()

    def load_state_dict(self, state: dict, device: torch.device) -> None:
        """Take back what `state_dict` gave, on any device."""
        self.clear()
        if state:
            self._ahead = ResetBatch.of_tensors(state).each(lambda x: x.to(device))
            self._next = int(state.get("handed_out", 0))  # of `AsyncResetBuffer`


class AsyncResetBuffer:
    """Hands out first moments to as many as ask, without being told on the host how many those are.

    A block of them is made, and made anew after about as many steps as hand all of it out, going by
    the block before; where more ask than there are, the first ones are handed out again.

    Args:
        begin: makes so many.
        block: how many are made at a time, at least as many as may ask at once.
    """

    FIRST = 8  # steps

    def __init__(self, begin: Callable[[int], ResetBatch], block: int):
        self._begin, self._block = begin, block
        self.clear()

    def clear(self) -> None:
        """Forget what was made."""
        self._ahead: ResetBatch | None = None
        self._every, self._left = self.FIRST, 0  # steps: of each block, and of this one

    def take(self, asked: Tensor) -> ResetBatch:
        """Where `asked` (B,) is true the next one, elsewhere any; B of them."""
        if self._ahead is None or not self._left:
            self._renew()
        self._left -= 1
        place = (self._handed_out + asked.cumsum(0) - 1) % self._block
        self._handed_out = self._handed_out + asked.sum()
        return not_none(self._ahead).each(lambda x: x.index_select(0, place))

    def _renew(self) -> None:
        if self._ahead is not None:  # to make them waits for the device in any case
            lasted = self._every * self._block // max(int(self._handed_out), 1)
            self._every = max(1, min(lasted, 2 * self._every))
        self._ahead, self._left = self._begin(self._block), self._every
        self._handed_out = torch.zeros((), dtype=torch.long, device=self._ahead.observation.device)

    def state_dict(self) -> dict:
        """What is handed out next; nothing before the first time."""
        if self._ahead is None:
            return {}
        steps = {"every": self._every, "left": self._left, "handed_out": self._handed_out}
        return {**self._ahead.tensors(), **steps}

    def load_state_dict(self, state: dict, device: torch.device) -> None:
        """Take back what `state_dict` gave, on any device; of `ResetBuffer` nothing, so that a new
        block is made.
        """
        self.clear()
        if "handed_out" in state:
            self._ahead = ResetBatch.of_tensors(state).each(lambda x: x.to(device))
            self._every, self._left = state["every"], state["left"]
            self._handed_out = state["handed_out"].to(device)
