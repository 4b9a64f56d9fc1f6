"""Replay buffer of the newest transitions of B environments, a ring over time on the device."""

from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from td3_robot.config.run import CAPACITY, ENVS
from td3_robot.errors import CheckpointError, ConfigError, require_integer
from td3_robot.replay.sampler import Sampler, Uniform
from td3_robot.utils.legacy import keep_old_names
from td3_robot.utils.memory import require_memory

_NO_TRANSITION = 2.0  # in the column `cut`


class Batch(NamedTuple):
    """A batch of B transitions, all float32 on the agent's device."""

    state: Tensor  # (B, o_dim)
    action: Tensor  # (B, a_dim), inside [-a_max, a_max]
    reward: Tensor  # (B, 1)
    next_state: Tensor  # (B, o_dim), the true successor
    done: Tensor  # (B, 1): 1 where the task terminated, 0 elsewhere, also at a time limit
    discount: Tensor | None = None  # (B, 1) instead of gamma
    weight: Tensor | None = None  # (B, 1) importance weight of each sample


class Columns(NamedTuple):
    """The columns of each part of a transition in a row."""

    state: slice
    action: slice
    reward: slice
    terminated: slice  # 1 where the task ended
    cut: slice  # 0: the episode may continue; 1: it does not, a time limit; 2: no transition
    next_state: slice


@keep_old_names(stored="add_rows")
class Reader(Protocol):
    """A maker of batches from drawn rows."""

    def allocate(self, buffer: "ReplayBuffer") -> None:
        """Forget everything and make room for the rows of `buffer`."""

    def add_rows(self, buffer: "ReplayBuffer", slot: int, count: int) -> None:
        """Take note of new rows in the `count` slots from `slot` on."""

    def read(self, buffer: "ReplayBuffer", index: Tensor) -> Batch:
        """Return the batch of the rows at index (B,)."""
        ...

    def state_dict(self, buffer: "ReplayBuffer", index: Tensor) -> dict:
        """Return what `add_rows` could not find out again of the rows at `index`, oldest first."""
        ...

    def load_state_dict(self, buffer: "ReplayBuffer", state: dict, index: Tensor) -> None:
        """Restore the state of any reader, whose newest rows are now at `index`, oldest first."""


class OneStep:
    """A `Reader` of the transitions as they happened."""

    def allocate(self, buffer: "ReplayBuffer") -> None:
        """Do nothing."""

    def add_rows(self, buffer: "ReplayBuffer", slot: int, count: int) -> None:
        """Do nothing."""

    def read(self, buffer: "ReplayBuffer", index: Tensor) -> Batch:
        """Return the transitions in the rows at index (B,)."""
        return buffer.batch(buffer.read(index))

    def state_dict(self, buffer: "ReplayBuffer", index: Tensor) -> dict:
        """Return nothing: the rows tell all."""
        return {}

    def load_state_dict(self, buffer: "ReplayBuffer", state: dict, index: Tensor) -> None:
        """Do nothing."""


