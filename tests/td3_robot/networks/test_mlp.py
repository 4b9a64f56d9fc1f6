"""MLP: what it computes, and the bounds it keeps."""

import math

import pytest
import torch

from td3_robot import MLP
from td3_robot.config.td3 import BATCHED, INITS, NORMS
from td3_robot.errors import ConfigError
from td3_robot.networks.mlp import get_statistics, train_mode


def test_forward_is_what_a_hand_gets():
    net = MLP(2, 1, out_max=3.0, hidden=(2,))
    with torch.no_grad():
        net.layers[0].weight.copy_(torch.tensor([[1.0, 2.0], [-1.0, 0.0]]))
        net.layers[0].bias.copy_(torch.tensor([0.5, 0.0]))
        net.layers[1].weight.copy_(torch.tensor([[0.1, 10.0]]))
        net.layers[1].bias.copy_(torch.tensor([-0.25]))
    # hidden: relu(1 + 4 + 0.5) = 5.5 and relu(-1) = 0; output: 3 tanh(0.55 - 0.25)
    assert net(torch.tensor([[1.0, 2.0]])).item() == pytest.approx(3 * math.tanh(0.3), rel=1e-6)


@pytest.mark.parametrize("hidden", [(), (5,), (256, 256), (3, 4, 5)])
def test_shapes(hidden):
    assert MLP(4, 3, hidden=hidden)(torch.randn(6, 4)).shape == (6, 3)
    assert MLP(4, 3, hidden=hidden)(torch.randn(4)).shape == (3,)


def test_an_actor_reaches_but_never_passes_the_bound_of_each_joint():
    bound = torch.tensor([1.0, 0.1])
    net = MLP(3, 2, bound, hidden=(32,))
    actions = net(1e4 * torch.randn(1000, 3))
    assert (actions.abs() <= bound).all()
    torch.testing.assert_close(actions.abs().amax(0), bound)


def test_a_critic_has_no_bound():
    assert MLP(3, 1, output_activation=None)(1e6 * torch.randn(100, 3)).abs().max() > 100


def test_batched_equals_looped():
    net = MLP(5, 2)
    x = torch.randn(20, 5)
    torch.testing.assert_close(net(x), torch.stack([net(row) for row in x]))


def test_a_state_dict_carries_the_function_over():
    net = MLP(5, 2, 0.3)
    other = MLP(5, 2, 0.3)
    x = torch.randn(20, 5)
    assert not torch.equal(net(x), other(x))
    other.load_state_dict(net.state_dict())
    assert torch.equal(net(x), other(x))


# Options


def draw(seed=0, **options):
    torch.manual_seed(seed)
    return MLP(5, 3, hidden=(64, 32), **options)


def test_without_options_weights_are_those_of_plain_linear_layers():
    net = draw()
    torch.manual_seed(0)
    plain = [torch.nn.Linear(a, b) for a, b in ((5, 64), (64, 32), (32, 3))]
    state = {
        f"layers.{i}.{name}": value
        for i, layer in enumerate(plain)
        for name, value in layer.state_dict().items()
    }
    assert net.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("norm", NORMS)
def test_norms_change_neither_the_layers_nor_their_first_weights(norm):
    state = draw(norm=norm).state_dict()
    plain = draw().state_dict()
    assert all(torch.equal(state[name], value) for name, value in plain.items())


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("hidden", [(), (8,), (8, 4, 6)])
def test_norms_take_batches_and_single_observations_alike(norm, hidden):
    net = MLP(5, 3, hidden=hidden, norm=norm).eval()
    x = torch.randn(20, 5)
    torch.testing.assert_close(net(x), torch.stack([net(row) for row in x]))


def inputs_of_relu(net, x):
    """What each ReLU of the network gets, by hooks on the normalisations before them."""
    seen = []
    hooks = [
        norm.register_forward_hook(lambda module, given, output: seen.append(output))
        for norm in net.norms
    ]
    net(x)
    for hook in hooks:
        hook.remove()
    return seen


def test_layer_norm_has_every_observation_at_mean_0_and_variance_1():
    for hidden in inputs_of_relu(draw(norm="layer"), 7 + 5 * torch.randn(50, 5)):
        torch.testing.assert_close(hidden.mean(1), torch.zeros(50), atol=1e-5, rtol=0)
        torch.testing.assert_close(hidden.var(1, correction=0), torch.ones(50), atol=2e-2, rtol=0)


