"""Whose episodes end with which control step, known on the host beforehand: to ask at every step, a
host waits for the device.
"""

import torch
from torch import Tensor


def sample_first_lengths(
    count: int, horizon: int, device: torch.device, seed: int | None
) -> Tensor:
    """(count,) control steps that first episodes may last: with a seed cut short at random, else
    the horizon.
    """
    lengths = torch.full((count,), horizon, device=device)
    if seed is None:
        return lengths
    generator = torch.Generator(device).manual_seed(seed + 1)  # another stream than that of starts
    return lengths.random_(1, horizon + 1, generator=generator)


class TimeLimits:
    """Of B arms whose episodes end when their time is up and never earlier.

    Each next episode is as long as every other, so arms that end together once do so for good.

    Args:
        left: (B,) control steps until each arm's episode ends; what is less than 1 counts as that.
        horizon: control steps of the next ones, and at most of these.
    """

    def __init__(self, left: Tensor, horizon: int):
        phase = left.clamp_min(1) % horizon
        sizes = torch.bincount(phase, minlength=horizon).tolist()  # waits for the device, this once
        self._rows = phase.argsort(stable=True).split(sizes)
        self._now = 0

    def step(self) -> Tensor:
        """Indices, rising, of the arms whose episodes end with the control step that was just
        made.
        """
        self._now = (self._now + 1) % len(self._rows)
        return self._rows[self._now]
