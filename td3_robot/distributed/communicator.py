"""Several processes that train one policy: what they share, by torch's collectives."""

import contextlib
import datetime
import io
from collections.abc import Iterator, Sequence
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from td3_robot.errors import FirstProcessError, RanksError
from td3_robot.utils.communicator import Communicator

PATIENCE = 300.0  # [s] to wait for the others


class TorchCommunicator(Communicator):
    """One of N processes that call each other by Gloo, on CUDA for gradients by NCCL.

    What arrives is the same to the bit in all of them: each sum is made in one place and handed on.

    Args:
        store: where they find each other.
        rank, size: number of this process, from 0, and how many they are.
        patience: seconds that the slowest may keep the others waiting, in every call.
        device: of the networks.

    Raises:
        RanksError: from every call, too: a process has died or does not answer.
    """

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        patience: float = PATIENCE,
        device: str = "cpu",
    ):
        self.rank = rank
        self.size = size
        self.store = store
        self._patience = datetime.timedelta(seconds=patience)
        with self._translate_errors():
            gloo = dist.PrefixStore("gloo", store)
            self._groups: dict[str, Any] = {
                "cpu": dist.ProcessGroupGloo(gloo, rank, size, self._patience)
            }
            if torch.device(device).type == "cuda":
                options = dist.ProcessGroupNCCL.Options()
                options._timeout = self._patience
                nccl = dist.PrefixStore("nccl", store)
                self._groups["cuda"] = dist.ProcessGroupNCCL(nccl, rank, size, options)

    def __deepcopy__(self, memo: dict) -> Self:
        """Return itself: a copy of an agent speaks to the same processes."""
        return self

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            reason = str(error).split("] ", 1)[-1].split(". ")[0]
            raise RanksError(
                f"process {self.rank} of {self.size} has lost another one ({reason})"
            ) from error

    def _all_reduce(self, tensor: Tensor, operation: Any = dist.ReduceOp.SUM) -> Tensor:
        options = dist.AllreduceOptions()
        options.reduceOp = operation
        options.timeout = self._patience
        with self._translate_errors():
            self._groups[tensor.device.type].allreduce([tensor], options).wait()
        return tensor

    def all_reduce_mean(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one dtype by their means over all processes, in one message."""
        if tensors:
            flat = torch.cat([tensor.flatten() for tensor in tensors])
            parts = (self._all_reduce(flat) / self.size).split([x.numel() for x in tensors])
            means = [part.view_as(tensor) for part, tensor in zip(parts, tensors)]
            torch._foreach_copy_(list(tensors), means)

    def all_reduce_any(self, *flags: bool) -> list[bool]:
        """Return for each flag whether it is set in any process."""
        flag = torch.tensor(flags, dtype=torch.uint8)
        return self._all_reduce(flag, dist.ReduceOp.MAX).bool().tolist()

    def all_gather(self, row: Tensor) -> Tensor:
        """Return the rows (n,) of all processes, (size, n), by way of the CPU."""
        own = row.cpu()
        gathered = [torch.empty_like(own) for _ in range(self.size)]
        with self._translate_errors():
            self._groups["cpu"].allgather([gathered], [own]).wait()
        return torch.stack(gathered).to(row.device)

    def all_gather_object(self, value: object) -> list[Any]:
        """Return the values of all processes, in one message padded to the longest."""
        own = _pack(value)
        sizes = self._gather_sizes([own])[:, 0].tolist()
        padded = torch.cat((own, own.new_zeros(max(sizes) - len(own))))
        return [_unpack(row[:size]) for row, size in zip(self.all_gather(padded), sizes)]

    def gather(self, value: object) -> list[Any] | None:
        """Return the values of all processes in process 0, each sent by itself."""
        own = _pack(value)
        sizes = self._gather_sizes([own])[:, 0].tolist()
        if self.rank:
            self._send(own, 0)
            return None
        return [value, *(self._receive(size, rank) for rank, size in enumerate(sizes) if rank)]

    def scatter(self, values: Sequence[Any] | None) -> Any:
        """Return the entry for this process, sent by itself."""
        packed = [torch.empty(0)] * self.size if values is None else list(map(_pack, values))
        sizes = self._gather_sizes(packed)[0].tolist()
        if self.rank:
            if not any(sizes):
                raise FirstProcessError("process 0 has failed")
            return self._receive(sizes[self.rank], 0)
        for other in range(1, self.size) if values else ():
            self._send(packed[other], other)
        return values and values[0]

    def _gather_sizes(self, packed: list[Tensor]) -> Tensor:
        return self.all_gather(torch.tensor([len(part) for part in packed]))

    def _send(self, tensor: Tensor, rank: int) -> None:
        with self._translate_errors():
            self._groups["cpu"].send([tensor], rank, 0).wait()

    def _receive(self, size: int, rank: int) -> Any:
        tensor = torch.empty(size, dtype=torch.uint8)
        with self._translate_errors():
            self._groups["cpu"].recv([tensor], rank, 0).wait()
        return _unpack(tensor)


def _pack(value: object) -> Tensor:
    file = io.BytesIO()
    torch.save(value, file)
    return torch.frombuffer(file.getbuffer(), dtype=torch.uint8).clone()


def _unpack(tensor: Tensor) -> Any:
    return torch.load(io.BytesIO(tensor.numpy().tobytes()), map_location="cpu", weights_only=True)
