"""The gradients of a network: by hand (by_hand.py) for what `networks.MLP` mostly is, by autograd
for every other.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from td3_robot.networks.manual_backward import (
    ManualMLPPass,
    ManualRenormPass,
    frozen_renorm_forward,
    still,
)
from td3_robot.networks.mlp import frozen, is_renormed, learning, plain_weights, trainable


def forward(net: nn.Module, x: Tensor) -> "ManualMLPPass | ByAutograd":
    """The pass of a batch x (B, in_dim) through a network that is to learn from it."""
    weights = plain_weights(net)
    if weights is not None and all(weight.requires_grad for weight in weights):
        return ManualMLPPass(net, weights, x)
    if is_renormed(net) and all(weight.requires_grad for weight in net.parameters()):
        return ManualRenormPass(net, x)
    return ByAutograd(net, x)


def frozen_forward(net: nn.Module, x: Tensor) -> Tensor:
    """What `net` makes of x (B, in_dim); gradients pass through it to x, none of its own weights is
    computed.
    """
    weights = plain_weights(net)
    if weights is not None:
        return still(net, weights, x)
    if is_renormed(net):
        return frozen_renorm_forward(net, x)
    with frozen(net):
        return net(x)


def clip_gradients(nets: Sequence[nn.Module], limit: float | None) -> None:
    """Shorten the gradient of each network alone to at most the norm `limit`, where there is
    one.
    """
    if limit is not None:
        for net in nets:
            torch.nn.utils.clip_grad_norm_(net.parameters(), limit)


class ByAutograd:
    """Any network.

    Attributes:
        output: (B, out_dim).
    """

    def __init__(self, net: nn.Module, x: Tensor):
        self._weights = trainable(net)
        with learning(net):
            self.output = net(x)

    def backward(self, slope: Tensor) -> None:
        """Leave in `grad` of every weight its gradient of a loss; `slope` (B, out_dim) is the
        output's.
        """
        self._keep(torch.autograd.grad(self.output, self._weights, slope, materialize_grads=True))

    def backward_from(self, loss: Tensor) -> None:
        """Leave in `grad` of every weight its gradient of `loss`, a 0-d tensor made of the
        output.
        """
        self._keep(torch.autograd.grad(loss, self._weights, materialize_grads=True))

    def _keep(self, gradients: Sequence[Tensor]) -> None:
        for weight, gradient in zip(self._weights, gradients):
            weight.grad = gradient


class JointPass:
    """Two batches as one through a network that normalises by batch, as CrossQ's critics get (s, a)
    and (s', a').

    Attributes:
        output: (B, out_dim) of the first.
        following: (B, out_dim) of the second, without gradient.
    """

    def __init__(self, net: nn.Module, x: Tensor, following: Tensor):
        self._pass = forward(net, torch.cat((x, following)))
        self.output, self.following = self._pass.output.detach().chunk(2)

    def backward(self, slope: Tensor) -> None:
        """As `ByAutograd.backward`; `slope` (B, out_dim) is the first batch's, the second is taken
        as it is.
        """
        self._pass.backward(torch.cat((slope, torch.zeros_like(slope))))
