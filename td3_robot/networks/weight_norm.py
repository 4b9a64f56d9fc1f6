"""Weight normalisation of layers that batch normalisation makes independent of their scale."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from td3_robot.config.td3 import BATCHED
from td3_robot.networks.mlp import MLP

_TINY = 1e-12  # of a unit whose weights are all zero, which stay so


@torch.no_grad()
def normalize_weights(nets: Sequence[nn.Module]) -> None:
    """Scale weights and bias of each hidden unit of batch-normalised MLPs to a joint norm of 1.

    Only `BATCHED` norms count: a unit, a ReLU and a batch normalisation, the last two in either
    order, compute the same for any positive multiple of the unit, but for the epsilon of the norm.
    Adam's steps have one length, so that growing weights learn ever less: Palenicek et al.,
    "Scaling Off-Policy Reinforcement Learning with Batch and Weight Normalization", 2025,
    https://arxiv.org/abs/2502.07523. Running statistics are scaled along, so that evaluation stays
    the same. The last layer, whose scale matters, and layers without gradients are left alone.
    """
    parts = (part for net in nets for part in net.modules())
    for mlp in (part for part in parts if isinstance(part, MLP) and part.norm in BATCHED):
        hidden = mlp.layers[:-1]
        norms = cast(Any, mlp.norms)
        norms = norms[len(norms) - len(hidden) :]  # renorm has one of the input first
        for layer, norm in zip(hidden, norms):
            if layer.weight.requires_grad:
                size = _compute_unit_norm(layer)
                for tensor in (layer.weight.t(), layer.bias, norm.running_mean):
                    if tensor is not None:
                        tensor.div_(size)
                norm.running_var.div_(size.square())


def _compute_unit_norm(layer: nn.Linear) -> Tensor:
    """Compute the norm (out,) of each unit's weights and bias."""
    square = layer.weight.square().sum(1)
    if layer.bias is not None:
        square = square + layer.bias.square()
    return square.sqrt_().clamp_min_(_TINY)
