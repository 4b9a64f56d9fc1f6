"""Batch renormalisation by its formula, and critics that learn in one pass of both batches, without
targets.
"""

import copy
from typing import Any

import pytest
import torch

from td3_robot import MLP, TD3
from td3_robot.config.td3 import NORMS
from td3_robot.errors import ConfigError
from td3_robot.networks.batch_renorm import D_MAX, EPSILON, MOMENTUM, R_MAX, BatchRenorm
from tests.td3_robot.td3.test_agent_options import batch_of

OPTIONS: dict[str, Any] = {
    "critic": "crossq",
    "hidden": (8,),
    "critic_hidden": (16, 12),
    "gamma": 0.9,
    "policy_noise": 0.0,
}


def layer(mean: float, var: float, warm_up: int = 0) -> BatchRenorm:
    """One that has seen much of that mean and variance."""
    norm = BatchRenorm(1, warm_up).double()
    norm.running_mean.fill_(mean)
    norm.running_var.fill_(var - EPSILON)
    norm.weight.data.fill_(2.0)
    norm.bias.data.fill_(10.0)
    return norm


# The layer


def test_batch_renorm_by_hand():
    """x = 0, 4 has mean 2 and deviation 2. Running mean 1 and deviation 4 give r = 1/2 and d =
    1/4.
    """
    norm = layer(1.0, 16.0)
    y = norm(torch.tensor([[0.0], [4.0]]).double())[:, 0]
    scaled = [-2 / (4 + EPSILON) ** 0.5 * (4 + EPSILON) ** 0.5 / 4 + 0.25, 0.5 + 0.25]
    assert y.tolist() == pytest.approx([2 * s + 10 for s in scaled])
    assert norm.running_mean.item() == pytest.approx(1.0 + MOMENTUM * (2 - 1))
    assert norm.running_var.item() == pytest.approx(16 - EPSILON + MOMENTUM * (4 - 16 + EPSILON))
    assert norm.batches == 1


def test_within_its_bounds_training_gives_what_evaluation_does_and_beyond_them_it_does_not():
    x = torch.randn(64, 1, generator=torch.Generator().manual_seed(0)).double() * 2 + 3
    for mean, var, same in (
        (2.5, 3.0, True),
        (2.5, 100.0, False),
        (2.5, 0.02, False),
        (-20.0, 4.0, False),
    ):
        norm = layer(mean, var)
        expected = norm.eval()(x)
        assert torch.allclose(norm.train()(x), expected) == same
    unit = (x - x.mean()) / (x.var(correction=0) + EPSILON).sqrt()
    torch.testing.assert_close(
        layer(2.5, 100.0)(x), 2 * (unit / R_MAX + (x.mean() - 2.5) / 10.0) + 10
    )
    torch.testing.assert_close(
        layer(-20.0, 4.0)(x), 2 * (unit * (x.var(correction=0) + EPSILON).sqrt() / 2.0 + D_MAX) + 10
    )


def test_while_it_warms_up_it_is_batch_normalisation():
    norm = BatchRenorm(5, warm_up=3)
    plain = torch.nn.BatchNorm1d(5, eps=EPSILON)
    for _ in range(3):
        x = torch.randn(32, 5) * 7 + 4
        torch.testing.assert_close(norm(x), plain(x))
    assert not torch.allclose(norm(x), plain(x))


def test_running_statistics_come_to_those_of_the_data_and_stay_in_evaluation():
    norm = BatchRenorm(2).double()
    data = torch.randn(256, 2).double() * torch.tensor([3.0, 0.5]) + torch.tensor([-1.0, 20.0])
    for _ in range(1000):
        norm(data)
    torch.testing.assert_close(norm.running_mean, data.mean(0), atol=1e-2, rtol=0)
    torch.testing.assert_close(norm.running_var, data.var(0, correction=0), atol=1e-3, rtol=1e-3)
    before = copy.deepcopy(norm.state_dict())
    norm.eval()(data[:1])
    assert all(torch.equal(before[name], value) for name, value in norm.state_dict().items())


def test_gradients_pass_through_the_batch_but_not_through_the_correction():
    """Held against finite differences of the formula with r and d taken as the numbers that they
    are.
    """
    x = torch.tensor([-1.0, 0.5, 2.0, 3.0, -2.0, 1.0]).double()[:, None]
    s = (x.var(0, correction=0) + EPSILON).sqrt()
    r = s / 1.5
    d = (x.mean(0) - 0.2) / 1.5
    slope = torch.arange(6.0).double()[:, None]

    def loss(z):
        unit = (z - z.mean(0)) / (z.var(0, correction=0) + EPSILON).sqrt()
        return (slope * (2 * (unit * r + d) + 10)).sum()

    variable = x.clone().requires_grad_()
    (slope * layer(0.2, 2.25)(variable)).sum().backward()
    h = 1e-5 * torch.eye(6).double()
    numeric = torch.stack([(loss(x + e[:, None]) - loss(x - e[:, None])) / 2e-5 for e in h])
    assert variable.grad is not None
    torch.testing.assert_close(variable.grad[:, 0], numeric, atol=1e-6, rtol=1e-6)


# The networks


