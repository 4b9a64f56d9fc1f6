"""Batch renormalisation, which the critics of CrossQ have in place of target networks, and its
actor beside them.

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
R_MAX, D_MAX = 3.0, 5.0


class Moments(NamedTuple):
    """What rows are normalised by: y = weight * ((x - mean) / deviation * r + d) + bias; each is
    (width,).
    """

    mean: Tensor
    deviation: Tensor
    r: Tensor
    d: Tensor

    def standardized(self, x: Tensor) -> tuple[Tensor, "Moments"]:
        """(x - mean) / deviation, and what is left to normalise that by."""
        zero, one = torch.zeros_like(self.mean), torch.ones_like(self.mean)
        return (x - self.mean) / self.deviation, Moments(zero, one, self.r, self.d)

    def affine(self, norm: "BatchRenorm") -> tuple[Tensor, Tensor]:
        """a and c, (width,) each, of y = a x + c."""
        a = norm.weight * self.r / self.deviation
        return a, norm.weight * self.d + norm.bias - a * self.mean


class BatchRenorm(nn.Module):
    """Ioffe, "Batch Renormalization", NeurIPS 2017, https://arxiv.org/abs/1702.03275, Algorithm 1.

    While it trains, with m and s the mean and deviation of a batch and M and S the running ones
    before it,

        y = weight * ((x - m) / s * r + d) + bias,    r = s / S within [1/3, 3],    d = (m - M) / S
        within [-5, 5],

    gradients passing through m and s but not through r and d. Within those bounds that is (x - M) /
    S, what evaluation gives, so that both see the same network. The first batches have r = 1 and d
    = 0, until M and S mean something: batch normalisation. A deviation is the root of the variance,
    divided by the rows, plus epsilon.

    Args:
        width: of the rows.
        warm_up: batches before r and d come in.

    Attributes:
        running_mean, running_var: (width,) of which each batch is `MOMENTUM`.
        batches: () so far.
    """

    running_mean: Tensor
    running_var: Tensor
    batches: Tensor

    def __init__(self, width: int, warm_up: int = WARM_UP):
        super().__init__()
        self.warm_up = warm_up
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """(B, width) -> (B, width); while it trains the batch counts into the running
        statistics.
        """
        if not self.training:
            return F.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=EPSILON
            )
        moments = self.count(x)
        weight, bias = self.weight * moments.r, self.weight * moments.d + self.bias
        return F.batch_norm(x, None, None, weight, bias, training=True, eps=EPSILON)

    @torch.no_grad()
    def count(self, x: Tensor) -> Moments:
        """What the batch x (B, width) is normalised by while it trains; it counts into the running
        statistics.

        Raises:
            ValueError: it is of one row, which has no deviation.
        """
        if len(x) < 2:
            raise ValueError(f"batch renormalisation takes two rows and more, got {tuple(x.shape)}")
        mean = x.sum(0) / len(x)  # torch.var_mean takes ten times as long on CPUs
        var = (x - mean).square_().sum(0) / len(x)
        deviation = (var + EPSILON).sqrt()
        warm, running = self.batches < self.warm_up, (self.running_var + EPSILON).sqrt()
        r = (deviation / running).clamp(1.0 / R_MAX, R_MAX).masked_fill(warm, 1.0)
        d = ((mean - self.running_mean) / running).clamp(-D_MAX, D_MAX).masked_fill(warm, 0.0)
        self.running_mean.lerp_(mean, MOMENTUM)
        self.running_var.lerp_(var, MOMENTUM)
        self.batches += 1
        return Moments(mean, deviation, r, d)

    def running(self) -> Moments:
        """What rows are normalised by in evaluation."""
        one, zero = torch.ones_like(self.running_mean), torch.zeros_like(self.running_mean)
        return Moments(self.running_mean, (self.running_var + EPSILON).sqrt(), one, zero)
