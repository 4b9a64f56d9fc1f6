"""Weights of hidden units that are scaled back to a norm of 1, which normalised networks do not
see.
"""

import copy

import pytest
import torch

from td3_robot import MLP, TD3
from td3_robot.networks.mlp import train_mode
from td3_robot.networks.weight_norm import normalize_weights
from tests.td3_robot.td3.test_agent_options import batch_of


def norms_of(net: MLP) -> list[torch.Tensor]:
    """Of each unit's weights and bias together, layer by layer."""
    return [torch.cat((layer.weight, layer.bias[:, None]), 1).norm(dim=1) for layer in net.layers]


def unlike(norm: str) -> MLP:
    torch.manual_seed(0)
    net = MLP(5, 2, hidden=(16, 8), norm=norm).double()
    for layer in net.layers:
        layer.weight.data *= 1.0 + 30.0 * torch.rand(len(layer.weight), 1)
    return net


def test_by_hand():
    net = MLP(2, 1, hidden=(1,), norm="renorm")
    net.layers[0].weight.data = torch.tensor([[2.0, 3.0]])
    net.layers[0].bias.data = torch.tensor([6.0])
    last = copy.deepcopy(net.layers[1].state_dict())
    normalize_weights([net])
    torch.testing.assert_close(net.layers[0].weight.data, torch.tensor([[2.0, 3.0]]) / 7)
    torch.testing.assert_close(net.layers[0].bias.data, torch.tensor([6.0]) / 7)
    assert all(torch.equal(last[name], value) for name, value in net.layers[1].state_dict().items())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", ["renorm", "batch"])
def test_a_network_that_normalises_by_batch_is_the_same_afterwards(norm, training):
    """But for the epsilon of its norms, which weighs more, the smaller the weights come to be."""
    net = unlike(norm)
    x = torch.randn(64, 5, dtype=torch.float64)
    with train_mode(net):
        for _ in range(300):
            net(x)  # its running statistics are of these weights
        before = net.train(training)(x)
        normalize_weights([net])
        torch.testing.assert_close(net(x), before, atol=0.02, rtol=0.02)
    for found in norms_of(net)[:-1]:
        torch.testing.assert_close(found, torch.ones_like(found))


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_one_that_would_be_another_is_left_alone(norm):
    net = unlike(norm)
    before = copy.deepcopy(net.state_dict())
    normalize_weights([net])
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_networks_of_one_s_own():
    """Layers that learn nothing stay, layers may be without bias, and a unit of zeros stays one."""
    net = unlike("renorm")
    net.layers[0].requires_grad_(False)
    net.layers[1] = torch.nn.Linear(16, 8, bias=False, dtype=torch.float64)
    net.layers[1].weight.data[0] = 0.0
    still = net.layers[0].weight.clone()
    normalize_weights([torch.nn.Sequential(net)])
    assert torch.equal(net.layers[0].weight, still)
    torch.testing.assert_close(net.layers[1].weight.norm(dim=1)[1:], torch.ones(7).double())
    assert not net.layers[1].weight[0].any()


def test_a_policy_that_goes_on_with_it_acts_as_before(tmp_path):
    options = {
        "critic": "crossq",
        "norm": "renorm",
        "hidden": (8,),
        "policy_delay": 1,
        "init": "orthogonal",
    }
    agent = TD3(3, 2, **options, actor_lr=0.01)
    o = torch.randn(64, 3)
    for seed in range(300):
        agent.update(batch_of(seed=seed))
    agent.save(tmp_path / "run")
    on = TD3(3, 2, **options, weight_norm=True)
    on.load(tmp_path / "run")
    assert ((norms_of(agent.actor)[0] - 1).abs() > 0.1).any()  # type: ignore[arg-type]
    torch.testing.assert_close(norms_of(on.actor)[0], torch.ones(8))  # type: ignore[arg-type]
    torch.testing.assert_close(on.select_action(o), agent.select_action(o), atol=0.02, rtol=0.02)


@pytest.mark.parametrize("residual", [None, 0])
def test_an_agent_keeps_them_whatever_it_learns(residual):
    options = {
        "critic": "crossq",
        "norm": "renorm",
        "policy_delay": 1,
        "hidden": (8,),
        "residual_at": residual,
    }
    plain, agent = (
        TD3(3, 2, **options, weight_norm=on, critic_lr=0.1, actor_lr=0.1) for on in (False, True)
    )
    for seed in range(5):
        for each in (plain, agent):
            each.update(batch_of(seed=seed))
    for name in ("actor", "Q1", "Q2"):
        parts = (getattr(each, name).modules() for each in (agent, plain))
        found, free = (
            next(norms_of(each) for each in part if isinstance(each, MLP)) for part in parts
        )
        torch.testing.assert_close(found[0], torch.ones(8))
        assert all(((each - 1).abs() > 0.01).any() for each in (free[0], found[1]))