def test_batch_norm_has_every_unit_at_mean_0_and_variance_1_while_it_learns():
    net = draw(norm="batch").eval()
    with train_mode(net):
        seen = inputs_of_relu(net, 7 + 5 * torch.randn(500, 5))
    assert [hidden.shape[1] for hidden in seen] == [64, 32]
    for hidden in seen:
        torch.testing.assert_close(hidden.mean(0), torch.zeros(hidden.shape[1]), atol=1e-5, rtol=0)
        torch.testing.assert_close(
            hidden.var(0, correction=0), torch.ones(hidden.shape[1]), atol=2e-2, rtol=0
        )


@pytest.mark.parametrize("norm", BATCHED)
def test_batch_norm_is_a_network_of_single_observations_except_while_it_learns(norm):
    net = draw(norm=norm).eval()
    x = torch.randn(20, 5)
    other = torch.cat((x[:1], 100 * torch.randn(19, 5)))
    torch.testing.assert_close(net(x)[0], net(other)[0])
    with train_mode(net):
        assert not torch.allclose(net(x)[0], net(other)[0])
    assert not net.training and not any(module.training for module in net.modules())


@pytest.mark.parametrize("norm", BATCHED)
def test_running_statistics_move_only_while_the_network_learns(norm):
    net = draw(norm=norm).eval()
    x = 3 + torch.randn(200, 5)
    before = [buffer.clone() for buffer in get_statistics(net)]
    net(x)
    assert all(map(torch.equal, before, get_statistics(net)))
    with train_mode(net):
        net(x)
    assert not any(map(torch.equal, before, get_statistics(net)))


def test_learning_ends_with_an_error_too_and_leaves_other_networks_alone():
    net = draw(norm="batch").eval()
    plain = draw(norm="layer")
    with pytest.raises(ZeroDivisionError), train_mode(net, plain):
        assert net.training and plain.training
        raise ZeroDivisionError
    assert not net.training and plain.training


@pytest.mark.parametrize("norm", BATCHED)
def test_a_target_that_takes_weights_and_running_statistics_is_the_same_function(norm):
    net = draw(norm=norm).eval()
    target = draw(seed=1, norm=norm).eval()
    x = torch.randn(50, 5)
    with train_mode(net):
        net(x)
    with torch.no_grad():
        for mine, theirs in zip(
            (*target.parameters(), *get_statistics(target)),
            (*net.parameters(), *get_statistics(net)),
        ):
            mine.copy_(theirs)
    assert torch.equal(net(x), target(x))


def test_only_norms_of_batches_have_running_statistics():
    # renorm: of the input, too
    assert [len(get_statistics(draw(norm=norm))) for norm in NORMS] == [0, 0, 4, 6]
    assert all(
        buffer.is_floating_point() for norm in BATCHED for buffer in get_statistics(draw(norm=norm))
    )


def test_a_network_of_one_s_own_has_the_running_statistics_of_all_its_layers():
    # 5 -> 4 is never run
    own = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), draw(norm="batch"))
    assert [buffer.numel() for buffer in get_statistics(own)] == [4, 4, 1, 64, 64, 32, 32]


def test_orthogonal_layers_keep_lengths_up_to_their_gain():
    net = draw(init="orthogonal")
    for layer, gain in zip(net.layers, (2**0.5, 2**0.5, 1.0)):
        rows, columns = layer.weight.shape
        product = (
            layer.weight @ layer.weight.T if rows <= columns else layer.weight.T @ layer.weight
        )
        torch.testing.assert_close(
            product, gain**2 * torch.eye(min(rows, columns)), atol=1e-5, rtol=0
        )
        assert (layer.bias == 0).all()


@pytest.mark.parametrize("init", INITS)
def test_a_small_final_layer_and_no_other(init):
    bounded = draw(init=init, final_bound=3e-3)
    plain = draw(init=init)
    for name, value in bounded.state_dict().items():
        if name.startswith("layers.2."):
            assert (
                value.abs().max() <= 3e-3 < 20 * value.abs().max()
                and value.unique().numel() == value.numel()
            )
        else:
            assert torch.equal(value, plain.state_dict()[name])
    assert (
        2.5e-3 < bounded.layers[2].weight.abs().max() and bounded.layers[2].weight.min() < -2.5e-3
    )


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"norm": "bach"},
            "norm must be one of none, layer, batch, renorm, got 'bach'; did you mean 'batch'?",
        ),
        ({"init": "zero"}, "init must be one of default, orthogonal, got 'zero'"),
        ({"final_bound": -1.0}, "final_bound must be in [0, 1e+38], got -1.0"),
        ({"final_bound": math.nan}, "final_bound must be in [0, 1e+38], got nan"),
    ],
)
def test_a_wrong_option_is_named(options, message):
    with pytest.raises(ConfigError) as raised:
        MLP(2, 1, **options)
    assert str(raised.value) == message
