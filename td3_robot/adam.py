"""Adam steps of several optimizers in one call: `Optimizer.step` costs as much again as the arithmetic."""

import functools
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


def adam_step(optimizers: Sequence[Optimizer]) -> None:
    """What `step()` of each optimizer would do with the gradients that are there, to the bit.

    Optimizers of another kind than plain fused Adam, that have taken no step yet or that differ in their options
    take their own step.
    """
    step, rules = fused_adam(), list(map(_rule, optimizers))
    weights = [p for optimizer in optimizers for p in optimizer.param_groups[0]["params"] if p.grad is not None]
    known = {p: state for optimizer in optimizers for p, state in optimizer.state.items()}
    states = [known.get(p, {}) for p in weights]
    if step is None or rules[0] is None or any(rule != rules[0] for rule in rules) or not all(states):
        for optimizer in optimizers:
            optimizer.step()
        return
    steps, means, squares = ([state[name] for state in states] for name in ("step", "exp_avg", "exp_avg_sq"))
    with torch.no_grad():
        torch._foreach_add_(steps, 1)
        step(weights, [p.grad for p in weights], means, squares, [], steps, **rules[0])


def _rule(optimizer: Optimizer) -> dict[str, Any] | None:
    """What `fused_adam` asks of an optimizer; None where it does something else, as Adam's subclasses do."""
    group, *more = optimizer.param_groups
    if type(optimizer) is not Adam or more or not group["fused"] or any(map(group.get, _ELSE)):
        return None
    rule = {name: group[name] for name in ("lr", "eps", "weight_decay", "maximize", "amsgrad")}
    return {"beta1": group["betas"][0], "beta2": group["betas"][1], **rule}
