"""The newest transitions of B environments in a ring over time that lives on the device."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from td3_robot.errors import CheckpointError, ConfigError
from td3_robot.replay.sampler import Sampler, Uniform
from td3_robot.utils.memory import require_memory

_NO_TRANSITION = 2.0  # in the column `cut`


class Batch(NamedTuple):
    """B transitions to learn from; all float32 on the agent's device."""

    state: Tensor  # (B, o_dim)
    action: Tensor  # (B, a_dim), inside [-a_max, a_max]
    reward: Tensor  # (B, 1)
    next_state: Tensor  # (B, o_dim), the true successor
    done: Tensor  # (B, 1): 1 where the task terminated, 0 elsewhere, also at a time limit
    discount: Tensor | None = None  # (B, 1) to use in place of gamma
    weight: Tensor | None = None  # (B, 1) importance weight of each sample


class Columns(NamedTuple):
    """Where in a row each part of a transition lies."""

    state: slice
    action: slice
    reward: slice
    terminated: slice  # 1 where the task ended
    # 0: the next slot may go on from here; 1: it does not, a time limit; 2: the row is no
    # transition
    cut: slice
    next_state: slice


class Reader(Protocol):
    """What is learnt of the drawn rows."""

    def allocate(self, buffer: "ReplayBuffer") -> None:
        """Forget everything and make room for the rows of `buffer`."""

    def stored(self, buffer: "ReplayBuffer", slot: int, count: int) -> None:
        """New rows have just been put into the `count` slots from `slot` on."""

    def read(self, buffer: "ReplayBuffer", index: Tensor) -> Batch:
        """The batch of the rows at index (B,)."""
        ...


class OneStep:
    """The transitions as they happened; a `Reader`."""

    def allocate(self, buffer: "ReplayBuffer") -> None:
        """Nothing to keep."""

    def stored(self, buffer: "ReplayBuffer", slot: int, count: int) -> None:
        """Nothing to keep."""

    def read(self, buffer: "ReplayBuffer", index: Tensor) -> Batch:
        """See `Reader.read`."""
        return buffer.batch(buffer.read(index))


