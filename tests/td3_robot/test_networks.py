"""MLP: what it computes, and the bounds it keeps."""

import math

import pytest
import torch

from td3_robot import MLP


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
    net, x = MLP(5, 2), torch.randn(20, 5)
    torch.testing.assert_close(net(x), torch.stack([net(row) for row in x]))


def test_a_state_dict_carries_the_function_over():
    net, other, x = MLP(5, 2, 0.3), MLP(5, 2, 0.3), torch.randn(20, 5)
    assert not torch.equal(net(x), other(x))
    other.load_state_dict(net.state_dict())
    assert torch.equal(net(x), other(x))
