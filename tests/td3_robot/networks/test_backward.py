"""Gradients by hand are those of autograd, and where a network is not what they are for,
autograd's.
"""

import copy
import functools

import pytest
import torch
from torch import nn

from td3_robot import MLP, TD3, Batch
from td3_robot.config.td3 import NORMS
from td3_robot.networks import backward as gradients
from td3_robot.networks import manual_backward as by_hand
from td3_robot.networks.backward import AutogradPass, forward, frozen_forward
from td3_robot.networks.manual_backward import ManualMLPPass, ManualRenormPass
from td3_robot.td3.value_heads import CategoricalValue, ScalarValue

ACTOR = dict(out_dim=3, out_max=torch.tensor([1.0, 0.25, 3.0]))
CRITIC = dict(out_dim=1, output_activation=None)
ATOMS = dict(out_dim=11, output_activation=None)
each_net = pytest.mark.parametrize(
    "options", [ACTOR, CRITIC, ATOMS], ids=["actor", "critic", "atoms"]
)
each_depth = pytest.mark.parametrize("hidden", [(), (8,), (16, 8, 4)], ids=str)


def net_of(options, hidden=(16, 8)) -> MLP:
    torch.manual_seed(0)
    return MLP(5, hidden=hidden, **options).double()


def batch_x(count=32):
    return torch.randn(count, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def gradients_of(net):
    return [weight.grad for weight in net.parameters()]


def assert_close(found, expected):
    """Within rounding of float64: of sums whose terms are as large as the largest element."""
    for one, other in zip(found, expected, strict=True):
        atol = 1e-12 * max(1.0, other.abs().max().item())
        torch.testing.assert_close(one, other, atol=atol, rtol=1e-9)


@each_net
@each_depth
def test_of_a_slope_of_the_output(options, hidden):
    net = net_of(options, hidden)
    x = batch_x()
    passed = forward(net, x)
    assert type(passed) is ManualMLPPass and torch.equal(passed.output, net(x))
    grad_output = torch.randn_like(passed.output)
    passed.backward(grad_output)
    assert_close(
        gradients_of(net), torch.autograd.grad(net(x), list(net.parameters()), grad_output)
    )


@each_net
@each_depth
def test_of_a_loss_that_uses_the_network_in_other_ways_too(options, hidden):
    """As a term of one's own may: here actions of neighbouring states are to be alike, and weights
    small.
    """
    net = net_of(options, hidden)
    x = batch_x()

    def loss_of(output):
        smooth = (output - net(x + 0.1)).square().mean()
        return output.mean() + smooth + next(net.parameters()).square().sum()

    passed = forward(net, x)
    passed.backward_from(loss_of(passed.output))
    assert_close(gradients_of(net), torch.autograd.grad(loss_of(net(x)), list(net.parameters())))


def test_of_a_loss_without_the_output():
    net = net_of(CRITIC)
    x = batch_x()
    forward(net, x).backward_from(net(2 * x).mean())
    assert_close(gradients_of(net), torch.autograd.grad(net(2 * x).mean(), list(net.parameters())))


@each_net
def test_columns_of_a_wider_batch_cost_no_more(options, monkeypatch):
    """oneDNN takes operands that are neither contiguous nor the transposes of what is a hundred
    times as long for.
    """
    seen = []
    matmul = by_hand.matmul
    monkeypatch.setattr(by_hand, "matmul", lambda a, b: seen.extend((a, b)) or matmul(a, b))
    net = net_of(options)
    x = torch.randn(32, 9, dtype=torch.float64)[:, 2:7].requires_grad_()
    passed = forward(net, x.detach())
    passed.backward(torch.ones_like(passed.output))
    frozen_forward(net, x).sum().backward()
    assert seen and all(each.is_contiguous() or each.t().is_contiguous() for each in seen)


@each_net
@each_depth
def test_held_still_it_passes_gradients_on_and_has_none(options, hidden):
    net = net_of(options, hidden)
    x = batch_x().requires_grad_()
    found = torch.autograd.grad(frozen_forward(net, x).square().sum(), x)
    assert_close(found, torch.autograd.grad(net(x).square().sum(), x))
    frozen_forward(net, x).sum().backward()
    assert all(gradient is None for gradient in gradients_of(net))


@pytest.mark.parametrize(
    "head", [ScalarValue(), CategoricalValue(-3.0, 3.0, 7)], ids=["scalar", "c51"]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_slope_of_a_critic_s_loss(head, weighted):
    torch.manual_seed(0)
    output = torch.randn(16, head.out_dim, dtype=torch.float64, requires_grad=True)
    # also of a sum that is not 1
    target = torch.randn(16, 1) if head.out_dim == 1 else torch.rand(16, head.out_dim)
    weight = torch.rand(16, 1, dtype=torch.float64) if weighted else None
    (expected,) = torch.autograd.grad(head.loss(output, target.double(), weight), output)
    torch.testing.assert_close(
        head.grad(output.detach(), target.double(), weight), expected, atol=1e-12, rtol=1e-9
    )


# Networks that are something else


class Doubled(MLP):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked(net):
    net.register_forward_hook(lambda module, given, output: 2 * output)


def layer_hooked(net):
    net.layers[0].register_forward_hook(lambda module, given, output: 2 * output)


def pre_hooked(net):
    net.register_forward_pre_hook(lambda module, given: (2 * given[0],))


def layer_pre_hooked(net):
    net.layers[1].register_forward_pre_hook(lambda module, given: (2 * given[0],))


def older_spectral_norm(net):
    nn.utils.spectral_norm(net.layers[0])  # works by a hook


def replaced(net):
    net.forward = lambda x: 2 * MLP.forward(net, x)


def parametrised(net):
    nn.utils.parametrizations.spectral_norm(net.layers[0]).eval()


def without_bias(net):
    net.layers[1] = nn.Linear(16, 8, bias=False, dtype=torch.float64)


def other_activation(net):
    net.output_activation = torch.sigmoid


@pytest.mark.parametrize(
    "change",
    [
        *(hooked, layer_hooked, pre_hooked, layer_pre_hooked, older_spectral_norm),
        *(replaced, parametrised, without_bias, other_activation, None),
    ],
    ids=lambda change: getattr(change, "__name__", "none"),
)
def test_what_was_changed_goes_by_autograd(change):
    net = net_of(ACTOR)
    x = batch_x()
    before = net(x)
    if change is None:
        net.__class__ = Doubled
    else:
        change(net)
    net.eval()
    passed = forward(net, x)
    passed.backward(torch.ones_like(passed.output))
    weights = list(net.parameters())
    assert type(passed) is AutogradPass and torch.equal(passed.output, net(x))
    assert not torch.allclose(passed.output, before)  # what was changed has its effect
    assert_close(gradients_of(net), torch.autograd.grad(net(x).sum(), weights))
    y = x.clone().requires_grad_()
    assert_close(
        torch.autograd.grad(frozen_forward(net, y).sum(), y), torch.autograd.grad(net(y).sum(), y)
    )


@pytest.mark.parametrize("norm", NORMS[1:])
def test_norms_go_by_autograd_but_for_renormalisation(norm):
    net = MLP(5, 3, hidden=(8,), norm=norm).double().eval()
    assert type(forward(net, batch_x())) is (ManualRenormPass if norm == "renorm" else AutogradPass)


# Networks that are renormalised


def renormed(options, hidden, warm_up=0) -> MLP:
    """One that has seen other batches, in the midst of its bounds and beyond them."""
    net = net_of({**options, "norm": "renorm"}, hidden)
    for norm in net.norms:
        norm.warm_up = warm_up
        norm.weight.data.uniform_(-2.0, 2.0)
        norm.bias.data.uniform_(-1.0, 1.0)
        norm.running_mean.uniform_(-8.0, 8.0)
        norm.running_var.uniform_(0.0, 8.0)
    return net.eval()


@each_net
@each_depth
@pytest.mark.parametrize("warm_up", [0, 10])
def test_a_renormalised_network_passes_as_by_autograd(options, hidden, warm_up):
    net = renormed(options, hidden, warm_up)
    x = 3.0 + 2.0 * batch_x()
    other = copy.deepcopy(net)
    for _ in range(2):  # the second with what the first left in the statistics
        passed = forward(net, x)
        expected = AutogradPass(other, x)
        assert type(passed) is ManualRenormPass and not net.training
        grad_output = torch.randn_like(expected.output)
        passed.backward(grad_output)
        expected.backward(grad_output)
        assert_close([passed.output, *gradients_of(net)], [expected.output, *gradients_of(other)])
        assert_close(net.buffers(), other.buffers())


@each_net
def test_a_renormalised_network_learns_from_a_loss_that_uses_it_in_other_ways(options):
    net = renormed(options, (16, 8))
    x = batch_x()
    other = copy.deepcopy(net)

    def loss_of(output, net):
        return (
            output.mean()
            + (output - net(x + 0.1)).square().mean()
            + net.norms[1].weight.square().sum()
        )

    passed = forward(net, x)
    expected = AutogradPass(other, x)
    passed.backward_from(loss_of(passed.output, net))
    expected.backward_from(loss_of(expected.output, other))
    assert_close(gradients_of(net), gradients_of(other))


@each_net
@each_depth
def test_a_renormalised_network_held_still(options, hidden):
    net = renormed(options, hidden)
    x = batch_x().requires_grad_()
    before = copy.deepcopy(net.state_dict())
    output = frozen_forward(net, x)
    found = torch.autograd.grad(output.square().sum(), x)
    assert_close([output, *found], [net(x), *torch.autograd.grad(net(x).square().sum(), x)])
    frozen_forward(net, x).sum().backward()
    assert all(gradient is None for gradient in gradients_of(net))
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_an_input_far_from_zero_keeps_its_digits():
    """Of 4,000 with a deviation of a sixteenth, in float32, a layer that took that over would keep
    two of seven.
    """
    # sums are exact
    x = 4000.0 + torch.randint(-3, 4, (32, 5), generator=torch.Generator().manual_seed(0)) / 32
    net = renormed(CRITIC, (16, 8)).float()
    net.norms[0].running_mean.fill_(4000.0)
    net.norms[0].running_var.fill_(2.0**-8)
    exact = copy.deepcopy(net).double()
    for found, expected in (
        (frozen_forward(net, x), exact(x.double())),
        (forward(net, x).output, AutogradPass(exact, x.double()).output),
    ):
        torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)


def hooked_norm(net):
    net.norms[1].register_forward_hook(lambda module, given, output: 2 * output)


def other_norm(net):
    net.norms[1] = nn.BatchNorm1d(16, dtype=torch.float64)


@pytest.mark.parametrize(
    "change",
    [hooked, layer_hooked, hooked_norm, other_norm, without_bias],
    ids=lambda change: change.__name__,
)
def test_a_renormalised_network_that_was_changed_goes_by_autograd(change):
    net = renormed(ACTOR, (16, 8))
    x = batch_x()
    change(net)
    assert type(forward(net.eval(), x)) is AutogradPass
    y = x.clone().requires_grad_()
    assert_close(
        torch.autograd.grad(frozen_forward(net, y).sum(), y), torch.autograd.grad(net(y).sum(), y)
    )


def test_a_layer_that_is_held_still_learns_nothing():
    net = net_of(CRITIC)
    x = batch_x()
    net.layers[0].requires_grad_(False)
    passed = forward(net, x)
    passed.backward(torch.ones_like(passed.output))
    assert net.layers[0].weight.grad is None and net.layers[1].weight.grad is not None


# The whole update

OPTIONS = (
    {},
    {"twin_critics": False, "policy_noise": 0.0, "policy_delay": 1},
    {"actor_min_q": True, "action_l2": 0.5},
    {"atoms": 11, "v_min": -2.0, "v_max": 2.0},
    {"bc_alpha": 2.5},
    {"bc_alpha": 2.5, "bc_filter": True, "actor_min_q": True},
    {"actor_grad_clip": 0.01, "critic_grad_clip": 0.1},
    {
        "normalize_observations": True,
        "hidden": (8, 8, 8),
        "init": "orthogonal",
        "final_bound": 0.01,
    },
    {
        "critic": "crossq",
        "norm": "renorm",
        "actor_min_q": True,
        "policy_delay": 2,
        "weight_norm": True,
    },
    {
        "critic": "crossq",
        "critic_hidden": (8, 8, 8),
        "actor_grad_clip": 0.01,
        "critic_grad_clip": 0.1,
    },
    {"norm": "renorm", "atoms": 11, "v_min": -2.0, "v_max": 2.0, "bc_alpha": 2.5},
)
NETWORKS = ("actor", "Q1", "Q2", "actor_target", "Q1_target", "Q2_target")


def transitions(seed: int, weighted: bool) -> Batch:
    draw = functools.partial(
        torch.randn, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    done = (draw(32, 1) > 1).double()
    weight = draw(32, 1).abs() if weighted else None
    return Batch(
        draw(32, 4), draw(32, 2).clamp(-1, 1), draw(32, 1), draw(32, 4), done, weight=weight
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_learns_what_it_learns_by_autograd(options, weighted, monkeypatch):
    by_hand = TD3(
        4,
        2,
        (1.0, 0.5),
        seed=2,
        **{"hidden": (16, 8), "actor_lr": 1e-3, "critic_lr": 1e-3} | options,
    )
    for name in NETWORKS:
        getattr(by_hand, name).double()
    by_hand.value.__dict__.update(
        {name: each.double() for name, each in vars(by_hand.value).items() if name == "support"}
    )
    by_autograd = copy.deepcopy(by_hand)
    by_autograd.generator.set_state(by_hand.generator.get_state())
    by_hand_metrics = [by_hand.update(transitions(seed, weighted)) for seed in range(6)]
    monkeypatch.setattr(gradients, "get_plain_weights", lambda net: None)
    monkeypatch.setattr(gradients, "is_renormed", lambda net: False)
    for seed, found in enumerate(by_hand_metrics):
        expected = by_autograd.update(transitions(seed, weighted))
        assert found.keys() == expected.keys()
        assert_close(found.values(), expected.values())
    for name in NETWORKS:
        assert_close(getattr(by_hand, name).parameters(), getattr(by_autograd, name).parameters())
