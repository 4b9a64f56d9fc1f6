import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from td3_robot.networks import linear as module
from td3_robot.networks.linear import find_faster_linear, is_intel, linear
from td3_robot.networks.torch_internals import load_onednn_linear


@pytest.fixture(autouse=True)
def onednn_everywhere(monkeypatch):
    """Also where the processor is one on which MKL is faster."""
    monkeypatch.setattr(module, "find_faster_linear", load_onednn_linear)


def gradients(x, layer, relu, function):
    x = x.detach().clone().requires_grad_() if x.is_contiguous() else x.detach().requires_grad_()
    y = function(x, layer, relu)
    # not zero where the ReLU is
    weight = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)
    return y, *torch.autograd.grad((weight * y).sum(), (x, layer.weight, layer.bias))


def by_torch(x, layer, relu):
    y = F.linear(x, layer.weight, layer.bias)
    return F.relu(y) if relu else y


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(
    "rows, width, units", [(256, 256, 256), (512, 128, 64), (300, 23, 400), (4096, 40, 33)]
)
def test_outputs_and_gradients_are_those_of_float64(rows, width, units, relu):
    torch.manual_seed(rows + units)
    layer = nn.Linear(width, units)
    x = torch.randn(rows, width)
    found = gradients(x, layer, relu, linear)
    expected = gradients(x.double(), layer.double(), relu, by_torch)
    for ours, reference in zip(found, expected):
        assert ((ours - reference).abs().max() / reference.abs().max()).item() < 2e-6


@pytest.fixture
def precision():
    """Sets that of products, for one test."""
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


@pytest.mark.skipif(
    load_onednn_linear() is None or not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="there is nothing that would multiply in bfloat16",
)
def test_medium_products_are_in_bfloat16_where_the_processor_has_them(precision, monkeypatch):
    torch.manual_seed(0)
    layer = nn.Linear(512, 256)
    x = torch.randn(256, 512)
    exact = gradients(x.double(), copy.deepcopy(layer).double(), False, by_torch)
    rounded = F.linear(*(each.bfloat16().float() for each in (x, layer.weight, layer.bias)))
    for there, asked, lost in (
        (True, "medium", True),
        (True, "high", False),
        (False, "medium", False),
    ):
        precision(asked)
        monkeypatch.setattr(module, "has_fast_bfloat16", lambda there=there: there)
        found = gradients(x, layer, False, linear)
        errors = [((f - e).abs().max() / e.abs().max()).item() for f, e in zip(found, exact)]
        assert all(each.dtype == torch.float32 for each in found)
        if lost:  # operands of eight bits and sums of 24, rounded to eight again
            assert max(errors) < 1.5e-2 and all(error > 1e-4 for error in errors[:3])
            assert ((found[0] - rounded).abs() <= 2.0**-8 * rounded.abs() + 1e-5).all()
        elif not torch.cpu._is_amx_tile_supported():  # whose products oneDNN takes by itself
            assert max(errors) < 2e-6


@pytest.mark.skipif(
    load_onednn_linear() is None, reason="there is nothing that would multiply in bfloat16"
)
def test_products_of_narrow_layers_are_not_worth_the_casts(precision, monkeypatch):
    precision("medium")
    monkeypatch.setattr(module, "has_fast_bfloat16", lambda: True)
    torch.manual_seed(0)
    layer = nn.Linear(23, 512)
    x = torch.randn(512, 23)
    torch.testing.assert_close(
        linear(x, layer), F.linear(x, layer.weight, layer.bias), atol=1e-5, rtol=1e-5
    )


def test_large_layers_go_to_onednn():
    y = linear(torch.randn(256, 256), nn.Linear(256, 256), relu=True)
    assert (type(y.grad_fn).__name__ == "_LinearBackward") == (load_onednn_linear() is not None)


