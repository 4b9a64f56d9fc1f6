"""Passes through a multilayer perceptron with gradients that are written out.

For layers y_i = relu(W_i y_(i-1) + b_i), and g_i the gradient of the loss with respect to what the
ReLU gets,

    dL/dW_i = g_i^T y_(i-1)
    dL/db_i = the sum of g_i over the batch
    g_(i-1) = g_i W_i where y_(i-1) > 0, else 0.

Autograd computes the same, but records every operation, which for small networks takes as long as
the operations.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from td3_robot.networks.batch_renorm import Moments
from td3_robot.networks.linear import affine, matmul


class ManualMLPPass:
    """A pass of a batch x (B, in_dim) through a plain MLP (`get_plain_weights`).

    Attributes:
        output: (B, out_dim).
    """

    def __init__(self, net: Any, weights: Sequence[nn.Parameter], x: Tensor):
        self._net = net
        self._weights = weights
        with torch.no_grad():
            self.output = net.scale_output(self._forward(x))
        self.output.requires_grad = True

    def _forward(self, x: Tensor) -> Tensor:
        """Compute the output of the last layer and keep the inputs of all layers."""
        *self._inputs, last = _run_layers(x, self._weights)
        return last

    @torch.no_grad()
    def backward(self, grad_output: Tensor) -> None:
        """Set `grad` of every weight, given the loss's gradient grad_output (B, out_dim)."""
        self._backward(self._net.backward_output(grad_output, self.output).contiguous())

    def _backward(self, g: Tensor) -> None:
        """Set `grad` of every weight, given the gradient g of the last layer's output."""
        inputs = self._inputs
        weights = self._weights
        for i in reversed(range(len(inputs))):
            weights[2 * i].grad = matmul(g.t(), inputs[i])
            weights[2 * i + 1].grad = g.sum(0)
            if i:
                g = _backward_relu_(matmul(g, weights[2 * i]), inputs[i])

    def backward_from(self, loss: Tensor) -> None:
        """Set `grad` of every weight, given the loss, a 0-d tensor made of the output.

        The loss may use the weights in other ways, too.
        """
        sources = (self.output, *self._weights)
        grad, *others = torch.autograd.grad(loss, sources, allow_unused=True)
        self.backward(torch.zeros_like(self.output) if grad is None else grad)
        for weight, other in zip(self._weights, others):
            if other is not None and weight.grad is not None:
                weight.grad += other


class _Layer(NamedTuple):
    """The results of a layer's forward pass that its backward pass needs (`ManualRenormPass`)."""

    y: Tensor
    moments: Moments
    a: Tensor
    c: Tensor
    folded: Tensor  # W a


class ManualRenormPass(ManualMLPPass):
    """A training pass through a renormalised MLP, which updates the running statistics.

    With m and s the mean and deviation of y, a layer gets x = gamma (y - m) / s + beta, where
    gamma = weight r and beta = weight d + bias of its renormalisation. This is folded into the
    layer,

        W x + b = (W a) y + (b + W c),    a = gamma / s,    c = beta - a m,

    so that no temporary has the size of the batch. The same holds for gradients. With G the sum of
    g over the batch and P = g^T y,

        dL/dW = P a + G c^T
        dL/dbeta = W^T G
        dL/dgamma = (column sums of W * P - m dL/dbeta) / s
        dL/dy = g (W a) - a dL/dbeta / B - (y - m) a dL/dgamma / (B s),

    where the last two terms are the derivatives of m and s (Ioffe & Szegedy, "Batch Normalization",
    ICML 2015). The input may lie many deviations from zero and is narrow: it is standardised to
    (x - m) / s first.
    """

    def __init__(self, net: Any, x: Tensor):
        super().__init__(net, list(net.parameters()), x)

    def _forward(self, x: Tensor) -> Tensor:
        self._passed: list[_Layer] = []
        for layer, norm in zip(self._net.layers, self._net.norms):
            moments = norm.count(x)
            if not self._passed:
                x, moments = moments.standardize(x)
            a, c = moments.fold(norm)
            folded = layer.weight * a
            self._passed.append(_Layer(x, moments, a, c, folded))
            is_hidden = layer is not self._net.layers[-1]
            x = affine(x, folded, layer.bias + layer.weight @ c, relu=is_hidden)
        return x

    def _backward(self, g: Tensor) -> None:
        net = self._net
        layers = zip(reversed(net.layers), reversed(net.norms), reversed(self._passed))
        for layer, norm, (y, moments, a, c, folded) in layers:
            total = g.sum(0)
            product = matmul(g.t(), y)
            grad_beta = layer.weight.t() @ total
            grad_gamma = (layer.weight * product).sum(0) - moments.mean * grad_beta
            grad_gamma = grad_gamma / moments.deviation
            norm.weight.grad = moments.r * grad_gamma + moments.d * grad_beta
            norm.bias.grad = grad_beta
            layer.weight.grad = product.mul_(a).addr_(total, c)
            layer.bias.grad = total
            if layer is not net.layers[0]:
                slant = a * grad_gamma / (len(y) * moments.deviation)
                level = a * grad_beta / len(y) - moments.mean * slant
                g = matmul(g, folded).addcmul_(y, slant, value=-1.0).sub_(level)
                g = _backward_relu_(g, y)


class _FrozenMLP(torch.autograd.Function):
    """A plain MLP as a function of its input alone."""

    @staticmethod
    def forward(ctx, x: Tensor, net: Any, weights: Sequence[Tensor]) -> Tensor:
        *inputs, last = _run_layers(x, weights)
        output = net.scale_output(last)
        ctx.net = net
        ctx.weights = weights
        ctx.save_for_backward(*inputs, output)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output: Tensor) -> tuple[Tensor, None, None]:
        *inputs, output = ctx.saved_tensors
        g = ctx.net.backward_output(grad_output, output).contiguous()
        for i in reversed(range(1, len(inputs))):
            g = _backward_relu_(matmul(g, ctx.weights[2 * i]), inputs[i])
        return matmul(g, ctx.weights[0]), None, None


def frozen_mlp_forward(net: Any, weights: Sequence[Tensor], x: Tensor) -> Tensor:
    """Compute a plain MLP, given its matrices and biases by turns, with gradients for x alone."""
    return _FrozenMLP.apply(x, net, weights)


def frozen_renorm_forward(net: Any, x: Tensor) -> Tensor:
    """Compute a renormalised MLP in evaluation mode, with gradients for x alone.

    In evaluation it is a plain MLP: layers after the first absorb their renormalisation. The first
    does not, for the same reason as in `ManualRenormPass`.
    """
    with torch.no_grad():
        weights = []
        for layer, norm in zip(net.layers, net.norms):
            a, c = norm.get_running_moments().fold(norm) if weights else (norm.weight, norm.bias)
            weights += [layer.weight * a, layer.bias + layer.weight @ c]
    x, _ = net.norms[0].get_running_moments().standardize(x)
    return frozen_mlp_forward(net, weights, x)


def _run_layers(x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the input of each layer, then the output of the last one."""
    # columns of a wider tensor, as batches are, take oneDNN a hundred times as long
    found = [x.contiguous()]
    for i in range(0, len(weights), 2):
        found.append(affine(found[-1], weights[i], weights[i + 1], relu=i + 2 < len(weights)))
    return found


def _backward_relu_(grad: Tensor, y: Tensor) -> Tensor:
    """Turn the gradient of a ReLU's output y into that of its input, in place."""
    return torch.ops.aten.threshold_backward.grad_input(grad, y, 0, grad_input=grad)
