"""Weights of a constant size, where layers are normalised and so do not see it."""

from collections.abc import Sequence

import torch
from torch import nn

from td3_robot.networks import MLP


@torch.no_grad()
def normalize_weights(nets: Sequence[nn.Module]) -> None:
    """Scale weights and bias of each hidden unit together to a norm of 1, in networks and parts that are a normed MLP.

    What follows such a unit, a ReLU and a normalisation in either order, gives the same for any positive multiple of
    it (but for the epsilon of the latter). But Adam's steps are of one length, so that weights that grow learn ever
    less: Palenicek et al., "Scaling Off-Policy Reinforcement Learning with Batch and Weight Normalization", 2025,
    https://arxiv.org/abs/2502.07523. The last layer, whose size means something, is left as it is.
    """
    mlps = [part for net in nets for part in net.modules() if isinstance(part, MLP) and part.norm != "none"]
    for layer in (layer for mlp in mlps for layer in mlp.layers[:-1]):
        norm = (layer.weight.square().sum(1) + layer.bias.square()).sqrt_()
        layer.weight.div_(norm[:, None])
        layer.bias.div_(norm)
