"""Linear layers by oneDNN, where that is faster: on a CPU they are the larger part of an update."""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_SMALL = (
    1 << 19
)  # multiplications; below, the cost of the call itself makes torch's own product the faster one
_LARGE = 1 << 23  # from here on products in bfloat16 are worth two casts


@functools.cache
def onednn() -> Any:
    """PyTorch's undocumented entry to oneDNN's `act(x W^T + b)`; None where it is not what it
    was.
    """
    x, weight, bias = torch.tensor([[3.0]]), torch.tensor([[2.0], [-2.0]]), torch.tensor([1.0, 1.0])
    try:
        entry = torch.ops.mkldnn._linear_pointwise.default
        return entry if entry(x, weight, bias, "relu", [], "").tolist() == [[7.0, 0.0]] else None
    except (AttributeError, TypeError, RuntimeError):
        return None


@functools.cache
def faster() -> Any:
    """oneDNN's entry, where the processor is one on which it is the faster one."""
    return onednn() if torch.backends.cpu.get_cpu_capability() == "AVX512" else None


def linear(x: Tensor, layer: nn.Linear, relu: bool = False) -> Tensor:
    """What `layer` makes of x, and a ReLU of that where asked for: (B, in) -> (B, out).

    nn.Linear calls MKL, which on AMD processors does not use AVX-512 and stays at half the speed of
    oneDNN (Zen 5); with AVX2 MKL is the faster one (Zen 3: a whole update takes 0.77 of the time).
    Both sum in another order, so results differ by rounding. All that oneDNN is not for takes
    nn.Linear's way: other devices and types, layers and batches that are small, layers with hooks,
    such as those of torch.nn.utils.spectral_norm, and networks that are compiled or exported, whose
    file is for any machine.
    """
    if is_hooked(layer) or exporting() or layer.bias is None or not _suits(x, layer.weight):
        y = layer(x) if is_hooked(layer) else F.linear(x, layer.weight, layer.bias)
        return F.relu(y) if relu else y
    return (_Linear.apply if torch.is_grad_enabled() else affine)(x, layer.weight, layer.bias, relu)


def is_hooked(module: nn.Module) -> bool:
    """Whether somebody has hung something on a module that its call has to run."""
    hooks = module._forward_hooks or module._forward_pre_hooks
    return bool(hooks or module._backward_hooks or module._backward_pre_hooks)


def exporting() -> bool:
    """Whether a graph is made of what is called, where a size is a symbol that no branch may
    ask.
    """
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def affine(x: Tensor, weight: Tensor, bias: Tensor, relu: bool = False) -> Tensor:
    """x W^T + b, rectified or not, of x (B, in): what `linear` does, for those who take gradients
    by hand.
    """
    if _suits(x, weight):
        return _product(x.contiguous(), weight, bias, "relu" if relu else "none")
    y = F.linear(x, weight, bias)
    return y.relu_() if relu else y


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a b, likewise: (M, K), (K, N) -> (M, N). Others than contiguous ones and their transposes are
    slow.
    """
    return _product(a, b.t(), None, "none") if _suits(a, b.t()) else a @ b


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """oneDNN's act(x W^T + b), in bfloat16 where torch.set_float32_matmul_precision("medium") asks
    for it.
    """
    entry, count = faster(), x.numel() * weight.shape[0]
    if (
        count < _LARGE
        or torch.get_float32_matmul_precision() != "medium"
        or not multiplies_in_bfloat16()
    ):
        return entry(x, weight, bias, activation, [], "")
    operands = (each if each is None else each.bfloat16() for each in (x, weight, bias))
    return entry(*operands, activation, [], "").float()


@functools.cache
def multiplies_in_bfloat16() -> bool:
    """Whether the processor has AVX-512's products of bfloat16 but no AMX, whose oneDNN goes to by
    itself.
    """
    told = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(told.get("avx512_bf16")) and not told.get("amx_bf16")


def _suits(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN's entry can do x W^T, and does it faster."""
    large = x.numel() * weight.shape[0] >= _SMALL and x.ndim == 2 and x.is_cpu
    return large and x.dtype == weight.dtype == torch.float32 and faster() is not None


class _Linear(torch.autograd.Function):
    """x W^T + b, rectified or not."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        x = x.contiguous()  # for `matmul`, later
        y = affine(x, weight, bias, relu)
        ctx.save_for_backward(x, weight, y if relu else None)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        grad = grad.contiguous()
        if y is not None:
            grad = torch.ops.aten.threshold_backward(grad, y, 0)  # 0 where the ReLU gave 0
        need_x, need_weight, need_bias, _ = ctx.needs_input_grad
        grad_x = matmul(grad, weight) if need_x else None
        grad_weight = matmul(grad.t(), x) if need_weight else None
        return grad_x, grad_weight, grad.sum(0) if need_bias else None, None
