"""Weights of a constant size, where layers are normalised by batch and so do not see it."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from td3_robot.config.td3 import BATCHED
from td3_robot.networks.mlp import MLP

_TINY = 1e-12  # of a unit whose weights are all zero, which stay so


@torch.no_grad()
def normalize_weights(nets: Sequence[nn.Module]) -> None:
    """Scale weights and bias of each hidden unit together to a norm of 1, in nets and parts that
    are an MLP with norms.

    Only `BATCHED` norms count: a unit, a ReLU and a normalisation by batch, the last two in either
    order, give the same for any positive multiple of the unit, but for the epsilon of the norm.
    Adam's steps, though, are of one length, so that weights that grow learn ever less: Palenicek et
    al., "Scaling Off-Policy Reinforcement Learning with Batch and Weight Normalization", 2025,
    https://arxiv.org/abs/2502.07523. Running statistics are scaled along, so that what evaluates is
    the same too. The last layer, whose size means something, and layers that learn nothing stay.
    """
    parts = (part for net in nets for part in net.modules())
    for mlp in (part for part in parts if isinstance(part, MLP) and part.norm in BATCHED):
        hidden, norms = mlp.layers[:-1], cast(Any, mlp.norms)
        for layer, norm in zip(
            hidden, norms[len(norms) - len(hidden) :]
        ):  # renorm has one of the input first
            if layer.weight.requires_grad:
                size = _size(layer)
                for tensor in (layer.weight.t(), layer.bias, norm.running_mean):
                    if tensor is not None:
                        tensor.div_(size)
                norm.running_var.div_(size.square())


def _size(layer: nn.Linear) -> Tensor:
    """(out,) norm of each unit's weights and bias."""
    square = layer.weight.square().sum(1)
    return (
        (square if layer.bias is None else square + layer.bias.square()).sqrt_().clamp_min_(_TINY)
    )
