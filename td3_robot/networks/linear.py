"""Linear layers by oneDNN, if it is faster: on a CPU they are the larger part of an update."""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from td3_robot.networks.torch_internals import load_onednn_linear

# multiplications; with fewer the cost of the call itself makes torch's own product the faster one
_SMALL = 1 << 19
_LARGE = 1 << 23  # from here on products in bfloat16 are worth two casts
# inputs of a first layer: torch's own product of few takes less, up to so many multiplications
_NARROW = 32
_NARROW_LIMIT = 1 << 21


@functools.cache
def find_faster_linear() -> Any:
    """Return oneDNN's entry on processors on which it beats torch's own product, else None."""
    has_avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return load_onednn_linear() if has_avx512 and not is_intel() else None


@functools.cache
def is_intel() -> bool:
    """Tell whether the CPU is Intel's, as far as this version of PyTorch knows its name."""
    return "Intel" in getattr(torch.cpu, "get_capabilities", dict)().get("cpu_name", "")


def linear(x: Tensor, layer: nn.Linear, relu: bool = False) -> Tensor:
    """Apply `layer`, and a ReLU if asked, to x: (B, in) -> (B, out).

    nn.Linear calls MKL, which on AMD processors does not use AVX-512 and has half the speed of
    oneDNN (Zen 5); with AVX2 MKL is the faster one (Zen 3: a whole update takes 0.77 of the time),
    and on Intel's own processors, too (a Xeon with AMX: 0.76). Both sum in another order, so
    results differ by rounding. nn.Linear is used for all else: other devices and types, small
    layers and batches, layers with hooks, such as those of torch.nn.utils.spectral_norm, and
    networks that are compiled or exported to a file for any machine.
    """
    if is_hooked(layer) or is_exporting() or layer.bias is None or not _is_suited(x, layer.weight):
        y = layer(x) if is_hooked(layer) else F.linear(x, layer.weight, layer.bias)
        return F.relu(y) if relu else y
    return (_Linear.apply if torch.is_grad_enabled() else affine)(x, layer.weight, layer.bias, relu)


def is_hooked(module: nn.Module) -> bool:
    """Tell whether a module has hooks, which only calling it runs."""
    hooks = module._forward_hooks or module._forward_pre_hooks
    return bool(hooks or module._backward_hooks or module._backward_pre_hooks)


def is_exporting() -> bool:
    """Tell whether a graph is being traced, in which sizes are symbols and must not be compared."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def affine(x: Tensor, weight: Tensor, bias: Tensor, relu: bool = False) -> Tensor:
    """Compute x W^T + b of x (B, in), rectified if asked: `linear` without autograd."""
    if _is_suited(x, weight) and not _is_narrow(x, weight):
        return _multiply(x.contiguous(), weight, bias, "relu" if relu else "none")
    y = F.linear(x, weight, bias)
    return y.relu_() if relu else y


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Compute a b, (M, K) times (K, N); slow unless both are contiguous or transposes of such.

    The gradient of a first layer's weights, where a is a transpose and N is small, takes oneDNN
    half the time as (b^T a^T)^T, with the same sums in the same order.
    """
    if not _is_suited(a, b.t()):
        return a @ b
    if b.shape[1] <= _NARROW and a.shape[0] >= 2 * _NARROW and not a.is_contiguous():
        return _multiply(b.t(), a, None, "none").t().contiguous()
    return _multiply(a, b.t(), None, "none")


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """Compute act(x W^T + b) by oneDNN, in bfloat16 if allowed by torch's "medium" precision."""
    entry = find_faster_linear()
    if (
        x.numel() * weight.shape[0] < _LARGE
        or torch.get_float32_matmul_precision() != "medium"
        or not has_fast_bfloat16()
    ):
        return entry(x, weight, bias, activation, [], "")
    operands = (each if each is None else each.bfloat16() for each in (x, weight, bias))
    return entry(*operands, activation, [], "").float()


@functools.cache
def has_fast_bfloat16() -> bool:
    """Tell whether the CPU has AVX-512's bfloat16 products but no AMX, which oneDNN uses itself."""
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx512_bf16")) and not capabilities.get("amx_bf16")


def _is_suited(x: Tensor, weight: Tensor) -> bool:
    """Tell whether oneDNN's entry can compute x W^T, and faster."""
    large = x.numel() * weight.shape[0] >= _SMALL and x.ndim == 2 and x.is_cpu
    is_float = x.dtype == weight.dtype == torch.float32
    return large and is_float and find_faster_linear() is not None


def _is_narrow(x: Tensor, weight: Tensor) -> bool:
    """Tell whether torch's own product is the faster one of a layer with few inputs.

    Its sums have the same order as oneDNN's, but in the lower precisions, which round operands.
    """
    small = x.shape[1] <= _NARROW and x.numel() * weight.shape[0] <= _NARROW_LIMIT
    return small and torch.get_float32_matmul_precision() == "highest"


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
