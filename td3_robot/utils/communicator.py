"""The processes that train one policy together; here the interface, and the case of one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class Communicator:
    """A communicator of size one: every call is the identity.

    In one of several processes (`td3_robot.distributed`) each process makes every call, in the same
    order.

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
    """

    rank = 0
    size = 1

    def name_stream(self, use: str) -> str:
        """Return the name of this process's own stream of random numbers for a use."""
        return f"{use} of process {self.rank}" if self.rank else use

    def all_reduce_mean(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one dtype by their means over all processes."""

    def all_reduce_any(self, *flags: bool) -> list[bool]:
        """Return for each flag whether it is set in any process."""
        return list(flags)

    def all_gather(self, row: Tensor) -> Tensor:
        """Return the rows (n,) of all processes, (size, n), on the device of this one's."""
        return row[None]

    def all_gather_object(self, value: object) -> list[Any]:
        """Return the values of all processes, tensors and plain ones; for small values."""
        return [value]

    def gather(self, value: object) -> list[Any] | None:
        """Return the values of all processes in process 0, None in the others."""
        return [value]

    def scatter(self, values: Sequence[Any] | None) -> Any:
        """Return the entry of `values`, which process 0 gives, for this process.

        Process 0 gives None where it fails; the others then raise a RanksError.
        """
        return values and values[0]


SINGLE_PROCESS = Communicator()
