"""What the six networks are: multilayer perceptrons, unless `TD3(networks=...)` is given others."""

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
from td3_robot.utils.memory import require_memory

_NORM_LAYERS: dict[str, Any] = dict(zip(NORMS, (None, nn.LayerNorm, nn.BatchNorm1d, BatchRenorm)))

Networks = tuple[nn.Module, nn.Module, nn.Module]  # the actor, Q1 and Q2
MakeNetworks = Callable[[int, int, Tensor, int, TD3Config], Networks]  # as `mlps`


_BYTES_PER_WEIGHT = (
    60  # of three networks, their targets, gradients and Adam's two moments in float32
)


def require_room(widths: Sequence[int]) -> None:
    """Raise a ConfigError where layers of these widths, and all that learns with them, go into no
    memory.
    """
    weights = sum(a * b for a, b in zip(widths, widths[1:]))
    require_memory(f"hidden {reprlib.repr(list(widths[1:-1]))}", _BYTES_PER_WEIGHT * weights, "cpu")


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
            the input and after each ReLU, as CrossQ has it (batch_renorm.py). With "batch" and
            "renorm" see `learning`.
        init: one of INITS. "default" is what nn.Linear draws. "orthogonal" (Saxe, McClelland &
            Ganguli, ICLR 2014) has gain sqrt(2) in hidden layers, for ReLU, 1 in the last one and
            zero biases, as the value networks of
            https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/, detail 2.
        final_bound: where positive, weights and biases of the last layer are drawn uniformly from
            plus and minus this, so that first outputs lie near zero: 3e-3 in DDPG (Lillicrap et
            al., ICLR 2016, section 7).

    Raises:
        ConfigError: no such norm or init, or final_bound is negative or beyond float32.
    """

    out_max: Tensor
    layers: Any  # an nn.ModuleList of nn.Linear, which does not say of what it is

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
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        normed = () if norm == "none" else widths[:-1] if norm == "renorm" else hidden
        self.norms = nn.ModuleList(map(_NORM_LAYERS[norm], normed))
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
        """(B, in_dim) -> (B, out_dim), or (in_dim,) -> (out_dim,)."""
        if self.norm in BATCHED and x.ndim == 1:
            return self.forward(x[None])[0]
        *hidden, last = self.layers
        if self.norm == "renorm":
            return self.scaled(linear(self._renormed(x), last))
        for layer, norm in zip_longest(hidden, self.norms):
            x = linear(x, layer, relu=True) if norm is None else F.relu(norm(linear(x, layer)))
        return self.scaled(linear(x, last))

    def _renormed(self, x: Tensor) -> Tensor:
        """What the last layer gets, of a network whose input and layers are renormalised."""
        first, *norms = self.norms
        x = first(x)
        for layer, norm in zip(self.layers, norms):
            x = norm(linear(x, layer, relu=True))
        return x

    def scaled(self, x: Tensor) -> Tensor:
        """What the network gives, where its last layer gives x."""
        return x if self.output_activation is None else self.out_max * self.output_activation(x)

    def unscaled(self, slope: Tensor, output: Tensor) -> Tensor:
        """The gradient with respect to what the last layer gives, where `slope` is that with
        respect to the output.
        """
        if self.output_activation is None:
            return slope
        return torch.ops.aten.tanh_backward(slope * self.out_max, output / self.out_max)


def mlps(o_dim: int, a_dim: int, a_max: Tensor, values: int, config: TD3Config) -> Networks:
    """The networks of TD3; any function of this signature may make others.

    Args:
        o_dim, a_dim: widths of an observation and of an action.
        a_max: () or (a_dim,) bound of the actions.
        values: what a critic gives for each action: 1, or `config.atoms`.
        config: the agent's options.

    Returns:
        The actor, (B, o_dim) -> (B, a_dim) inside the bounds, then Q1 and Q2, (B, o_dim + a_dim) ->
        (B, values), which get observation and action side by side. No two share a weight; each
        takes a column of the observation or leaves it, as it likes.
    """
    shape = {name: getattr(config, name) for name in ("hidden", "norm", "init", "final_bound")}
    actor: nn.Module = MLP(o_dim, a_dim, a_max, **shape)
    if config.is_residual:
        actor = Residual(actor, a_max, config, o_dim, a_dim)
    shape |= {
        "hidden": config.critic_layers,
        "norm": "renorm" if config.critic == "crossq" else config.norm,
    }
    Q1, Q2 = (MLP(o_dim + a_dim, values, output_activation=None, **shape) for _ in range(2))
    return actor, Q1, Q2


def check_networks(
    networks: Networks, device: torch.device, o_dim: int, a_dim: int, values: int
) -> None:
    """Take networks that somebody's function made to their device and hold them to what `mlps`
    promises.

    Raises:
        ConfigError: they are not three modules, share weights, or one does not take or give what it
            should.
    """
    if (
        not isinstance(networks, tuple)
        or len(networks) != 3
        or not all(isinstance(n, nn.Module) for n in networks)
    ):
        raise ConfigError("networks must give a tuple of three modules: the actor, Q1 and Q2")
    widths = {"actor": (o_dim, a_dim), "Q1": (o_dim + a_dim, values), "Q2": (o_dim + a_dim, values)}
    for (name, (width, out)), network in zip(widths.items(), networks):
        try:
            with torch.no_grad():  # lazy layers get their widths here
                shape = tuple(network.to(device).eval()(torch.zeros(2, width, device=device)).shape)
        except Exception as error:  # of somebody else's code
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
def learning(*nets: nn.Module) -> Iterator[None]:
    """Inside, batch norm takes the statistics of the batch and adds them to its running ones;
    afterwards the latter.

    A network belongs in here for the forward pass of its own loss and nowhere else. Targets,
    actions and the critic that the actor ascends use running statistics (`net.eval()`): there the
    batch is of another distribution than the replay's actions, or a single observation. For the
    critic under the actor's loss this was measured to be what learns stably: Wang et al., "An
    Investigation of Batch Normalization in Off-Policy Actor-Critic Algorithms",
    https://arxiv.org/abs/2509.23750. An MLP without batch norm knows no modes and is left as it is.
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
def frozen(*nets: nn.Module) -> Iterator[None]:
    """Inside, gradients pass through the networks but none of their own weights is computed."""
    weights = trainable(*nets)
    for weight in weights:
        weight.requires_grad = False
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad = True


