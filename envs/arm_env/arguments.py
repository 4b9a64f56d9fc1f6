"""Arguments of `ArmEnv` that a user may give as arrays."""

from typing import Any

import torch
from torch import Tensor

from td3_robot.errors import ConfigError


def read_rows(name: str, rows: Any, count: int | None, width: int, device: torch.device) -> Tensor:
    """Read an array or a tensor (count, width) as a tensor on a device; a count of None is any.

    Raises:
        ConfigError: another shape.
    """
    rows = torch.as_tensor(rows, device=device)
    if rows.ndim != 2 or rows.shape[1] != width or count not in (None, len(rows)):
        wanted = f"({'B' if count is None else count}, {width})"
        raise ConfigError(f"{name} must have shape {wanted}, got {tuple(rows.shape)}")
    return rows
