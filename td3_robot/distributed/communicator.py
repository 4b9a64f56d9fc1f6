"""The processes of one training, and what they tell each other: means, moments, wishes, states."""

import contextlib
import datetime
import io
from collections.abc import Iterator, Sequence
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from td3_robot.errors import RanksError

PATIENCE = 300.0  # [s] that the others are waited for


class Ranks:
    """One of N processes, each of which makes every call below, in the same order.

    What arrives is the same to the bit in all of them: each sum is made in one place and handed
        round.

    Args:
        store: where they find each other.
        rank, count: which of how many this is, from 0.
        patience: seconds that the slowest may keep the others waiting, in every call.
        device: of the networks; on CUDA gradients go by NCCL, all else by Gloo.

    Raises:
        RanksError: from every call, too: a process has died or does not answer.
    """

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        count: int,
        patience: float = PATIENCE,
        device: str = "cpu",
    ):
        self.rank, self.count, self.store = rank, count, store
        self._patience = datetime.timedelta(seconds=patience)
        with self._talking():
            plain = dist.ProcessGroupGloo(
                dist.PrefixStore("gloo", store), rank, count, self._patience
            )
            self._groups: dict[str, Any] = {"cpu": plain}
            if torch.device(device).type == "cuda":
                options = dist.ProcessGroupNCCL.Options()
                options._timeout = self._patience
                self._groups["cuda"] = dist.ProcessGroupNCCL(
                    dist.PrefixStore("nccl", store), rank, count, options
                )

    def __deepcopy__(self, memo: dict) -> Self:
        """A copy of an agent speaks to the same processes."""
        return self

    @contextlib.contextmanager
    def _talking(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            reason = str(error).split("] ", 1)[-1].split(". ")[0]
            raise RanksError(
                f"process {self.rank} of {self.count} has lost another one ({reason})"
            ) from error

    def _summed(self, tensor: Tensor, by: Any = dist.ReduceOp.SUM) -> Tensor:
        options = dist.AllreduceOptions()
        options.reduceOp, options.timeout = by, self._patience
        with self._talking():
            self._groups[tensor.device.type].allreduce([tensor], options).wait()
        return tensor

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one dtype by their means over all processes, in one message."""
        if tensors:
            flat = self._summed(torch.cat([tensor.flatten() for tensor in tensors])) / self.count
            parts = flat.split([tensor.numel() for tensor in tensors])
            torch._foreach_copy_(
                list(tensors), [part.view_as(tensor) for part, tensor in zip(parts, tensors)]
            )

    def any(self, *wishes: bool) -> list[bool]:
        """Which of some wishes any process has."""
        return (
            self._summed(torch.tensor(wishes, dtype=torch.uint8), dist.ReduceOp.MAX).bool().tolist()
        )

    def rows(self, row: Tensor) -> Tensor:
        """(N, n) the rows (n,) of all processes, on the device of this one's."""
        mine = row.cpu()
        gathered = [torch.empty_like(mine) for _ in range(self.count)]
        with self._talking():
            self._groups["cpu"].allgather([gathered], [mine]).wait()
        return torch.stack(gathered).to(row.device)

    def gather(self, value: object) -> list[Any]:
        """The values of all processes, tensors and plain ones, in each: for what is small."""
        mine = _packed(value)
        sizes = self.rows(torch.tensor([len(mine)]))[:, 0].tolist()
        padded = torch.cat((mine, mine.new_zeros(max(sizes) - len(mine))))
        return [_unpacked(row[:size]) for row, size in zip(self.rows(padded), sizes)]

    def to_first(self, value: object) -> list[Any] | None:
        """The values of all processes, tensors and plain ones, in process 0; None elsewhere."""
        mine = _packed(value)
        sizes = self.rows(torch.tensor([len(mine)]))[:, 0].tolist()
        if self.rank:
            self._pass("send", mine, 0)
            return None
        parts = [
            self._pass("recv", torch.empty(size, dtype=torch.uint8), i)
            for i, size in enumerate(sizes)
            if i
        ]
        return [value, *map(_unpacked, parts)]

    def from_first(self, values: Sequence[object] | None) -> Any:
        """The value that process 0 has for this one, of `values` there.

        Raises:
            RanksError: elsewhere, as process 0 has none: it says why itself.
        """
        packed = [torch.empty(0)] * self.count if values is None else list(map(_packed, values))
        sizes = self.rows(torch.tensor([len(part) for part in packed]))[0].tolist()
        if self.rank:
            if not any(sizes):
                raise RanksError("process 0 has failed")
            return _unpacked(
                self._pass("recv", torch.empty(sizes[self.rank], dtype=torch.uint8), 0)
            )
        for other in range(1, self.count) if values else ():
            self._pass("send", packed[other], other)
        return values and values[0]

    def _pass(self, way: str, tensor: Tensor, other: int) -> Tensor:
        with self._talking():
            getattr(self._groups["cpu"], way)([tensor], other, 0).wait()
        return tensor


def _packed(value: object) -> Tensor:
    file = io.BytesIO()
    torch.save(value, file)
    return torch.frombuffer(file.getbuffer(), dtype=torch.uint8).clone()


def _unpacked(tensor: Tensor) -> Any:
    return torch.load(io.BytesIO(tensor.numpy().tobytes()), map_location="cpu", weights_only=True)
