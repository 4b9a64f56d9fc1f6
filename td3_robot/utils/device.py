"""Where tensors live, by name."""

import re

from td3_robot.errors import ConfigError, unknown


def check_device(name: str) -> None:
    """Hold a device to its spelling; whether it is there is `resolve_device`'s affair."""
    if not re.fullmatch(r"cpu|auto|mps|cuda(:[0-9]+)?", name):
        raise unknown("device", name, ("cpu", "cuda", "cuda:N", "mps", "auto"))


def resolve_device(name: str) -> str:
    """The torch device that a --device means on this machine.

    Raises:
        ConfigError: it is misspelled or not available; the message lists those that are.
    """
    check_device(name)
    if name == "cpu":
        return name
    import torch  # here: it takes over a second, which the common case not_none not wait for

    there = (
        [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        if torch.cuda.is_available()
        else []
    )
    there = (
        (["cuda"] if there else [])
        + there
        + (["mps"] if torch.backends.mps.is_available() else [])
        + ["cpu"]
    )
    if name == "auto":
        return there[0]
    if name not in there:
        raise ConfigError(
            f"device {name!r} is not available on this machine; valid choices: {', '.join(there)}"
        )
    return name
