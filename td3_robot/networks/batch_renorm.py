"""Batch renormalisation, which replaces target networks in CrossQ's actor and critics.

Bhatt et al., "CrossQ: Batch Normalization in Deep Reinforcement Learning for Greater Sample
Efficiency and Simplicity", ICLR 2024, https://arxiv.org/abs/1902.05605.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WARM_UP = 100_000  # batches of plain batch normalisation first, in CrossQ's code as here
MOMENTUM = 0.01  # share of a batch in the running statistics: CrossQ's 0.99 is what stays
EPSILON = 1e-3
R_MAX = 3.0
D_MAX = 5.0


class Moments(NamedTuple):
    """The moments in y = weight * ((x - mean) / deviation * r + d) + bias, each (width,)."""

    mean: Tensor
    deviation: Tensor
    r: Tensor
    d: Tensor

    def standardize(self, x: Tensor) -> tuple[Tensor, "Moments"]:
        """Return (x - mean) / deviation, and the moments that remain to be applied to it."""
        zero = torch.zeros_like(self.mean)
        one = torch.ones_like(self.mean)
        return (x - self.mean) / self.deviation, Moments(zero, one, self.r, self.d)

    def fold(self, norm: "BatchRenorm") -> tuple[Tensor, Tensor]:
        """Return a and c, (width,) each, of y = a x + c."""
        a = norm.weight * self.r / self.deviation
        return a, norm.weight * self.d + norm.bias - a * self.mean


class BatchRenorm(nn.Module):
    """Batch renormalisation (Ioffe, NeurIPS 2017, https://arxiv.org/abs/1702.03275, Algorithm 1).

    While it trains, with m and s the mean and deviation of a batch and M and S the running ones
    before it,

        y = weight * ((x - m) / s * r + d) + bias
        r = s / S within [1/3, 3]
        d = (m - M) / S within [-5, 5],

    with gradients through m and s but not through r and d. Within those bounds this is
    (x - M) / S, as in evaluation, so that training and evaluation see the same network. The first
    batches, before M and S mean anything, have r = 1 and d = 0: batch normalisation. A deviation is
    sqrt(variance + epsilon), where the variance is divided by the number of rows.

    Args:
        width: of the rows.
        warm_up: batches before r and d come in.

    Attributes:
        running_mean, running_var: (width,) averages, in which each batch has weight `MOMENTUM`.
        batches: () so far.
    """

    running_mean: Tensor
    running_var: Tensor
    batches: Tensor

    def __init__(self, width: int, warm_up: int = WARM_UP):
        super().__init__()
        self.warm_up = warm_up
        self.weight = nn.Parameter(torch.ones(width, dtype=torch.float32))
        self.bias = nn.Parameter(torch.zeros(width, dtype=torch.float32))
        self.register_buffer("running_mean", torch.zeros(width, dtype=torch.float32))
        self.register_buffer("running_var", torch.ones(width, dtype=torch.float32))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, width); a batch in training updates the running statistics."""
        if not self.training:
            return F.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=EPSILON
            )
        moments = self.count(x)
        weight = self.weight * moments.r
        bias = self.weight * moments.d + self.bias
        return F.batch_norm(x, None, None, weight, bias, training=True, eps=EPSILON)

    @torch.no_grad()
    def count(self, x: Tensor) -> Moments:
        """Return the moments of a training batch x (B, width) and update the running statistics.

        Raises:
            ValueError: x has one row, which has no deviation.
        """
        if len(x) < 2:
            raise ValueError(f"batch renormalisation takes two rows and more, got {tuple(x.shape)}")
        # without a tensor of x's size; torch.var_mean takes ten times as long on CPUs
        mean, var = torch.batch_norm_update_stats(x, None, None, 0.0)
        deviation = (var + EPSILON).sqrt()
        warm = self.batches < self.warm_up
        running = (self.running_var + EPSILON).sqrt()
        r = (deviation / running).clamp(1.0 / R_MAX, R_MAX).masked_fill(warm, 1.0)
        d = ((mean - self.running_mean) / running).clamp(-D_MAX, D_MAX).masked_fill(warm, 0.0)
        self.running_mean.lerp_(mean, MOMENTUM)
        self.running_var.lerp_(var, MOMENTUM)
        self.batches += 1
        return Moments(mean, deviation, r, d)

    def get_running_moments(self) -> Moments:
        """Return the moments that are applied in evaluation."""
        one = torch.ones_like(self.running_mean)
        zero = torch.zeros_like(self.running_mean)
        return Moments(self.running_mean, (self.running_var + EPSILON).sqrt(), one, zero)
