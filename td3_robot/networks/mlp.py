"""Multilayer perceptrons, the default networks of `TD3`, and the modes of any network."""

import math
import reprlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from td3_robot.config.field import NOT_NEGATIVE, require
from td3_robot.config.td3 import BATCHED, INITS, NORMS, TD3Config
from td3_robot.errors import ConfigError, get_first_line
from td3_robot.networks.batch_renorm import BatchRenorm
from td3_robot.networks.linear import is_hooked, linear
from td3_robot.networks.residual import Residual
from td3_robot.utils.legacy import keep_old_names
from td3_robot.utils.memory import require_memory

_NORM_LAYERS: dict[str, Any] = dict(zip(NORMS, (None, nn.LayerNorm, nn.BatchNorm1d, BatchRenorm)))

Networks = tuple[nn.Module, nn.Module, nn.Module]  # the actor, Q1 and Q2
MakeNetworks = Callable[[int, int, Tensor, int, TD3Config], Networks]  # as `make_mlps`

# three networks, each with its target, gradient and Adam's two moments, in float32
_BYTES_PER_WEIGHT = 3 * (1 + 1 + 1 + 2) * 4


def require_room(widths: Sequence[int]) -> None:
    """Raise a ConfigError if layers of these widths, with targets and optimizers, do not fit."""
    weights = sum(a * b for a, b in zip(widths, widths[1:]))
    require_memory(f"hidden {reprlib.repr(list(widths[1:-1]))}", _BYTES_PER_WEIGHT * weights, "cpu")


@keep_old_names(scaled="scale_output", unscaled="backward_output")
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
        norm: one of NORMS: "layer" and "batch" between each hidden layer and its ReLU, "renorm" of
            the input and after each ReLU, as in CrossQ (batch_renorm.py). "batch" and "renorm"
            have two modes, see `train_mode`.
        init: one of INITS. "default" is what nn.Linear draws. "orthogonal" (Saxe, McClelland &
            Ganguli, ICLR 2014) has gain sqrt(2) in hidden layers, for ReLU, 1 in the last one and
            zero biases, as in the value networks of
            https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/, detail 2.
        final_bound: if positive, weights and biases of the last layer are drawn uniformly from
            [-final_bound, final_bound], so that first outputs lie near zero: 3e-3 in DDPG
            (Lillicrap et al., ICLR 2016, section 7).

    Raises:
        ConfigError: no such norm or init, or final_bound is negative or beyond float32.
    """

    out_max: Tensor
    layers: Any  # an nn.ModuleList of nn.Linear

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        out_max: float | Tensor = 1.0,
        output_activation: Callable[[Tensor], Tensor] | None = torch.tanh,
        hidden: Sequence[int] = (256, 256),
        norm: str = "none",
        init: str = "default",
        final_bound: float = 0.0,
    ):
        super().__init__()
        require("norm", norm, NORMS)
        require("init", init, INITS)
        require("final_bound", final_bound, NOT_NEGATIVE)
        self.norm = norm
        widths = (in_dim, *hidden, out_dim)
        require_room(widths)
        self.layers = nn.ModuleList(
            nn.Linear(a, b, dtype=torch.float32) for a, b in zip(widths, widths[1:])
        )
        if norm == "none":
            normed: Sequence[int] = ()
        elif norm == "renorm":
            normed = widths[:-1]
        else:
            normed = hidden
        self.norms = nn.ModuleList(map(_NORM_LAYERS[norm], normed)).float()
        if init == "orthogonal":
            self._draw_orthogonal()
        if final_bound > 0.0:
            for parameter in self.layers[-1].parameters():
                nn.init.uniform_(parameter, -final_bound, final_bound)
        self.output_activation = output_activation
        self.register_buffer(
            "out_max", torch.as_tensor(out_max, dtype=torch.float32), persistent=False
        )

    def _draw_orthogonal(self) -> None:
        for layer in self.layers:
            nn.init.orthogonal_(layer.weight, 1.0 if layer is self.layers[-1] else math.sqrt(2.0))
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in_dim) to (B, out_dim), or (in_dim,) to (out_dim,)."""
        if self.norm in BATCHED and x.ndim == 1:
            return self.forward(x[None])[0]
        *hidden, last = self.layers
        if self.norm == "renorm":
            return self.scale_output(linear(self._forward_renormed(x), last))
        for layer, norm in zip_longest(hidden, self.norms):  # without norms, None beside each
            x = linear(x, layer, relu=True) if norm is None else F.relu(norm(linear(x, layer)))
        return self.scale_output(linear(x, last))

    def _forward_renormed(self, x: Tensor) -> Tensor:
        """Compute the last layer's input in a network with batch renormalisation."""
        first, *norms = self.norms
        x = first(x)
        for layer, norm in zip(self.layers, norms):
            x = norm(linear(x, layer, relu=True))
        return x

    def scale_output(self, x: Tensor) -> Tensor:
        """Apply output activation and scale to the last layer's output x."""
        return x if self.output_activation is None else self.out_max * self.output_activation(x)

    def backward_output(self, grad_output: Tensor, output: Tensor) -> Tensor:
        """Return the gradient of the last layer's output, given that of `scale_output`'s."""
        if self.output_activation is None:
            return grad_output
        return torch.ops.aten.tanh_backward(grad_output * self.out_max, output / self.out_max)