def trainable(*nets: nn.Module) -> list[nn.Parameter]:
    """The weights that learn: all, but for those that a network of somebody's own holds still."""
    return [weight for net in nets for weight in net.parameters() if weight.requires_grad]


def buffers_of(net: nn.Module) -> list[Tensor]:
    """Running means and variances of batch norm, which a target network takes over together with
    the weights.
    """
    layers = (
        net.norms if type(net) is MLP else net
    )  # the bound of an MLP's output is the same in its target
    return [buffer for buffer in layers.buffers() if buffer.is_floating_point()]


def plain_weights(net: Any) -> list[nn.Parameter] | None:
    """Matrices and biases by turns of a network that is linear layers, ReLU and at most tanh; None
    of any other.

    They are read from the modules' own dictionaries, which takes a tenth of the time that
    attributes take.
    """
    if (
        not _untouched(net, MLP)
        or net.norm != "none"
        or net.output_activation not in (None, torch.tanh)
    ):
        return None
    layers = net._modules["layers"]._modules.values()
    weights = [weight for layer in layers for weight in layer._parameters.values()]
    plain = all(_untouched(layer, nn.Linear) for layer in layers) and all(
        weight is not None for weight in weights
    )
    return weights if plain else None


def is_renormed(net: Any) -> bool:
    """Whether a network is linear layers, ReLU, renormalisation and at most tanh, and nothing
    else.
    """
    if (
        not _untouched(net, MLP)
        or net.norm != "renorm"
        or net.output_activation not in (None, torch.tanh)
    ):
        return False
    layers = all(_untouched(layer, nn.Linear) and layer.bias is not None for layer in net.layers)
    return layers and all(_untouched(norm, BatchRenorm) for norm in net.norms)


def _untouched(module: nn.Module, kind: type) -> bool:
    """Whether a module does what its class does: nobody has subclassed, parametrised, hooked or
    replaced it.
    """
    return type(module) is kind and not is_hooked(module) and "forward" not in vars(module)


def followed(net: nn.Module) -> Sequence[Tensor]:
    """All that a target network takes over: weights and the statistics of batch norm."""
    return plain_weights(net) or [*net.parameters(), *buffers_of(net)]
