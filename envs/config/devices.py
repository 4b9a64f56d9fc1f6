"""Devices by name."""

import torch

from td3_robot.errors import ConfigError


def find_device(name: str | torch.device) -> torch.device:
    """Find a device of this machine.

    Raises:
        ConfigError: there is none of that name.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError, TypeError):  # torch raises any of them
        raise ConfigError(
            f"device {str(name)!r} is misspelled or not available on this machine; valid choices: "
            "cpu, cuda, cuda:N, mps"
        ) from None
    return device