def make_mlps(o_dim: int, a_dim: int, a_max: Tensor, values: int, config: TD3Config) -> Networks:
    """Make the default networks of TD3; `TD3(networks=...)` takes others of this signature.

    Args:
        o_dim, a_dim: widths of an observation and of an action.
        a_max: () or (a_dim,) bound of the actions.
        values: width of a critic's output: 1, or `config.atoms`.
        config: the agent's options.

    Returns:
        The actor, (B, o_dim) -> (B, a_dim) inside the bounds, then Q1 and Q2, (B, o_dim +
        config.privileged + a_dim) -> (B, values), which get the observation, what critics alone
        see (https://arxiv.org/abs/1710.06542), and the action side by side. No two share a weight;
        each may ignore columns.
    """
    shape = {name: getattr(config, name) for name in ("hidden", "norm", "init", "final_bound")}
    actor: nn.Module = MLP(o_dim, a_dim, a_max, **shape)
    if config.is_residual:
        actor = Residual(actor, a_max, config, o_dim, a_dim)
    shape |= {
        "hidden": config.critic_layers,
        "norm": "renorm" if config.critic == "crossq" else config.norm,
    }
    width = o_dim + (config.privileged or 0) + a_dim
    Q1, Q2 = (MLP(width, values, output_activation=None, **shape) for _ in range(2))
    return actor, Q1, Q2


def check_networks(
    networks: Networks, device: torch.device, o_dim: int, critic_o_dim: int, a_dim: int, values: int
) -> None:
    """Move user-made networks to their device and check them against `make_mlps`.

    Args:
        networks: the actor, Q1 and Q2.
        device: where they are moved to.
        o_dim, critic_o_dim: widths of what the actor sees, and the critics beside the action.
        a_dim, values: widths of what they return.

    Raises:
        ConfigError: they are not three modules, share weights, or have a wrong input or output.
    """
    if (
        not isinstance(networks, tuple)
        or len(networks) != 3
        or not all(isinstance(n, nn.Module) for n in networks)
    ):
        raise ConfigError("networks must give a tuple of three modules: the actor, Q1 and Q2")
    critic = (critic_o_dim + a_dim, values)
    widths = {"actor": (o_dim, a_dim), "Q1": critic, "Q2": critic}
    for (name, (width, out)), network in zip(widths.items(), networks):
        try:
            with torch.no_grad():  # lazy layers get their widths here
                x = torch.zeros(2, width, device=device, dtype=torch.float32)
                shape = tuple(network.to(device).eval()(x).shape)
        except Exception as error:  # of the user's code
            raise ConfigError(
                f"networks: {name} does not take (B, {width}): {get_first_line(error)}"
            ) from error
        if shape != (2, out):
            raise ConfigError(
                f"networks: {name} must give (B, {out}) for (B, {width}), gave {shape} for B = 2"
            )
    weights = [id(weight) for network in networks for weight in network.parameters()]
    if len(set(weights)) < len(weights):
        raise ConfigError("networks must share no weights: each is updated by itself")


