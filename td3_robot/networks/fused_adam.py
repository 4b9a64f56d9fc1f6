"""Adam steps of several optimizers in one call: `Optimizer.step` doubles the time of each."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Adam, Optimizer

from td3_robot.networks.torch_internals import load_fused_adam, skip_compiler_import

# of one network's weights and the learning rate
MakeOptimizer = Callable[[list[Parameter], float], Optimizer]

# options of Adam that the joint step does not know
_UNSUPPORTED = ("amsgrad", "differentiable", "capturable", "decoupled_weight_decay")


def make_adam(weights: list[Parameter], lr: float) -> Optimizer:
    """Make the default optimizer of a network; `TD3(optimizer=...)` takes others like this."""
    skip_compiler_import()
    return Adam(weights, lr, fused=weights[0].device.type != "mps")


class JointStep:
    """The steps of several optimizers in one call, bit-exact with calling `step()` of each.

    Optimizers that are not plain fused Adam, or whose options differ, are stepped one by one.

    Attributes:
        rate: () float32 read instead of the learning rates while a step is captured; else None.
    """

    def __init__(self):
        self.rate: Tensor | None = None
        self._states: list[Any] = []  # those whose moments are the ones below
        self._weights: list[Parameter] = []

    def __call__(self, optimizers: Sequence[Optimizer]) -> None:
        """Take the step with the gradients at hand."""
        rule = find_joint_rule(optimizers)
        if rule is not None and self._prepare(optimizers):
            if self.rate is not None:
                rule["lr"] = self.rate
            with torch.no_grad():
                self._counts.add_(1)
                gradients = [weight.grad for weight in self._weights]
                step = cast(Callable, load_fused_adam())
                step(self._weights, gradients, self._means, self._squares, [], self._steps, **rule)
        else:
            for optimizer in optimizers:
                optimizer.step()

    def _prepare(self, optimizers: Sequence[Optimizer]) -> bool:
        """Gather weights and moments; return False if a weight has no gradient."""
        # loading a checkpoint gives an optimizer another state
        states = [optimizer.state for optimizer in optimizers]
        gathered = len(states) == len(self._states) and all(map(operator.is_, states, self._states))
        weights = self._weights
        if not gathered:
            weights = [w for optimizer in optimizers for w in optimizer.param_groups[0]["params"]]
        if any(weight.grad is None for weight in weights):
            return False
        if not gathered:
            self._gather(optimizers, weights)
            self._states = states
        return True

    def _gather(self, optimizers: Sequence[Optimizer], weights: list[Parameter]) -> None:
        """List weights and moments, zeros at first; the step counts become views of one tensor."""
        moments = []
        for optimizer in optimizers:
            for weight in optimizer.param_groups[0]["params"]:
                state = optimizer.state[weight]
                if not state:  # as Adam itself begins
                    state["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
                    for name in ("exp_avg", "exp_avg_sq"):
                        state[name] = torch.zeros_like(weight.detach())
                moments.append(state)
        self._counts = torch.stack([moment["step"] for moment in moments])
        for moment, count in zip(moments, self._counts):
            moment["step"] = count
        self._steps = [moment["step"] for moment in moments]
        self._means = [moment["exp_avg"] for moment in moments]
        self._squares = [moment["exp_avg_sq"] for moment in moments]
        self._weights = weights


def find_joint_rule(optimizers: Sequence[Optimizer]) -> dict[str, Any] | None:
    """Return the arguments of the fused Adam step, `lr` included, or None if it cannot be used."""
    rule, *others = map(_get_rule, optimizers)
    return rule if load_fused_adam() is not None and others == [rule] * len(others) else None


def _get_rule(optimizer: Optimizer) -> dict[str, Any] | None:
    """Return one optimizer's arguments, or None if it is not plain fused Adam (or a subclass)."""
    group, *more = optimizer.param_groups
    if type(optimizer) is not Adam or more or not group["fused"]:
        return None
    if any(map(group.get, _UNSUPPORTED)):
        return None
    rule = {name: group[name] for name in ("lr", "eps", "weight_decay", "maximize", "amsgrad")}
    return {"beta1": group["betas"][0], "beta2": group["betas"][1], **rule}
