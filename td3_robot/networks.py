"""The one network shape of all six: a multilayer perceptron."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MLP(nn.Module):
    """Linear layers with ReLU between them and a scaled output activation.

    As an actor, MLP(o_dim, a_dim, a_max) gives a_max * tanh(.), an action inside its bounds. As a
    critic, MLP(o_dim + a_dim, 1, output_activation=None) gives an unbounded value.

    Args:
        in_dim: width of the input.
        out_dim: width of the output.
        out_max: scale of the output, a scalar or (out_dim,).
        output_activation: applied before scaling; None for none.
        hidden: width of each hidden layer.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        out_max: float | Tensor = 1.0,
        output_activation: Callable[[Tensor], Tensor] | None = torch.tanh,
        hidden: Sequence[int] = (256, 256),
    ):
        super().__init__()
        widths = (in_dim, *hidden, out_dim)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.output_activation = output_activation
        self.register_buffer("out_max", torch.as_tensor(out_max, dtype=torch.float32), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_dim) -> (B, out_dim)."""
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        x = self.layers[-1](x)
        return x if self.output_activation is None else self.out_max * self.output_activation(x)
