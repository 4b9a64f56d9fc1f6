"""A sum tree, which draws rows in proportion to weights in logarithmic time."""

import torch
from torch import Tensor

from td3_robot.errors import ConfigError


class SumTree:
    """A tree of N weights, sums of 32 weights, sums of 32 sums, and so on, up to 32 at the top.

    Changed sums are recomputed from their parts, so that rounding errors do not accumulate; in
    float64 those of a million weights are too small to change a draw.

    Args:
        size: number of weights; all 0 at first.
        device: device of the weights.
    """

    # the fastest of 16, 32, 64, 128 and 256 at a million weights and batches of 256 on a CPU
    FAN_OUT = 32

    def __init__(self, size: int, device: torch.device):
        if device.type == "mps":
            raise ConfigError(
                "replay: drawing by weights needs float64, which device mps lacks; use device cpu"
            )
        self._levels = []  # (groups, FAN_OUT) each, from the weights to the top
        while not self._levels or size > 1:
            size = -(-size // self.FAN_OUT)
            self._levels.append(torch.zeros(size, self.FAN_OUT, dtype=torch.float64, device=device))
        self.weights = self._levels[0].view(-1)  # (N rounded up to whole groups,)

    def set_range(self, first: int, weights: Tensor) -> None:
        """Set the weights from index `first` on to new values (K,)."""
        last = first + len(weights)
        self.weights[first:last] = weights
        for level, above in zip(self._levels, self._levels[1:]):
            first = first // self.FAN_OUT
            last = (last - 1) // self.FAN_OUT + 1
            above.view(-1)[first:last] = level[first:last].sum(1)

    def set(self, index: Tensor, weights: Tensor) -> None:
        """Set the weights at index (K,), (K,) float64; of several for one the largest counts."""
        self.weights.scatter_reduce_(0, index, weights, "amax", include_self=False)
        for level, above in zip(self._levels, self._levels[1:]):
            index = index // self.FAN_OUT
            above.view(-1)[index] = level.index_select(0, index).sum(1)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw indices (count,) with replacement by weight, never one of weight 0.

        At least one weight must be positive; checking this would wait for the device. From the top
        down one of the 32 is drawn in proportion to its sum. Every level has its own random number:
        the remainder of the one above has lost digits and could end beyond the last weight.
        """
        shape = (len(self._levels), count, 1)
        unit = torch.rand(
            shape, generator=generator, dtype=torch.float64, device=self.weights.device
        )
        index = torch.zeros(count, dtype=torch.long, device=self.weights.device)
        for level, u in zip(reversed(self._levels), unit):
            cumulative = level.index_select(0, index).cumsum(1)
            child = torch.searchsorted(cumulative, u * cumulative[:, -1:], right=True)
            index = index * self.FAN_OUT + child.squeeze(1)
        return index
