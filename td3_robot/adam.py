"""Adam steps of several optimizers in one call: `Optimizer.step` costs as much again as the arithmetic."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import Parameter
from torch.optim import Adam, Optimizer

MakeOptimizer = Callable[[list[Parameter], float], Optimizer]  # of one network's weights, and the learning rate

_ELSE = ("amsgrad", "differentiable", "capturable", "decoupled_weight_decay")  # Adam that is not the plain one


@functools.cache
def fused_adam() -> Callable | None:
    """PyTorch's undocumented entry to the fused Adam steps of many tensors; None where it is not what it was."""
    weight, grad, mean, square, steps = torch.tensor([[1.0], [2.0], [0.0], [0.0], [1.0]])
    options: dict[str, Any] = {"lr": 0.5, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
    try:
        torch._fused_adam_([weight], [grad], [mean], [square], [], [steps], **options, amsgrad=False, maximize=False)
    except (AttributeError, TypeError, RuntimeError):
        return None
    return torch._fused_adam_ if abs(weight.item() - 0.5) < 1e-6 else None  # a first step is of length lr


def adam(weights: list[Parameter], lr: float) -> Optimizer:
    """The optimizer of each network; any function of this signature may make others."""
    return Adam(weights, lr, fused=weights[0].device.type != "mps")


class JointStep:
    """What `step()` of each of some optimizers would do with the gradients that are there, to the bit, in one call.

    Optimizers of another kind than plain fused Adam, that have taken no step yet or that differ in their options take
    their own step.
    """

    def __init__(self):
        self._states: list[Any] = []  # those whose moments are the ones below
        self._weights: list[Parameter] = []

    def __call__(self, optimizers: Sequence[Optimizer]) -> None:
        """Take the step."""
        step, (rule, *others) = fused_adam(), list(map(_rule, optimizers))
        if step is not None and rule is not None and others == [rule] * len(others) and self._gathered(optimizers):
            with torch.no_grad():
                self._counts.add_(1)
                gradients = [weight.grad for weight in self._weights]
                step(self._weights, gradients, self._means, self._squares, [], self._steps, **rule)
        else:
            for optimizer in optimizers:
                optimizer.step()

    def _gathered(self, optimizers: Sequence[Optimizer]) -> bool:
        """Whether every weight has a gradient and moments, which then are at hand."""
        states = [optimizer.state for optimizer in optimizers]  # loading gives an optimizer another one
        if len(states) != len(self._states) or not all(map(operator.is_, states, self._states)):
            self._gather(optimizers, states)
        return bool(self._weights) and all(weight.grad is not None for weight in self._weights)

    def _gather(self, optimizers: Sequence[Optimizer], states: list[Any]) -> None:
        """List weights and moments, nothing where some weight has none yet; the steps become views of one tensor."""
        weights = [weight for optimizer in optimizers for weight in optimizer.param_groups[0]["params"]]
        known = {weight: state for each in states for weight, state in each.items()}
        self._states, self._weights = [], []
        if not all(known.get(weight) for weight in weights):
            return
        moments = [known[weight] for weight in weights]
        self._counts = torch.stack([moment["step"] for moment in moments])
        for moment, count in zip(moments, self._counts):
            moment["step"] = count
        names = ("step", "exp_avg", "exp_avg_sq")
        self._steps, self._means, self._squares = ([moment[name] for moment in moments] for name in names)
        self._states, self._weights = states, weights


def _rule(optimizer: Optimizer) -> dict[str, Any] | None:
    """What `fused_adam` asks of an optimizer; None where it does something else, as Adam's subclasses do."""
    group, *more = optimizer.param_groups
    if type(optimizer) is not Adam or more or not group["fused"] or any(map(group.get, _ELSE)):
        return None
    rule = {name: group[name] for name in ("lr", "eps", "weight_decay", "maximize", "amsgrad")}
    return {"beta1": group["betas"][0], "beta2": group["betas"][1], **rule}