def test_columns_of_a_wider_tensor_cost_no_more(monkeypatch):
    seen = []
    if (entry := load_onednn_linear()) is not None:
        monkeypatch.setattr(
            module, "find_faster_linear", lambda: lambda *a: seen.extend(a[:2]) or entry(*a)
        )
    x = torch.randn(256, 600)[:, 5:305]
    gradients(x, nn.Linear(300, 256), True, linear)
    assert seen or entry is None
    # others: 300 times as long
    assert all(t.is_contiguous() or t.t().is_contiguous() for t in seen)


@pytest.mark.parametrize("x", [torch.randn(256), torch.randn(1, 256), torch.randn(4, 8, 256)])
def test_small_and_odd_shapes_are_torch_s_own(x):
    layer = nn.Linear(256, 256)
    assert torch.equal(linear(x, layer, True), F.relu(layer(x)))


def test_float64_stays_exact():
    layer = nn.Linear(256, 256).double()
    x = torch.randn(256, 256, dtype=torch.float64)
    assert torch.equal(linear(x, layer), layer(x))


def test_frozen_weights_get_no_gradient_and_pass_it_on():
    torch.manual_seed(0)
    layer = nn.Linear(256, 256).requires_grad_(False)
    x = torch.randn(256, 256, requires_grad=True)
    linear(x, layer, True).sum().backward()
    expected = torch.autograd.grad(F.relu(layer(x)).sum(), x)[0]
    assert layer.weight.grad is None and torch.allclose(x.grad, expected, atol=1e-5)


def test_second_derivatives_are_refused():
    x = torch.randn(256, 256, requires_grad=True)
    (grad,) = torch.autograd.grad(
        linear(x, nn.Linear(256, 256), True).square().sum(), x, create_graph=True
    )
    with pytest.raises(RuntimeError):
        grad.sum().backward()


@pytest.mark.parametrize(
    "instructions, name, is_faster",
    [
        ("AVX512", "AMD EPYC", True),
        ("AVX512", "Intel Xeon", False),  # MKL uses all of its maker's own processors
        ("AVX2", "AMD EPYC", False),
        ("AVX512", None, True),  # an older PyTorch knows no names
    ],
)
def test_only_processors_on_which_it_is_faster_multiply_by_onednn(
    monkeypatch, instructions, name, is_faster
):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    known = {} if name is None else {"cpu_name": name}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known)
    caches = (find_faster_linear, is_intel)
    for cached in caches:
        cached.cache_clear()
    try:
        assert find_faster_linear() is (load_onednn_linear() if is_faster else None)
    finally:
        for cached in caches:
            cached.cache_clear()


def refuses(*arguments):
    raise RuntimeError("another signature")


@pytest.mark.parametrize(
    "entry", [None, SimpleNamespace(default=refuses), SimpleNamespace(default=torch.zeros)]
)
def test_without_torch_s_undocumented_entry_layers_are_nn_linear_s(monkeypatch, entry):
    """Missing, with another signature or with another meaning: networks work, and nobody has to
    know.
    """
    operations = SimpleNamespace() if entry is None else SimpleNamespace(_linear_pointwise=entry)
    monkeypatch.setattr(torch.ops, "mkldnn", operations)
    load_onednn_linear.cache_clear()
    try:
        layer = nn.Linear(256, 256)
        x = torch.randn(256, 256)
        assert load_onednn_linear() is None
        assert torch.equal(linear(x, layer, True), F.relu(layer(x)))
    finally:
        load_onednn_linear.cache_clear()


def test_layers_without_bias_and_of_mixed_types_are_nn_linear_s():
    bare = nn.Linear(256, 256, bias=False)
    x = torch.randn(256, 256)
    assert torch.equal(linear(x, bare), bare(x))
    with pytest.raises(RuntimeError, match="dtype"):
        linear(x, nn.Linear(256, 256).double())


def test_gradients_of_narrow_layers_are_laid_out_as_their_weights():
    """The optimizer's fused step reads them in the order of memory."""
    torch.manual_seed(0)
    grad = torch.randn(300, 128)
    x = torch.randn(300, 20)
    found = module.matmul(grad.t(), x)
    assert found.is_contiguous()
    torch.testing.assert_close(found.double(), grad.double().t() @ x.double(), atol=1e-4, rtol=1e-5)
