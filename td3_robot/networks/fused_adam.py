"""Adam steps of several optimizers in one call: `Optimizer.step` costs as much again as the
arithmetic.
"""

import functools
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Adam, Optimizer
from torch.optim.adam import adam as adam_function

MakeOptimizer = Callable[
    [list[Parameter], float], Optimizer
]  # of one network's weights, and the learning rate

_ELSE = (
    "amsgrad",
    "differentiable",
    "capturable",
    "decoupled_weight_decay",
)  # Adam that is not the plain one


@functools.cache
def fused_adam() -> Callable | None:
    """PyTorch's undocumented entry to the fused Adam steps of many tensors; None where it is not
    what it was.
    """
    weight, grad, mean, square, steps = torch.tensor([[1.0], [2.0], [0.0], [0.0], [1.0]])
    options: dict[str, Any] = {
        "lr": 0.5,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "weight_decay": 0.0,
    }
    try:
        torch._fused_adam_(
            [weight],
            [grad],
            [mean],
            [square],
            [],
            [steps],
            **options,
            amsgrad=False,
            maximize=False,
        )
    except (AttributeError, TypeError, RuntimeError):
        return None
    return (
        torch._fused_adam_ if abs(weight.item() - 0.5) < 1e-6 else None
    )  # a first step is of length lr


@functools.cache
def spare_compiler() -> None:
    """Let optimizers of this process be made and stepped without PyTorch's compiler, whose import
    takes a second.

    PyTorch imports it when an optimizer is first made, to keep it out of a few functions of the
    optimizer. Here those are marked as being done, where PyTorch's undocumented mark is what it
    was; whoever compiles an optimizer imports the compiler before, and everything is as it was.
    """
    if "torch._dynamo" in sys.modules:
        return
    for kept_out in (
        Optimizer.add_param_group,
        Optimizer.state_dict,
        Optimizer.load_state_dict,
        adam_function,
    ):
        function = getattr(kept_out, "__wrapped__", None)
        if function is not None:
            setattr(function, "__dynamo_disable", function)  # noqa: B010  # as a plain attribute its name is mangled


def adam(weights: list[Parameter], lr: float) -> Optimizer:
    """The optimizer of each network; any function of this signature may make others."""
    spare_compiler()
    return Adam(weights, lr, fused=weights[0].device.type != "mps")


class JointStep:
    """What `step()` of each of some optimizers would do with the gradients that are there, to the
    bit, in one call.

    Optimizers of another kind than plain fused Adam, or that differ in their options, take their
    own step.

    Attributes:
        rate: () float32, read in place of their learning rate, a number; None but where the step is
            recorded.
    """

    def __init__(self):
        self.rate: Tensor | None = None
        self._states: list[Any] = []  # those whose moments are the ones below
        self._weights: list[Parameter] = []

    def __call__(self, optimizers: Sequence[Optimizer]) -> None:
        """Take the step."""
        rule = joint_rule(optimizers)
        if rule is not None and self._gathered(optimizers):
            if self.rate is not None:
                rule["lr"] = self.rate
            with torch.no_grad():
                self._counts.add_(1)
                gradients = [weight.grad for weight in self._weights]
                step = cast(Callable, fused_adam())
                step(self._weights, gradients, self._means, self._squares, [], self._steps, **rule)
        else:
            for optimizer in optimizers:
                optimizer.step()

    def _gathered(self, optimizers: Sequence[Optimizer]) -> bool:
        """Whether every weight has a gradient; weights and moments then are at hand."""
        states = [
            optimizer.state for optimizer in optimizers
        ]  # loading gives an optimizer another one
        known = len(states) == len(self._states) and all(map(operator.is_, states, self._states))
        weights = (
            self._weights
            if known
            else [w for each in optimizers for w in each.param_groups[0]["params"]]
        )
        if any(weight.grad is None for weight in weights):
            return False
        if not known:
            self._gather(optimizers, weights)
            self._states = states
        return True

    def _gather(self, optimizers: Sequence[Optimizer], weights: list[Parameter]) -> None:
        """List weights and moments, zeros where there are none yet; the steps become views of one
        tensor.
        """
        moments = []
        for optimizer in optimizers:
            for weight in optimizer.param_groups[0]["params"]:
                if not optimizer.state[weight]:  # as Adam itself begins
                    optimizer.state[weight]["step"] = torch.zeros(
                        (), dtype=torch.float32, device=weight.device
                    )
                    optimizer.state[weight] |= {
                        name: torch.zeros_like(weight.detach())
                        for name in ("exp_avg", "exp_avg_sq")
                    }
                moments.append(optimizer.state[weight])
        self._counts = torch.stack([moment["step"] for moment in moments])
        for moment, count in zip(moments, self._counts):
            moment["step"] = count
        names = ("step", "exp_avg", "exp_avg_sq")
        self._steps, self._means, self._squares = (
            [moment[name] for moment in moments] for name in names
        )
        self._weights = weights


def joint_rule(optimizers: Sequence[Optimizer]) -> dict[str, Any] | None:
    """What `fused_adam` asks of all of these optimizers, `lr` among it; None where each has to take
    its own step.
    """
    rule, *others = map(_rule, optimizers)
    return rule if fused_adam() is not None and others == [rule] * len(others) else None


def _rule(optimizer: Optimizer) -> dict[str, Any] | None:
    """What `fused_adam` asks of an optimizer; None where it does something else, as Adam's
    subclasses do.
    """
    group, *more = optimizer.param_groups
    if type(optimizer) is not Adam or more or not group["fused"] or any(map(group.get, _ELSE)):
        return None
    rule = {name: group[name] for name in ("lr", "eps", "weight_decay", "maximize", "amsgrad")}
    return {"beta1": group["betas"][0], "beta2": group["betas"][1], **rule}
