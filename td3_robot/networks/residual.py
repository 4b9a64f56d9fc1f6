"""An actor that corrects a controller, whose action is part of the observation:

    pi(s) = clamp(s[column] + scale * fade(s[column]) * a_max * tanh(net(s)), -a_max, a_max)

The fade is 1 while the controller moves fast. Where its fastest joint is slower than
`residual_fade` of a_max, the correction shrinks in proportion: a controller that has come to rest
stays at rest, and is as exact as it would be alone.

Silver, Allen, Tenenbaum & Kaelbling, "Residual Policy Learning", https://arxiv.org/abs/1812.06298;
Johannink et al., ICRA 2019, https://arxiv.org/abs/1812.03201. Critics, replay and environment see
the sum.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from td3_robot.config.td3 import TD3Config
from td3_robot.errors import ConfigError, unknown
from td3_robot.networks.linear import is_exporting
from td3_robot.vec_env import VecEnv


class Layout(Protocol):
    """The columns of an observation by name, for example of an `envs.ArmEnv`."""

    def __getitem__(self, name: str) -> slice: ...

    def __iter__(self) -> Iterator[str]: ...


def resolve_residual_column(config: TD3Config, env: VecEnv) -> TD3Config:
    """Return the options with `residual_at` set to the column that `residual` names.

    `residual_joints` is set to the environment's `joints`, where it has any.

    Raises:
        ConfigError: the environment has no `layout`, no such column, or one of another width than
            an action, or `residual_at` is another one already.
    """
    name = config.residual
    layout = getattr(env, "layout", None)
    if name is None:
        return config
    if layout is None:
        raise ConfigError(
            "td3.residual: this environment names no columns; set td3.residual_at to the column "
            "where the controller's action begins"
        )
    widths = {each: layout[each].stop - layout[each].start for each in layout}
    choices = [each for each, width in widths.items() if width == env.a_dim]
    if name not in widths:
        error = unknown("td3.residual", name, choices)
        raise ConfigError(f"{error}; options made for another task need its --task")
    if name not in choices:
        fitting = f"; valid choices: {', '.join(choices)}"
        raise ConfigError(
            f"td3.residual {name!r} has {widths[name]} elements, an action has {env.a_dim}{fitting}"
        )
    begins = layout[name].start
    if config.residual_at not in (None, begins):
        raise ConfigError(
            f"td3.residual_at is {config.residual_at}, but {name!r} begins at {begins}: "
            "leave td3.residual_at out"
        )
    joints = config.residual_joints or getattr(env, "joints", None)
    return dataclasses.replace(config, residual_at=begins, residual_joints=joints)


def describe_residual(config: TD3Config, trained: bool) -> list[str]:
    """Describe in a line, if the policy corrects a controller, what that means for its success.

    Args:
        trained: whether the actor has been updated, so that its success is its own.
    """
    if not config.is_residual:
        return []
    name = config.residual
    column = f"column {name!r}" if name else f"the columns from {config.residual_at} on"
    untrained = "" if trained else "; before it learns, the success is the controller's"
    return [
        f"the policy corrects a controller, whose action is {column} of the observation, by at "
        f"most {config.residual_scale:.0%} of full speed{untrained}"
    ]


class Residual(nn.Module):
    """The sum of a controller's action and a bounded correction, which is zero at first.

    Args:
        net: an MLP that computes actions; its last layer is set to zero, unless it is drawn by
            `config.final_bound`.
        bound: () or (a_dim,) of the actions.
        config: where the controller's action begins in an observation (`residual_at`),
            `residual_scale`, `residual_fade` and `residual_joints`.
        o_dim, a_dim: widths of an observation and of an action.

    Raises:
        ConfigError: the observation has no room for an action at that column.
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
        self.net = net
        self._column = slice(at, at + a_dim)
        self._scale = config.residual_scale
        self._fade = config.residual_fade
        self._joints = config.residual_joints
        self.register_buffer("bound", bound, persistent=False)

    def forward(self, o: Tensor) -> Tensor:
        """Map (B, o_dim) to (B, a_dim), or (o_dim,) to (a_dim,)."""
        controller = o[..., self._column]
        correction = self._scale * self.net(o)
        if self._fade:
            speed = (controller / self.bound).abs()[..., : self._joints].amax(-1, keepdim=True)
            correction = correction * (speed / self._fade).clamp_max(1.0)
        action = controller + correction
        if is_exporting() or not action.requires_grad:
            return action.clamp(-self.bound, self.bound)
        return _Clamped.apply(action, self.bound)


class _Clamped(torch.autograd.Function):
    """A clamp to [-bound, bound] with zero gradient only if descending it leads further out.

    A plain clamp would learn nothing where the controller saturates. This lies between zeroing and
    inverting gradients, Hausknecht & Stone, "Deep Reinforcement Learning in Parameterized Action
    Space", https://arxiv.org/abs/1511.04143.
    """

    @staticmethod
    def forward(ctx, x: Tensor, bound: Tensor) -> Tensor:
        ctx.save_for_backward(x, bound)
        return x.clamp(-bound, bound)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output: Tensor) -> tuple[Tensor, None]:
        x, bound = ctx.saved_tensors
        outwards = ((x > bound) & (grad_output < 0)) | ((x < -bound) & (grad_output > 0))
        return grad_output.masked_fill(outwards, 0.0), None
