"""Gradients of networks: written out for a plain `MLP` (manual_backward.py), else by autograd."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from td3_robot.networks.manual_backward import (
    ManualMLPPass,
    ManualRenormPass,
    frozen_mlp_forward,
    frozen_renorm_forward,
)
from td3_robot.networks.mlp import freeze, get_plain_weights, get_trainable, is_renormed, train_mode
from td3_robot.utils.communicator import SINGLE_PROCESS, Communicator


def forward(net: nn.Module, x: Tensor) -> "ManualMLPPass | AutogradPass":
    """Run a batch x (B, in_dim) through a network, ready for a backward pass."""
    weights = get_plain_weights(net)
    if weights is not None and all(weight.requires_grad for weight in weights):
        return ManualMLPPass(net, weights, x)
    if is_renormed(net) and all(weight.requires_grad for weight in net.parameters()):
        return ManualRenormPass(net, x)
    return AutogradPass(net, x)


def frozen_forward(net: nn.Module, x: Tensor) -> Tensor:
    """Compute `net(x)` of x (B, in_dim) with gradients for x, but none for the weights."""
    weights = get_plain_weights(net)
    if weights is not None:
        return frozen_mlp_forward(net, weights, x)
    if is_renormed(net):
        return frozen_renorm_forward(net, x)
    with freeze(net):
        return net(x)


def clip_gradients(
    nets: Sequence[nn.Module], limit: float | None, communicator: Communicator = SINGLE_PROCESS
) -> None:
    """Clip the gradient of each network to the norm `limit`; None clips nothing.

    The gradient is the mean over all processes. Over N processes with batches of B / N it is that
    of one batch of B, wherever the loss is a mean over the batch; only the weight of `bc_alpha` is
    that of each process's own part.
    """
    if communicator.size > 1:
        weights = get_trainable(*nets)
        communicator.all_reduce_mean([x.grad for x in weights if x.grad is not None])
    if limit is not None:
        for net in nets:
            torch.nn.utils.clip_grad_norm_(net.parameters(), limit)


class AutogradPass:
    """A pass through any network, with gradients by autograd.

    Attributes:
        output: (B, out_dim).
    """

    def __init__(self, net: nn.Module, x: Tensor):
        self._weights = get_trainable(net)
        with train_mode(net):
            self.output = net(x)

    def backward(self, grad_output: Tensor) -> None:
        """Set `grad` of every weight, given the loss's gradient grad_output (B, out_dim)."""
        self._set_gradients(
            torch.autograd.grad(self.output, self._weights, grad_output, materialize_grads=True)
        )

    def backward_from(self, loss: Tensor) -> None:
        """Set `grad` of every weight, given the loss, a 0-d tensor made of the output."""
        self._set_gradients(torch.autograd.grad(loss, self._weights, materialize_grads=True))

    def _set_gradients(self, gradients: Sequence[Tensor]) -> None:
        for weight, gradient in zip(self._weights, gradients):
            weight.grad = gradient


class JointPass:
    """A pass of (s, a) and (s', a') in one batch through a batch-normalised critic, as in CrossQ.

    Attributes:
        output: (B, out_dim) of the first.
        next_output: (B, out_dim) of the second, without gradient.
    """

    def __init__(self, net: nn.Module, x: Tensor, next_x: Tensor):
        self._pass = forward(net, torch.cat((x, next_x)))
        self.output, self.next_output = self._pass.output.detach().chunk(2)

    def backward(self, grad_output: Tensor) -> None:
        """Set `grad` of every weight, given the gradient (B, out_dim) of the first output alone."""
        self._pass.backward(torch.cat((grad_output, torch.zeros_like(grad_output))))