@pytest.mark.parametrize("mode", [True, False])
def test_a_renormalised_network_is_its_layers_in_a_row(mode):
    """Input and what each ReLU gives are renormalised, the output is not: as plain modules one
    after the other.
    """
    net = MLP(5, 2, 0.5, hidden=(8, 4), norm="renorm")
    for norm in net.norms:
        norm.weight.data.uniform_(0.5, 2.0)
        norm.bias.data.uniform_(-1.0, 1.0)
    (first, *norms) = copy.deepcopy(net.norms)
    relu = torch.nn.ReLU()
    hidden = [each for layer, norm in zip(net.layers, norms) for each in (layer, relu, norm)]
    plain = torch.nn.Sequential(first, *hidden, net.layers[-1], torch.nn.Tanh()).train(mode)
    for seed in range(3):  # each of which moves the statistics while it trains
        x = 3 + 2 * torch.randn(64, 5, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(net.train(mode)(x), 0.5 * plain(x))


def test_the_critics_are_renormalised_whatever_the_actor_is():
    for norm in NORMS:
        agent = TD3(3, 2, **OPTIONS, norm=norm)
        assert agent.actor.norm == norm and agent.Q1.norm == agent.Q2.norm == "renorm"
        assert [each.weight.numel() for each in agent.Q1.norms] == [5, 16, 12]


# The critics


def test_updates_are_those_of_the_paper():
    """Three critic updates against plain autograd: one pass of both batches, y from its second
    half, no target.
    """
    agent = TD3(3, 2, **OPTIONS, critic_lr=0.01, policy_delay=10, seed=1)
    nets = [copy.deepcopy(net) for net in (agent.Q1, agent.Q2)]
    adams = [torch.optim.Adam(net.parameters(), 0.01) for net in nets]
    for seed in range(3):
        batch = batch_of(seed=seed)
        agent.update(batch)
        following = torch.cat((batch.next_state, agent.actor(batch.next_state).detach()), 1)
        both = torch.cat((torch.cat((batch.state, batch.action), 1), following))
        outputs = [net.train()(both) for net in nets]
        q2 = torch.min(*(output[32:] for output in outputs)).detach()
        y = batch.reward + 0.9 * (1 - batch.done) * q2
        for output, adam in zip(outputs, adams):
            adam.zero_grad()
            (output[:32] - y).square().mean().backward()
            adam.step()
    for mine, net in zip((agent.Q1, agent.Q2), nets):
        for value, expected in zip(mine.state_dict().values(), net.state_dict().values()):
            torch.testing.assert_close(value, expected, atol=1e-5, rtol=1e-4)


def test_there_are_no_targets(tmp_path):
    agent = TD3(3, 2, **OPTIONS, policy_delay=1)
    assert (
        agent.Q1_target is agent.Q1
        and agent.Q2_target is agent.Q2
        and agent.actor_target is agent.actor
    )
    for seed in range(3):
        agent.update(batch_of(seed=seed))
    assert not any("target" in name for name in agent.state_dicts())
    agent.save(tmp_path / "run")
    again = TD3.from_checkpoint(tmp_path / "run")
    for name in ("Q1", "Q2", "actor"):
        mine, theirs = (getattr(each, name).state_dict() for each in (agent, again))
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    batch = batch_of(seed=9)
    for each in (agent, again):
        each.update(batch)
    assert torch.equal(agent.Q1(torch.ones(1, 5)), again.Q1(torch.ones(1, 5)))
    assert again.Q1_target is again.Q1


def test_each_update_counts_once_into_the_statistics_and_nothing_else_does():
    agent = TD3(3, 2, **OPTIONS, policy_delay=1)
    for seed in range(4):
        agent.update(batch_of(seed=seed))
        agent.compute_disagreement(torch.ones(5, 3), torch.ones(5, 2))
    assert agent.Q1.norms[0].batches == agent.Q2.norms[1].batches == 4 and not agent.Q1.training


def test_it_learns_a_value_and_takes_priorities_atoms_and_discounts():
    """The reward is 1 and every discount 0.5, so the value is 2 everywhere."""
    kinds: list[dict[str, Any]] = [
        {},
        {"atoms": 11, "v_min": -5.0, "v_max": 5.0},
        {"twin_critics": False},
    ]
    for more in kinds:
        agent = TD3(3, 2, **(OPTIONS | more), critic_lr=0.03)
        for seed in range(100):
            batch = batch_of(seed=seed, weight=True)
            ones = torch.ones(32, 1)
            metrics = agent.update(batch._replace(reward=ones, done=0 * ones, discount=0.5 * ones))
        assert abs(metrics["Q1"].item() - 2.0) < 0.2 and metrics["td_error"].shape == (32,)


def test_critics_may_be_wider_than_the_actor_either_way(tmp_path):
    for critic in ("targets", "crossq"):
        agent = TD3(3, 2, critic=critic, hidden=(8,), critic_hidden=[16, 12])
        weights = [tuple(w.shape) for w in agent.Q1.parameters() if w.ndim == 2]
        assert weights == [(16, 5), (12, 16), (1, 12)]
        assert [tuple(w.shape) for w in agent.actor.parameters() if w.ndim == 2] == [(8, 3), (2, 8)]
        agent.save(tmp_path / critic)
        assert TD3.from_checkpoint(tmp_path / critic).config.critic_layers == (16, 12)


def test_bad_options_are_refused():
    with pytest.raises(ConfigError, match="^critic must be one of targets, crossq, got 'cross'"):
        TD3(3, 2, critic="cross")
    with pytest.raises(ConfigError, match=r"^critic_hidden must name at most 64"):
        TD3(3, 2, critic_hidden=(4,) * 65)
