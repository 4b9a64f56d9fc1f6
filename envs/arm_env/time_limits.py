"""Time limits of episodes, tracked on the host to avoid waiting for the device."""

import torch
from torch import Tensor


def sample_first_lengths(
    count: int, horizon: int, device: torch.device, seed: int | None
) -> Tensor:
    """Sample lengths (count,) of first episodes [steps]; without a seed all are the horizon."""
    lengths = torch.full((count,), horizon, device=device)
    if seed is None:
        return lengths
    generator = torch.Generator(device).manual_seed(seed + 1)  # another stream than that of starts
    return lengths.random_(1, horizon + 1, generator=generator)


class TimeLimits:
    """Time limits of B arms whose episodes never end earlier.

    All further episodes have the same length; so arms that end together once always do.

    Args:
        left: (B,) control steps until each arm's episode ends; less than 1 counts as 1.
        horizon: control steps of further episodes, and at most of the present ones.
    """

    def __init__(self, left: Tensor, horizon: int):
        phase = left.clamp_min(1) % horizon
        sizes = torch.bincount(phase, minlength=horizon).tolist()  # waits for the device, this once
        self._rows = phase.argsort(stable=True).split(sizes)
        self._now = 0

    def step(self) -> Tensor:
        """Return the rising indices of the arms whose episodes end with this control step."""
        self._now = (self._now + 1) % len(self._rows)
        return self._rows[self._now]