@keep_old_names(age="compute_age", ended="find_ends", later="shift", oldest_first="index_by_time")
class ReplayBuffer:
    """A ring of slots, one for each time step, with one row for each environment.

    All parts of a transition are in one row, so that a batch is a single gather. The next row of
    the same environment lies `num_envs` rows further.

    Args:
        capacity: transitions kept, rounded down to whole slots; the oldest are overwritten.
        num_envs: environments that step together (B).
        o_dim, a_dim: widths of observations and actions.
        device: device of the rows.
        generator: draws the samples.
        sampler: draws rows; `Uniform` if not given.
        reader: makes batches of them; `OneStep` if not given.

    Attributes:
        slots: time steps kept.
        rows: (slots * num_envs, row width) with the layout `columns`.

    Raises:
        ConfigError: there is not enough memory, or less capacity than environments; or one of both
            is no integer.
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
        capacity = require_integer("capacity", capacity, 0, int(CAPACITY.most))
        num_envs = require_integer("num_envs", num_envs, 1, int(ENVS.most))
        if capacity < num_envs:
            raise ConfigError(
                f"capacity must be at least the number of envs, got {capacity} < {num_envs}"
            )
        self.slots = capacity // num_envs
        self.num_envs = num_envs
        self.generator = generator
        self.sampler = sampler or Uniform()
        self.reader = reader or OneStep()
        self._widths = (o_dim, a_dim, 1, 1, 1, o_dim)
        ends = torch.tensor(self._widths).cumsum(0).tolist()
        self.columns = Columns(*(slice(end - width, end) for width, end in zip(self._widths, ends)))
        require_memory(f"capacity {capacity}", 4 * capacity * ends[-1], device)
        self._written = 0  # slots, from the run's first on
        self._ring = torch.empty(self.slots, num_envs, ends[-1], device=device, dtype=torch.float32)
        self.rows = self._ring.view(-1, ends[-1])
        self._clear(0)

    def _clear(self, head: int) -> None:
        """Empty the ring; the next slot written is `head`."""
        self._head = head
        self._stored = 0  # slots
        self._drawn: Tensor | None = None
        self.sampler.allocate(len(self.rows), self.rows.device, self.generator)
        self.reader.allocate(self)

    def __len__(self) -> int:
        """Return the number of rows stored, those that are no transition included."""
        return self._stored * self.num_envs

    # Writing

    def add(
        self,
        state: np.ndarray | Tensor,
        action: np.ndarray | Tensor,
        reward: np.ndarray | Tensor,
        next_state: np.ndarray | Tensor,
        terminated: np.ndarray | Tensor,
        truncated: np.ndarray | Tensor,
        valid: np.ndarray | Tensor | None = None,
    ) -> None:
        """Store one time step of every environment, of tensors, arrays or lists.

        Args:
            state, next_state: (B, o_dim) before and after the step, before any reset.
            action: (B, a_dim).
            reward: (B,).
            terminated, truncated: (B,) bool, ends of episodes as in `Step`.
            valid: (B,) bool, False where the row is no transition: it is never drawn, and no n-step
                return and no hindsight goal crosses it. At least one stored row must be a
                transition. None: all are.
        """
        parts = (state, action, reward, next_state, terminated, truncated)
        steps = (torch.as_tensor(x).unsqueeze(0) for x in parts)
        self.fill(*steps, valid=None if valid is None else torch.as_tensor(valid).unsqueeze(0))

    def fill(
        self,
        state: np.ndarray | Tensor,
        action: np.ndarray | Tensor,
        reward: np.ndarray | Tensor,
        next_state: np.ndarray | Tensor,
        terminated: np.ndarray | Tensor,
        truncated: np.ndarray | Tensor,
        valid: np.ndarray | Tensor | None = None,
    ) -> None:
        """Store T time steps; the arguments are those of `add` with a leading time dimension.

        Raises:
            ConfigError: an argument has another shape.
        """
        parts = (state, action, reward, next_state, terminated, truncated)
        state, action, reward, next_state, terminated, truncated = (
            torch.as_tensor(x, device=self.rows.device).detach() for x in parts
        )
        if valid is not None:
            valid = torch.as_tensor(valid, dtype=torch.bool, device=self.rows.device)
        self._check_shapes(
            state=state,
            action=action,
            reward=reward,
            next_state=next_state,
            terminated=terminated,
            truncated=truncated,
            **({} if valid is None else {"valid": valid}),
        )
        cut = truncated
        if valid is not None:
            cut = torch.where(valid, truncated.to(state.dtype), _NO_TRANSITION)
            # a row before one that is no transition does not continue
            cut[:-1].clamp_(min=(~valid[1:]).to(state.dtype))
            self._get_newest_cut().clamp_(min=(~valid[0]).to(state.dtype))
        reward, terminated, cut = (x.unsqueeze(2) for x in (reward, terminated, cut))
        self._write((state, action, reward, terminated, cut, next_state), valid)

    def _check_shapes(self, **parts: Tensor) -> None:
        """Refuse parts that do not fit a row, and would be written into the next one."""
        steps = len(parts["state"])
        o_dim, a_dim, *_ = self._widths
        widths = {"state": (o_dim,), "action": (a_dim,), "next_state": (o_dim,)}
        for name, part in parts.items():
            wanted = (self.num_envs, *widths.get(name, ()))
            if part.shape != (steps, *wanted):
                if len(part) != steps:
                    raise ConfigError(f"{name} must have {steps} time steps, got {len(part)}")
                raise ConfigError(f"{name} must have shape {wanted}, got {tuple(part.shape[1:])}")

    def _get_newest_cut(self) -> Tensor:
        """Return a view (B,) of the newest slot's column `cut`."""
        return self._ring[self._head - 1, :, self.columns.cut.start]

    def end_episodes(self) -> None:
        """End all episodes: the next rows begin new ones."""
        self._get_newest_cut().clamp_(min=1.0)

    def _write(self, parts: tuple[Tensor, ...], valid: Tensor | None) -> None:
        """Write the columns of T steps, (T, B, width) each, at the head."""
        if len(parts[0]) >= self.slots:  # nothing of the old remains
            parts = tuple(part[-self.slots :] for part in parts)
            valid = None if valid is None else valid[-self.slots :]
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
        """Write the columns of steps that fit before the end of the ring."""
        slot = self._head
        count = len(parts[0])
        torch.cat(parts, 2, out=self._ring[slot : slot + count])
        self._head = (slot + count) % self.slots
        self._stored = min(self._stored + count, self.slots)
        self._written += count
        self._drawn = None
        valid = None if valid is None else valid.flatten()
        self.sampler.add_rows(slot * self.num_envs, count * self.num_envs, valid)
        self.reader.add_rows(self, slot, count)

    # Drawing

    def sample(self, batch_size: int) -> Batch:
        """Draw transitions with replacement.

        Raises:
            ValueError: the buffer is empty.
        """
        if not self._stored:
            raise ValueError("cannot sample from an empty replay buffer")
        self._drawn, weight = self.sampler.draw(batch_size)
        batch = self.reader.read(self, self._drawn)
        return batch if weight is None else batch._replace(weight=weight)

    def update_priorities(self, error: Tensor) -> None:
        """Give the sampler the critics' errors (B,) of the batch sampled last.

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
        """Give the sampler the progress of the run, in [0, 1]."""
        self.sampler.anneal(progress)

    # For readers

    def read(self, index: Tensor, columns: slice = slice(None)) -> Tensor:
        """Copy columns of the rows at index (B,): (B, width)."""
        # on a CPU several times faster than rows[index, columns], which copies element by element
        return self.rows[:, columns].index_select(0, index)

    def batch(self, rows: Tensor) -> Batch:
        """Split rows (B, row width) into a batch of transitions."""
        state, action, reward, terminated, _, next_state = rows.split(self._widths, 1)
        return Batch(state, action, reward, next_state, terminated)

    def compute_age(self, index: Tensor) -> Tensor:
        """Compute the number of time steps that are newer than each row's."""
        newest = self._head * self.num_envs - 1  # the newest slot's last row
        return (newest - index) % len(self.rows) // self.num_envs

    def shift(self, index: Tensor, steps: Tensor) -> Tensor:
        """Return the rows of the same environments `steps` time steps later (negative: earlier)."""
        return (index + steps * self.num_envs) % len(self.rows)

    def find_ends(self, first: int, last: int) -> Tensor:
        """Find the rows of slots first <= slot < last that end their episode, (last - first, B)."""
        ends = slice(self.columns.terminated.start, self.columns.cut.stop)
        return (self._ring[first:last, :, ends] > 0).any(2)

    # Saving

    def state_dict(self) -> dict:
        """Return the stored rows (slots, B, row width), oldest first, head, sampler and reader.

        `first` is the number of the oldest slot since the start of the run.
        """
        index = self.index_by_time()
        return {
            "rows": self.rows.index_select(0, index).view(self._stored, *self._ring.shape[1:]),
            "first": self._written - self._stored,
            "head": self._head,
            "slots": self.slots,
            "sampler": self.sampler.state_dict(index),
            "reader": self.reader.state_dict(self, index),
        }

    def index_by_time(self) -> Tensor:
        """Return the indices of all stored rows in the order of time."""
        oldest = (self._head - self._stored) * self.num_envs
        return (torch.arange(len(self), device=self.rows.device) + oldest) % len(self.rows)

    def load_state_dict(self, state: dict) -> None:
        """Restore the `state_dict` of a buffer of the same environments, from any device.

        With the same capacity the buffer then continues exactly as the original; with another it
        holds the same transitions, or the newest of them, in order.

        Raises:
            CheckpointError: the rows are of another number of environments or of other widths, or
                there are none.
        """
        if missing := {"rows", "head", "slots", "sampler"} - state.keys():
            raise CheckpointError(f"the saved replay lacks {', '.join(sorted(missing))}")
        rows = state["rows"][-self.slots :].to(self.rows.device)
        if rows.shape[1:] != self._ring.shape[1:]:
            saved = tuple(rows.shape[1:])
            own = tuple(self._ring.shape[1:])
            raise CheckpointError(f"the saved replay has {saved} (envs, columns), not {own}")
        self._clear((state["head"] - len(rows)) % self.slots if state["slots"] == self.slots else 0)
        valid = rows[:, :, self.columns.cut.start] != _NO_TRANSITION
        if len(rows):
            self._write(rows.split(self._widths, 2), None if valid.all() else valid)
        self._written = state.get("first", 0) + len(state["rows"])
        index = self.index_by_time()
        self.sampler.load_state_dict(state["sampler"], index)
        self.reader.load_state_dict(self, state.get("reader", {}), index)  # older runs have none
