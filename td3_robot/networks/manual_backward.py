"""Passes of a multilayer perceptron whose gradients are written out.

For layers y_i = relu(W_i y_(i-1) + b_i), and g_i the gradient of the loss with respect to what the
ReLU gets,

    dL/dW_i = g_i^T y_(i-1),    dL/db_i = the sum of g_i over the batch,    g_(i-1) = (g_i W_i)
    where y_(i-1) > 0.

Autograd does the same, but keeps books of every operation, which for small networks takes as long
as the operations.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from td3_robot.networks.batch_renorm import Moments
from td3_robot.networks.linear import affine, matmul


class ManualMLPPass:
    """The pass of a batch x (B, in_dim) through a plain MLP (`plain_weights`).

    Attributes:
        output: (B, out_dim).
    """

    def __init__(self, net: Any, weights: Sequence[nn.Parameter], x: Tensor):
        self._net, self._weights = net, weights
        with torch.no_grad():
            self.output = net.scaled(self._forward(x))
        self.output.requires_grad = True

    def _forward(self, x: Tensor) -> Tensor:
        """What the last layer gives."""
        *self._inputs, last = _layers(x, self._weights)
        return last

    @torch.no_grad()
    def backward(self, slope: Tensor) -> None:
        """Leave in `grad` of every weight its gradient of a loss; `slope` (B, out_dim) is the
        output's.
        """
        self._backward(self._net.unscaled(slope, self.output).contiguous())

    def _backward(self, g: Tensor) -> None:
        """The same; `g` is the slope of what the last layer gives."""
        inputs, weights = self._inputs, self._weights
        for i in reversed(range(len(inputs))):
            weights[2 * i].grad, weights[2 * i + 1].grad = matmul(g.t(), inputs[i]), g.sum(0)
            if i:
                g = _rectified(matmul(g, weights[2 * i]), inputs[i])

    def backward_from(self, loss: Tensor) -> None:
        """As `backward`, of `loss`, a 0-d tensor made of the output; it may use the network in
        other ways, too.
        """
        slope, *others = torch.autograd.grad(loss, (self.output, *self._weights), allow_unused=True)
        self.backward(torch.zeros_like(self.output) if slope is None else slope)
        for weight, other in zip(self._weights, others):
            if other is not None and weight.grad is not None:
                weight.grad += other


class _Layer(NamedTuple):
    """What the backward pass needs of a layer's forward pass: see `ManualRenormPass`."""

    y: Tensor
    moments: Moments
    a: Tensor
    c: Tensor
    folded: Tensor  # W a


class ManualRenormPass(ManualMLPPass):
    """The same of an MLP that is renormalised (batch_renorm.py) and trains: the batch counts into
    its statistics.

    With m and s the mean and deviation of y, what a layer gets is x = gamma (y - m) / s + beta,
    where gamma = weight r and beta = weight d + bias of its renormalisation. The layer takes that
    over,

        W x + b = (W a) y + (b + W c),    a = gamma / s,    c = beta - a m,

    so that nothing of the size of the batch is made for it. Nor is it for gradients. With G the sum
    of g over the batch and P = g^T y,

        dL/dW = P a + G c^T,    dL/dbeta = W^T G,    dL/dgamma = (column sums of W * P - m dL/dbeta)
        / s, dL/dy = g (W a) - a dL/dbeta / B - (y - m) a dL/dgamma / (B s),

    the last two terms of which are that m and s are of y (Ioffe & Szegedy, "Batch Normalization",
    ICML 2015). The input itself may be far from zero for its deviation, and is narrow: it is
    brought to (x - m) / s first.
    """

    def __init__(self, net: Any, x: Tensor):
        super().__init__(net, list(net.parameters()), x)

    def _forward(self, x: Tensor) -> Tensor:
        self._passed: list[_Layer] = []
        for layer, norm in zip(self._net.layers, self._net.norms):
            moments = norm.count(x)
            if not self._passed:
                x, moments = moments.standardized(x)
            a, c = moments.affine(norm)
            folded = layer.weight * a
            self._passed.append(_Layer(x, moments, a, c, folded))
            x = affine(
                x, folded, layer.bias + layer.weight @ c, relu=layer is not self._net.layers[-1]
            )
        return x

    def _backward(self, g: Tensor) -> None:
        net = self._net
        for layer, norm, passed in zip(
            reversed(net.layers), reversed(net.norms), reversed(self._passed)
        ):
            y, moments, a, c, folded = passed
            total, product = g.sum(0), matmul(g.t(), y)
            of_beta = layer.weight.t() @ total
            of_gamma = (
                (layer.weight * product).sum(0) - moments.mean * of_beta
            ) / moments.deviation
            norm.weight.grad, norm.bias.grad = moments.r * of_gamma + moments.d * of_beta, of_beta
            layer.weight.grad, layer.bias.grad = product.mul_(a).addr_(total, c), total
            if layer is not net.layers[0]:
                slant = a * of_gamma / (len(y) * moments.deviation)
                level = a * of_beta / len(y) - moments.mean * slant
                g = _rectified(matmul(g, folded).addcmul_(y, slant, value=-1.0).sub_(level), y)


class _HeldStill(torch.autograd.Function):
    """What `still` gives."""

    @staticmethod
    def forward(ctx, x: Tensor, net: Any, weights: Sequence[Tensor]) -> Tensor:
        *inputs, last = _layers(x, weights)
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
            g = _rectified(matmul(g, ctx.weights[2 * i]), inputs[i])
        return matmul(g, ctx.weights[0]), None, None


def still(net: Any, weights: Sequence[Tensor], x: Tensor) -> Tensor:
    """What a plain MLP gives, whose matrices and biases are `weights` by turns, as a function of
    its input alone.
    """
    return _HeldStill.apply(x, net, weights)


def frozen_renorm_forward(net: Any, x: Tensor) -> Tensor:
    """What a renormalised MLP gives in evaluation, as a function of its input alone.

    There it is a plain one, whose layers after the first take over what they are renormalised by;
    the first does not, for the same reason as in `ManualRenormPass`.
    """
    with torch.no_grad():
        weights = []
        for layer, norm in zip(net.layers, net.norms):
            a, c = norm.running().affine(norm) if weights else (norm.weight, norm.bias)
            weights += [layer.weight * a, layer.bias + layer.weight @ c]
    x, _ = net.norms[0].running().standardized(x)
    return still(net, weights, x)


def _layers(x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """What each layer gets, and at the end what the last one gives."""
    found = [
        x.contiguous()
    ]  # columns of a wider tensor, as batches are, take oneDNN a hundred times as long
    for i in range(0, len(weights), 2):
        found.append(affine(found[-1], weights[i], weights[i + 1], relu=i + 2 < len(weights)))
    return found


def _rectified(slope: Tensor, y: Tensor) -> Tensor:
    """The slope of what a ReLU gets, of that of what it gives, y."""
    return torch.ops.aten.threshold_backward(slope, y, 0)
