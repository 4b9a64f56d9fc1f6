"""Adam steps of several optimizers in one call: `Optimizer.step` costs as much again as the arithmetic."""

from collections.abc import Sequence

import torch


def adam_step(optimizers: Sequence[torch.optim.Adam]) -> None:
    """What `step()` of each optimizer would do with the gradients that are there, to the bit.

    Optimizers that are not fused, have taken no step yet or differ in their options take their own step.
    """
    groups = [optimizer.param_groups[0] for optimizer in optimizers]
    states = [optimizer.state[p] for optimizer, group in zip(optimizers, groups) for p in group["params"]]
    options = [{**group, "params": None} for group in groups]
    if not groups[0]["fused"] or not all(states) or any(other != options[0] for other in options):
        for optimizer in optimizers:
            optimizer.step()
        return
    weights = [p for group in groups for p in group["params"]]
    steps = [state["step"] for state in states]
    with torch.no_grad():
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
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
