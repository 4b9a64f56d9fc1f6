"""Two processes that train one run together, as torchrun starts them."""

import functools
import os
import socket
import time
from pathlib import Path
from types import ModuleType

from attempts import Fork

os.environ["TORCH_CPP_LOG_LEVEL"] = (
    "ERROR"  # as train.py has it; it is read when PyTorch is imported
)


class Pair:
    """A `Fork` for each of two processes, with the calls of one for both."""

    count = 2

    def __init__(self, folder: Path, module: ModuleType, words: list[str]):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.forks = [
            Fork(folder, module, words, functools.partial(_be, rank, self.count, port))
            for rank in range(self.count)
        ]

    def ends_within(self, seconds: float) -> bool:
        """Wait so long for the end of both."""
        until = time.monotonic() + seconds
        return all([fork.ends_within(until - time.monotonic()) for fork in self.forks])

    def wait(self, seconds: float = 3600.0) -> list[int]:
        """Their exit codes once both have ended; see `Fork.wait`."""
        until = time.monotonic() + seconds
        return [fork.wait(until - time.monotonic()) for fork in self.forks]

    @property
    def met(self) -> bool:
        """Whether they have found each other; torchrun ends a process that waits for one that is
        lost.
        """
        return "learns" in self.forks[0].out

    @property
    def err(self) -> str:
        """What both said on stderr."""
        return "".join(fork.err for fork in self.forks)


def _be(rank: int, count: int, port: int) -> None:
    """What torchrun tells a process that it starts."""
    told = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": count,
        "GROUP_WORLD_SIZE": 1,
    }
    told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "torture"}
    os.environ.update({name: str(value) for name, value in told.items()})
