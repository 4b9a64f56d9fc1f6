"""Adam steps of several optimizers in one call: `Optimizer.step` costs as much again as the arithmetic."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch.nn import Parameter
from torch.optim import Adam, Optimizer

MakeOptimizer = Callable[[list[Parameter], float], Optimizer]  # of one network's weights, and the learning rate


@functools.cache
def fused_adam() -> Callable | None:
    """PyTorch's undocumented entry to the fused Adam steps of many tensors; None where it is not what it was."""
    weight, grad, mean, square, steps = torch.tensor([[1.0], [2.0], [0.0], [0.0], [1.0]])
    options = {"lr": 0.5, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
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
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    options = [{**group, "params": None} for group in groups]
    weights = [p for group in groups for p in group["params"] if p.grad is not None]
    known = {p: state for optimizer in optimizers for p, state in optimizer.state.items()}
    states = [known.get(p) for p in weights]
    alike = all(map(_is_plain, optimizers)) and all(other == options[0] for other in options)
    if not alike or not all(states) or fused_adam() is None:
        for optimizer in optimizers:
            optimizer.step()
        return
    steps = [state["step"] for state in states]
    with torch.no_grad():
        torch._foreach_add_(steps, 1)
        fused_adam()(
            weights,
            [p.grad for p in weights],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            lr=groups[0]["lr"],
            beta1=groups[0]["betas"][0],
            beta2=groups[0]["betas"][1],
            weight_decay=groups[0]["weight_decay"],
            eps=groups[0]["eps"],
            amsgrad=False,
            maximize=groups[0]["maximize"],
        )


def _is_plain(optimizer: Optimizer) -> bool:
    """Whether an optimizer does what `fused_adam` computes; AdamW and others are subclasses or say so in a group."""
    others = ("amsgrad", "differentiable", "capturable", "decoupled_weight_decay")
    return type(optimizer) is Adam and all(
        group["fused"] and not any(group.get(name) for name in others) for group in optimizer.param_groups
    )
