"""Names of torch devices, and CPU threads of torch."""

import contextlib
import re
from collections.abc import Iterator

from td3_robot.errors import ConfigError, unknown


def check_device(name: str) -> None:
    """Check the spelling of a device, but not whether it is available."""
    if not re.fullmatch(r"cpu|auto|mps|cuda(:[0-9]+)?", name):
        raise unknown("device", name, ("cpu", "cuda", "cuda:N", "mps", "auto"))


def resolve_device(name: str) -> str:
    """Return the torch device on this machine for a --device.

    Raises:
        ConfigError: it is misspelled or not available; the message lists those that are.
    """
    check_device(name)
    if name == "cpu":
        return name
    import torch  # here: it takes over a second, which the common case need not wait for

    gpus = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    available = [f"cuda:{index}" for index in gpus]
    if gpus:
        available.insert(0, "cuda")
    if torch.backends.mps.is_available():
        available.append("mps")
    available.append("cpu")
    if name == "auto":
        return available[0]
    if name not in available:
        choices = ", ".join(available)
        raise ConfigError(
            f"device {name!r} is not available on this machine; valid choices: {choices}"
        )
    return name


@contextlib.contextmanager
def limit_threads(count: int) -> Iterator[None]:
    """Let torch use `count` CPU threads, and afterwards as many as before."""
    import torch  # here, as in `resolve_device`

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