class ReplayBuffer:
    """A ring of slots, one for each time step, of one row for each environment.

    Everything about a transition is in one row, so that a batch is a single gather; what follows a
    row in its environment lies `num_envs` rows further.

    Args:
        capacity: transitions kept, rounded down to whole slots; the oldest are overwritten.
        num_envs: environments that step together (B).
        o_dim, a_dim: widths of observations and actions.
        device: where the rows live.
        generator: draws the samples.
        sampler: which rows are drawn; uniformly if not given.
        reader: what is learnt of them; the transitions themselves if not given.

    Attributes:
        slots: time steps kept.
        rows: (slots * num_envs, row width), laid out as `columns` says.

    Raises:
        ConfigError: there is not enough memory, or less capacity than environments.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        o_dim: int,
        a_dim: int,
        device: torch.device | str,
        generator: torch.Generator,
        sampler: Sampler | None = None,
        reader: Reader | None = None,
    ):
        if capacity < num_envs:
            raise ConfigError(
                f"capacity must be at least the number of envs, got {capacity} < {num_envs}"
            )
        self.slots, self.num_envs, self.generator = capacity // num_envs, num_envs, generator
        self.sampler, self.reader = sampler or Uniform(), reader or OneStep()
        self._widths = (o_dim, a_dim, 1, 1, 1, o_dim)
        ends = torch.tensor(self._widths).cumsum(0).tolist()
        self.columns = Columns(*(slice(end - width, end) for width, end in zip(self._widths, ends)))
        require_memory(f"capacity {capacity}", 4 * capacity * ends[-1], device)
        self._written = 0  # slots, from the run's first on
        self._ring = torch.empty(self.slots, num_envs, ends[-1], device=device)
        self.rows = self._ring.view(-1, ends[-1])
        self._clear(0)

    def _clear(self, head: int) -> None:
        """Empty the ring; the next slot written is `head`."""
        self._head, self._stored = head, 0  # slots
        self._drawn: Tensor | None = None
        self.sampler.allocate(len(self.rows), self.rows.device, self.generator)
        self.reader.allocate(self)

    def __len__(self) -> int:
        """Rows stored, those that are no transition included."""
        return self._stored * self.num_envs

    # Writing

    def add(
        self,
        state: Tensor,
        action: Tensor,
        reward: Tensor,
        next_state: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        valid: Tensor | None = None,
    ) -> None:
        """Store one time step of every environment.

        Args:
            state, next_state: (B, o_dim) before and after the step, not that of a later episode.
            action: (B, a_dim).
            reward: (B,).
            terminated, truncated: (B,) bool, ends of episodes as in `Step`.
            valid: (B,) bool, False where the row is no transition: it is never drawn, and no n-step
                return and no hindsight goal crosses it. Not all rows stored may be such. None: all
                are transitions.
        """
        steps = (x.unsqueeze(0) for x in (state, action, reward, next_state, terminated, truncated))
        self.fill(*steps, valid=None if valid is None else valid.unsqueeze(0))

    def fill(
        self,
        state: Tensor,
        action: Tensor,
        reward: Tensor,
        next_state: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        valid: Tensor | None = None,
    ) -> None:
        """Store T time steps at once; as `add`, each argument with the time before its other
        dimensions.
        """
        cut = truncated
        if valid is not None:
            cut = torch.where(valid, truncated.to(state.dtype), _NO_TRANSITION)
            cut[:-1].clamp_(
                min=(~valid[1:]).to(state.dtype)
            )  # what leads to no transition leads nowhere
            self._newest_cut().clamp_(min=(~valid[0]).to(state.dtype))
        self._write(
            (
                state,
                action,
                reward.unsqueeze(2),
                terminated.unsqueeze(2),
                cut.unsqueeze(2),
                next_state,
            ),
            valid,
        )

    def _newest_cut(self) -> Tensor:
        """A view (B,) of the column `cut` of the newest slot, of one nobody reads where nothing is
        stored.
        """
        return self._ring[self._head - 1, :, self.columns.cut.start]

    def end_episodes(self) -> None:
        """What comes next starts new episodes: nothing stored so far goes on."""
        self._newest_cut().clamp_(min=1.0)

    def _write(self, parts: tuple[Tensor, ...], valid: Tensor | None) -> None:
        """Put the columns of T steps, (T, B, width) each, behind the write head."""
        if len(parts[0]) >= self.slots:  # nothing of the old remains
            parts, valid = (
                tuple(part[-self.slots :] for part in parts),
                None if valid is None else valid[-self.slots :],
            )
            self._clear(self._head)
        until_end = self.slots - self._head
        if len(parts[0]) <= until_end:
            self._write_piece(parts, valid)
        else:
            for piece in (slice(0, until_end), slice(until_end, None)):
                self._write_piece(
                    tuple(part[piece] for part in parts), None if valid is None else valid[piece]
                )

    def _write_piece(self, parts: tuple[Tensor, ...], valid: Tensor | None) -> None:
        """Put the columns of steps that do not go beyond the last slot."""
        slot, count = self._head, len(parts[0])
        torch.cat(parts, 2, out=self._ring[slot : slot + count])
        self._head = (slot + count) % self.slots
        self._stored = min(self._stored + count, self.slots)
        self._written += count
        self._drawn = None
        valid = None if valid is None else valid.flatten()
        self.sampler.stored(slot * self.num_envs, count * self.num_envs, valid)
        self.reader.stored(self, slot, count)

    # Drawing

    def sample(self, batch_size: int) -> Batch:
        """Transitions drawn with replacement.

        Raises:
            ValueError: the buffer is empty.
        """
        if not self._stored:
            raise ValueError("cannot sample from an empty replay buffer")
        self._drawn, weight = self.sampler.draw(batch_size)
        batch = self.reader.read(self, self._drawn)
        return batch if weight is None else batch._replace(weight=weight)

    def update_priorities(self, error: Tensor) -> None:
        """Tell the sampler how wrong the critics were, error (B,), about the batch sampled last.

        Raises:
            ValueError: no batch was sampled since the last `add`, or it had another size.
        """
        if self._drawn is None or error.shape != self._drawn.shape:
            drawn = None if self._drawn is None else tuple(self._drawn.shape)
            raise ValueError(
                f"errors must be those of the batch just sampled, {drawn}, got {tuple(error.shape)}"
            )
        self.sampler.update(self._drawn, error)

    def anneal(self, progress: float) -> None:
        """Tell the sampler the share of the run already done, in [0, 1]."""
        self.sampler.anneal(progress)

    # For readers

    def read(self, index: Tensor, columns: slice = slice(None)) -> Tensor:
        """Those columns of the rows at index (B,), copied: (B, width)."""
        # on a CPU several times faster than rows[index, columns], which goes element by element
        return self.rows[:, columns].index_select(0, index)

    def batch(self, rows: Tensor) -> Batch:
        """The transitions in rows (B, row width)."""
        state, action, reward, terminated, _, next_state = rows.split(self._widths, 1)
        return Batch(state, action, reward, next_state, terminated)

    def age(self, index: Tensor) -> Tensor:
        """How many newer time steps there are than that of each row."""
        newest = self._head * self.num_envs - 1  # the newest slot's last row
        return (newest - index) % len(self.rows) // self.num_envs

    def later(self, index: Tensor, steps: Tensor) -> Tensor:
        """The rows of the same environments that many time steps later, or earlier where
        negative.
        """
        return (index + steps * self.num_envs) % len(self.rows)

    def ended(self, first: int, last: int) -> Tensor:
        """Whether nothing follows the rows of slots first <= slot < last in their episode; (last -
        first, B) bool.
        """
        ends = slice(self.columns.terminated.start, self.columns.cut.stop)
        return (self._ring[first:last, :, ends] > 0).any(2)

    # Saving

    def state_dict(self) -> dict:
        """The stored rows (slots, B, row width), oldest first, where the next goes, and the
        sampler's state.

        `first` is the place of the oldest slot among all of the run.
        """
        index = self.oldest_first()
        return {
            "rows": self.rows.index_select(0, index).view(self._stored, *self._ring.shape[1:]),
            "first": self._written - self._stored,
            "head": self._head,
            "slots": self.slots,
            "sampler": self.sampler.state_dict(index),
        }

    def oldest_first(self) -> Tensor:
        """Indices of all stored rows in the order of time."""
        oldest = (self._head - self._stored) * self.num_envs
        return (torch.arange(len(self), device=self.rows.device) + oldest) % len(self.rows)

    def load_state_dict(self, state: dict) -> None:
        """Take back what `state_dict` of a buffer of the same environments gave, on any device.

        At the same capacity the buffer then draws and forgets exactly as the original; at another
        one it holds the same transitions, or the newest of them, in their order.

        Raises:
            CheckpointError: the rows are of another number of environments or of other widths, or
                there are none.
        """
        if missing := {"rows", "head", "slots", "sampler"} - state.keys():
            raise CheckpointError(f"the saved replay lacks {', '.join(sorted(missing))}")
        rows = state["rows"][-self.slots :].to(self.rows.device)
        if rows.shape[1:] != self._ring.shape[1:]:
            raise CheckpointError(
                f"the saved replay has {tuple(rows.shape[1:])} (envs, columns), not {tuple(self._ring.shape[1:])}"
            )
        self._clear((state["head"] - len(rows)) % self.slots if state["slots"] == self.slots else 0)
        valid = rows[:, :, self.columns.cut.start] != _NO_TRANSITION
        self._write(rows.split(self._widths, 2), None if valid.all() else valid)
        self._written = state.get("first", 0) + len(state["rows"])
        self.sampler.load_state_dict(state["sampler"], self.oldest_first())
