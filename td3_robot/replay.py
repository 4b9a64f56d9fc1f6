"""Uniform experience replay: a ring buffer that lives on the device."""

from typing import NamedTuple

import torch
from torch import Tensor

from td3_robot.errors import ConfigError


class Batch(NamedTuple):
    """B transitions to learn from; all float32 on the agent's device."""

    state: Tensor  # (B, o_dim)
    action: Tensor  # (B, a_dim), inside [-a_max, a_max]
    reward: Tensor  # (B, 1)
    next_state: Tensor  # (B, o_dim), the true successor
    done: Tensor  # (B, 1): 1 where the task terminated, 0 elsewhere, also at a time limit
    discount: Tensor | None = None  # (B, 1) to use in place of gamma
    weight: Tensor | None = None  # (B, 1) importance weight of each sample


class ReplayBuffer:
    """The newest `capacity` transitions, one row each, so that sampling is a single gather.

    Args:
        capacity: transitions kept; the oldest are overwritten.
        o_dim, a_dim: widths of observations and actions.
        device: where the rows live.
        generator: draws the samples.

    Raises:
        ConfigError: there is not enough memory.
    """

    def __init__(self, capacity: int, o_dim: int, a_dim: int, device: torch.device | str, generator: torch.Generator):
        self.capacity, self.generator = capacity, generator
        self._widths = (o_dim, a_dim, 1, o_dim, 1)  # the columns of a Batch, in its order
        try:
            self._rows = torch.empty(capacity, sum(self._widths), device=device)
        except RuntimeError:
            gigabytes = 4e-9 * capacity * sum(self._widths)
            raise ConfigError(f"replay.capacity {capacity} needs {gigabytes:,.1f} GB, more than there is") from None
        self._head = 0  # where the next row goes
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, state: Tensor, action: Tensor, reward: Tensor, next_state: Tensor, terminated: Tensor) -> None:
        """Store B transitions: (B, o_dim), (B, a_dim), (B,), (B, o_dim), (B,)."""
        rows = torch.cat((state, action, reward[:, None], next_state, terminated[:, None].to(state.dtype)), 1)
        rows = rows[-self.capacity :]
        until_end = min(len(rows), self.capacity - self._head)
        self._rows[self._head : self._head + until_end] = rows[:until_end]
        self._rows[: len(rows) - until_end] = rows[until_end:]
        self._head = (self._head + len(rows)) % self.capacity
        self._size = min(self._size + len(rows), self.capacity)

    def sample(self, batch_size: int) -> Batch:
        """Transitions drawn uniformly with replacement.

        Raises:
            ValueError: the buffer is empty.
        """
        if self._size == 0:
            raise ValueError("cannot sample from an empty replay buffer")
        index = torch.randint(self._size, (batch_size,), generator=self.generator, device=self._rows.device)
        return Batch(*self._rows[index].split(self._widths, 1))

    def state_dict(self) -> dict:
        """The stored rows where they lie, and the write head."""
        return {"rows": self._rows[: self._size].clone(), "head": self._head, "capacity": self.capacity}

    def load_state_dict(self, state: dict) -> None:
        """Take back what `state_dict` of a buffer of the same widths gave.

        At the same capacity the buffer then draws and forgets exactly as the original; at another one it
        holds the same transitions, or the newest of them, in their order.
        """
        rows, head = state["rows"], state["head"]
        if state["capacity"] != self.capacity:
            oldest_first = rows.roll(-head, 0) if len(rows) == state["capacity"] else rows
            rows = oldest_first[-self.capacity :]
            head = len(rows) % self.capacity
        self._size, self._head = len(rows), head
        self._rows[: self._size] = rows
