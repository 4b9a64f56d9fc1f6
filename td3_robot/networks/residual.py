"""An actor that corrects a controller, whose action is among what it observes:

    pi(s) = clamp(s[column] + scale * a_max * tanh(net(s)), -a_max, a_max)

Silver, Allen, Tenenbaum & Kaelbling, "Residual Policy Learning", https://arxiv.org/abs/1812.06298;
Johannink et al., ICRA 2019, https://arxiv.org/abs/1812.03201. All but the actor deals with whole
actions.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from td3_robot.config.td3 import TD3Config
from td3_robot.errors import ConfigError, unknown
from td3_robot.networks.linear import exporting
from td3_robot.vec_env import VecEnv


class Layout(Protocol):
    """The columns of an observation by name, as an `envs.ArmEnv` has them."""

    def __getitem__(self, name: str) -> slice: ...

    def __iter__(self) -> Iterator[str]: ...


def placed(config: TD3Config, env: VecEnv) -> TD3Config:
    """The options with where the column that `residual` names begins, by the `layout` of the
    environment.

    Raises:
        ConfigError: the environment names no columns, not this one, not of an action's width, or it
            begins elsewhere.
    """
    name, layout = config.residual, getattr(env, "layout", None)
    if name is None:
        return config
    if layout is None:
        raise ConfigError(
            "td3.residual: this environment names no columns; say td3.residual_at, where its action begins"
        )
    widths = {each: layout[each].stop - layout[each].start for each in layout}
    choices = [each for each, width in widths.items() if width == env.a_dim]
    if name not in widths:
        raise unknown("td3.residual", name, choices)
    if name not in choices:
        fitting = f"; valid choices: {', '.join(choices)}"
        raise ConfigError(
            f"td3.residual {name!r} has {widths[name]} elements, an action has {env.a_dim}{fitting}"
        )
    begins = layout[name].start
    if config.residual_at not in (None, begins):
        raise ConfigError(
            f"td3.residual_at is {config.residual_at}, and {name!r} begins at {begins}: leave it out"
        )
    return dataclasses.replace(config, residual_at=begins)


class Residual(nn.Module):
    """A controller's action and a bounded correction of it. At first the correction is zero.

    Args:
        net: an MLP that gives actions; its last layer is made zero, unless `config.final_bound` has
            drawn it small.
        bound: () or (a_dim,) of the actions.
        config: where the controller's action begins in an observation (`residual_at`), and
            `residual_scale`.
        o_dim, a_dim: widths of an observation and of an action.

    Raises:
        ConfigError: there is no action in the observation there.
    """

    bound: Tensor

    def __init__(self, net: Any, bound: Tensor, config: TD3Config, o_dim: int, a_dim: int):
        super().__init__()
        at = config.residual_at
        if at is None or at + a_dim > o_dim:
            end = f"in [0, {o_dim - a_dim}], where an action begins in the observation"
            raise ConfigError(f"residual_at must be {end}, got {'null' if at is None else at}")
        if not config.final_bound:
            for parameter in net.layers[-1].parameters():
                nn.init.zeros_(parameter)
        self.net, self._column, self._scale = net, slice(at, at + a_dim), config.residual_scale
        self.register_buffer("bound", bound, persistent=False)

    def forward(self, o: Tensor) -> Tensor:
        """(B, o_dim) -> (B, a_dim), or (o_dim,) -> (a_dim,)."""
        action = o[..., self._column] + self._scale * self.net(o)
        if exporting() or not action.requires_grad:
            return action.clamp(-self.bound, self.bound)
        return _Clamped.apply(action, self.bound)


class _Clamped(torch.autograd.Function):
    """x clamped to plus and minus a bound; a gradient passes there too, unless descending it leads
    further out.

    What a controller saturates would else learn nothing. Between the zeroing and the inverting of
    gradients of Hausknecht & Stone, "Deep Reinforcement Learning in Parameterized Action Space",
    https://arxiv.org/abs/1511.04143.
    """

    @staticmethod
    def forward(ctx, x: Tensor, bound: Tensor) -> Tensor:
        ctx.save_for_backward(x, bound)
        return x.clamp(-bound, bound)

    @staticmethod
    @once_differentiable
    def backward(ctx, slope: Tensor) -> tuple[Tensor, None]:
        x, bound = ctx.saved_tensors
        outwards = ((x > bound) & (slope < 0)) | ((x < -bound) & (slope > 0))
        return slope.masked_fill(outwards, 0.0), None
