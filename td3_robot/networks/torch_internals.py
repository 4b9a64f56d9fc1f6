"""The three undocumented entries of PyTorch that are used, each checked before its first use."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.adam import adam as adam_function


@functools.cache
def load_fused_adam() -> Callable | None:
    """Return PyTorch's fused Adam step of many tensors, or None if it behaves unexpectedly."""
    values = [[1.0], [2.0], [0.0], [0.0], [1.0]]
    weight, grad, mean, square, steps = torch.tensor(values, dtype=torch.float32)
    rule: dict[str, Any] = {"lr": 0.5, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
    rule |= {"weight_decay": 0.0, "amsgrad": False, "maximize": False}
    try:
        torch._fused_adam_([weight], [grad], [mean], [square], [], [steps], **rule)
    except (AttributeError, TypeError, RuntimeError):
        return None
    is_expected = abs(weight.item() - 0.5) < 1e-6  # a first step is of length lr
    return torch._fused_adam_ if is_expected else None


@functools.cache
def load_onednn_linear() -> Any:
    """Return oneDNN's `act(x W^T + b)`, or None if it behaves unexpectedly."""
    x = torch.tensor([[3.0]], dtype=torch.float32)
    weight = torch.tensor([[2.0], [-2.0]], dtype=torch.float32)
    bias = torch.tensor([1.0, 1.0], dtype=torch.float32)
    try:
        entry = torch.ops.mkldnn._linear_pointwise.default
        return entry if entry(x, weight, bias, "relu", [], "").tolist() == [[7.0, 0.0]] else None
    except (AttributeError, TypeError, RuntimeError):
        return None


@functools.cache
def skip_compiler_import() -> None:
    """Keep PyTorch's compiler, whose import takes a second, out of making and stepping optimizers.

    PyTorch imports it with the first optimizer, to exclude a few functions of optimizers from
    compilation. Here these functions are marked as excluded already. A process that has imported
    the compiler before is left as it is.
    """
    if "torch._dynamo" in sys.modules:
        return
    for excluded in (
        Optimizer.add_param_group,
        Optimizer.state_dict,
        Optimizer.load_state_dict,
        adam_function,
    ):
        function = getattr(excluded, "__wrapped__", None)
        if function is not None:  # as a plain attribute the name would be mangled
            setattr(function, "__dynamo_disable", function)  # noqa: B010
