"""The gradients of a network: by hand for a plain multilayer perceptron, by autograd for every other.

For layers y_i = relu(W_i y_(i-1) + b_i), and g_i the gradient of the loss with respect to what the ReLU gets,

    dL/dW_i = g_i^T y_(i-1),    dL/db_i = the sum of g_i over the batch,    g_(i-1) = (g_i W_i) where y_(i-1) > 0.

Autograd does the same, but keeps books of every operation, which for small networks takes as long as the operations.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from td3_robot.linear import affine, matmul
from td3_robot.networks import frozen, learning, plain_weights, trainable


def forward(net: nn.Module, x: Tensor) -> "ByHand | ByAutograd":
    """The pass of a batch x (B, in_dim) through a network that is to learn from it."""
    weights = plain_weights(net)
    if weights is not None and all(weight.requires_grad for weight in weights):
        return ByHand(net, weights, x)
    return ByAutograd(net, x)


def held_still(net: nn.Module, x: Tensor) -> Tensor:
    """What `net` makes of x (B, in_dim); gradients pass through it to x, none of its own weights is computed."""
    weights = plain_weights(net)
    if weights is not None:
        return _HeldStill.apply(x, net, weights)
    with frozen(net):
        return net(x)


def clip_gradients(nets: Sequence[nn.Module], limit: float | None) -> None:
    """Shorten the gradient of each network alone to at most the norm `limit`, where there is one."""
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
        """Leave in `grad` of every weight its gradient of a loss; `slope` (B, out_dim) is the output's."""
        self._keep(torch.autograd.grad(self.output, self._weights, slope, materialize_grads=True))

    def backward_from(self, loss: Tensor) -> None:
        """Leave in `grad` of every weight its gradient of `loss`, a 0-d tensor made of the output."""
        self._keep(torch.autograd.grad(loss, self._weights, materialize_grads=True))

    def _keep(self, gradients: Sequence[Tensor]) -> None:
        for weight, gradient in zip(self._weights, gradients):
            weight.grad = gradient


class JointPass:
    """Two batches as one through a network that normalises by batch, as CrossQ's critics get (s, a) and (s', a').

    Attributes:
        output: (B, out_dim) of the first.
        following: (B, out_dim) of the second, without gradient.
    """

    def __init__(self, net: nn.Module, x: Tensor, following: Tensor):
        self._pass = forward(net, torch.cat((x, following)))
        self.output, self.following = self._pass.output.detach().chunk(2)

    def backward(self, slope: Tensor) -> None:
        """As `ByAutograd.backward`; `slope` (B, out_dim) is the first batch's, the second is taken as it is."""
        self._pass.backward(torch.cat((slope, torch.zeros_like(slope))))


class ByHand:
    """A plain MLP (`plain_weights`); the same methods."""

    def __init__(self, net: Any, weights: Sequence[nn.Parameter], x: Tensor):
        self._net, self._weights = net, weights
        with torch.no_grad():
            *self._inputs, last = _forward(x, weights)
            self.output = net.scaled(last)
        self.output.requires_grad = True

    @torch.no_grad()
    def backward(self, slope: Tensor) -> None:
        """As `ByAutograd.backward`."""
        inputs, weights = self._inputs, self._weights
        g = self._net.unscaled(slope, self.output).contiguous()
        for i in reversed(range(len(inputs))):
            weights[2 * i].grad, weights[2 * i + 1].grad = matmul(g.t(), inputs[i]), g.sum(0)
            if i:
                g = _before(g, weights[2 * i], inputs[i])

    def backward_from(self, loss: Tensor) -> None:
        """As `ByAutograd.backward_from`; `loss` may use the network in other ways, too."""
        slope, *others = torch.autograd.grad(loss, (self.output, *self._weights), allow_unused=True)
        self.backward(torch.zeros_like(self.output) if slope is None else slope)
        for weight, other in zip(self._weights, others):
            if other is not None and weight.grad is not None:
                weight.grad += other


class _HeldStill(torch.autograd.Function):
    """What a plain MLP gives, as a function of its input alone."""

    @staticmethod
    def forward(ctx, x: Tensor, net: Any, weights: Sequence[Tensor]) -> Tensor:
        *inputs, last = _forward(x, weights)
        output = net.scaled(last)
        ctx.net, ctx.weights = net, weights
        ctx.save_for_backward(*inputs, output)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, slope: Tensor) -> tuple[Tensor, None, None]:
        *inputs, output = ctx.saved_tensors
        g = ctx.net.unscaled(slope, output).contiguous()
        for i in reversed(range(1, len(inputs))):
            g = _before(g, ctx.weights[2 * i], inputs[i])
        return matmul(g, ctx.weights[0]), None, None


def _forward(x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """What each layer gets, and at the end what the last one gives."""
    found = [x.contiguous()]  # columns of a wider tensor, as batches are, take oneDNN a hundred times as long
    for i in range(0, len(weights), 2):
        found.append(affine(found[-1], weights[i], weights[i + 1], relu=i + 2 < len(weights)))
    return found


def _before(g: Tensor, matrix: Tensor, y: Tensor) -> Tensor:
    """g_(i-1) of g_i, W_i and y_(i-1)."""
    return torch.ops.aten.threshold_backward(matmul(g, matrix), y, 0)