@contextmanager
def train_mode(*nets: nn.Module) -> Iterator[None]:
    """Put networks into training mode, in which batch norm uses and updates batch statistics.

    Use it for the forward pass of a network's own loss alone. Targets, actions and the critic that
    the actor ascends use running statistics (`net.eval()`): there the batch is of another
    distribution than the replay's actions, or a single observation. Wang et al., "An Investigation
    of Batch Normalization in Off-Policy Actor-Critic Algorithms", https://arxiv.org/abs/2509.23750,
    found this to be stable for the critic under the actor's loss. An MLP without batch norm has no
    modes and is left alone.
    """
    modal = [net for net in nets if type(net) is not MLP or net.norm in BATCHED]
    for net in modal:
        net.train()
    try:
        yield
    finally:
        for net in modal:
            net.eval()


@contextmanager
def freeze(*nets: nn.Module) -> Iterator[None]:
    """Freeze the weights of networks: gradients pass through, but none is computed for weights."""
    weights = get_trainable(*nets)
    for weight in weights:
        weight.requires_grad = False
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad = True


def get_trainable(*nets: nn.Module) -> list[nn.Parameter]:
    """Return the trainable weights: all but those that a user's network has frozen."""
    return [weight for net in nets for weight in net.parameters() if weight.requires_grad]


def get_statistics(net: nn.Module) -> list[Tensor]:
    """Return the running means and variances of batch norm, which target networks average, too."""
    # the bound of an MLP's output is the same in its target
    layers = net.norms if type(net) is MLP else net
    return [buffer for buffer in layers.buffers() if buffer.is_floating_point()]


def get_plain_weights(net: Any) -> list[nn.Parameter] | None:
    """Return matrices and biases by turns of a plain MLP (linear, ReLU, at most tanh), else None.

    They are read from the modules' own dictionaries, ten times as fast as attributes.
    """
    if not _is_mlp(net, "none"):
        return None
    layers = net._modules["layers"]._modules.values()
    weights = [weight for layer in layers for weight in layer._parameters.values()]
    plain = all(_is_unchanged(layer, nn.Linear) for layer in layers)
    return weights if plain and all(weight is not None for weight in weights) else None


def is_renormed(net: Any) -> bool:
    """Tell whether a network is linear layers, ReLU, renormalisation and at most tanh."""
    if not _is_mlp(net, "renorm"):
        return False
    layers = all(_is_unchanged(layer, nn.Linear) and layer.bias is not None for layer in net.layers)
    return layers and all(_is_unchanged(norm, BatchRenorm) for norm in net.norms)


def _is_mlp(net: Any, norm: str) -> bool:
    """Tell whether a network is an unchanged MLP with this norm and at most tanh."""
    is_mlp = _is_unchanged(net, MLP) and net.norm == norm
    return is_mlp and net.output_activation in (None, torch.tanh)


def _is_unchanged(module: nn.Module, kind: type) -> bool:
    """Tell whether a module is no subclass and neither parametrised, hooked nor patched."""
    return type(module) is kind and not is_hooked(module) and "forward" not in vars(module)


def polyak_tensors(net: nn.Module) -> Sequence[Tensor]:
    """Return the tensors that target networks average: weights and statistics of batch norm."""
    return get_plain_weights(net) or [*net.parameters(), *get_statistics(net)]
