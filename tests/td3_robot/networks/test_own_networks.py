"""Networks and optimizers of one's own: an encoder, a critic that sees more than the actor, other
update rules.
"""

import copy
import functools

import pytest
import torch
from torch import nn

from td3_robot import MLP, TD3, Batch
from td3_robot.errors import CheckpointError, ConfigError
from td3_robot.networks.mlp import make_mlps

SEEN = 2  # columns of the observation that the blind actor sees


class Blind(MLP):
    def forward(self, o):
        return super().forward(o[:, :SEEN])


def asymmetric(o_dim, a_dim, a_max, values, config):
    _, Q1, Q2 = make_mlps(o_dim, a_dim, a_max, values, config)
    return Blind(SEEN, a_dim, a_max, hidden=config.hidden, norm=config.norm), Q1, Q2


class Encoded(nn.Module):
    """Two features of the first three columns, beside the rest."""

    def __init__(self, head: MLP):
        super().__init__()
        self.encoder = nn.Sequential(nn.LazyLinear(2), nn.ReLU())
        self.head = head

    def forward(self, x):
        return self.head(torch.cat((self.encoder(x[:, :3]), x[:, 3:]), 1))


def encoded(o_dim, a_dim, a_max, values, config):
    def critic():
        return Encoded(MLP(o_dim - 1 + a_dim, values, output_activation=None, hidden=config.hidden))

    return Encoded(MLP(o_dim - 1, a_dim, a_max, hidden=config.hidden)), critic(), critic()


def batch_of(seed: int = 0, count: int = 32) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    return Batch(
        draw(count, 4),
        draw(count, 2).clamp(-1, 1),
        draw(count, 1),
        draw(count, 4),
        torch.zeros(count, 1),
    )


def make(networks=make_mlps, seed=0, updates=0, **options) -> TD3:
    agent = TD3(
        4,
        2,
        (1.0, 0.5),
        networks=networks,
        seed=seed,
        **{"hidden": (16,), "policy_delay": 1} | options,
    )
    for step in range(updates):
        agent.update(batch_of(step))
    return agent


def tensors(agent: TD3) -> list[torch.Tensor]:
    """Every weight, running statistic and moment."""
    found = []
    waiting = list(agent.state_dicts().values())
    while waiting:
        item = waiting.pop()
        waiting += (
            item.values()
            if isinstance(item, dict)
            else item
            if isinstance(item, (list, tuple))
            else []
        )
        found += [item.clone()] if isinstance(item, torch.Tensor) else []
    return found


def same(left: TD3, right: TD3) -> bool:
    return all(map(torch.equal, tensors(left), tensors(right)))


# What they do


def test_a_blind_actor_s_actions_depend_on_what_it_sees_alone_while_critics_see_all():
    agent = make(asymmetric, updates=5)
    o = torch.randn(8, 4)
    other = torch.cat((o[:, :SEEN], torch.randn(8, 4 - SEEN)), 1)
    assert torch.equal(agent.select_action(o), agent.select_action(other))
    assert not torch.equal(
        agent.Q1(torch.cat((o, o[:, :2]), 1)), agent.Q1(torch.cat((other, o[:, :2]), 1))
    )
    torch.testing.assert_close(agent.select_action(o[0]), agent.select_action(o)[0])


def test_what_only_critics_see_still_teaches_the_actor():
    """The reward is 1 - (a - u)^2, u in {-0.5, 0.5} is in the hidden column: what is best on
    average is a = 0.
    """
    agent = make(asymmetric, gamma=0.0, actor_lr=3e-3, critic_lr=3e-3, hidden=(64,))
    for step in range(500):
        batch = batch_of(step, 256)
        u = torch.where(batch.state[:, 3:] > 0, 0.5, -0.5)
        action = batch.action * torch.tensor([1.0, 0.5])
        metrics = agent.update(
            batch._replace(action=action, reward=1 - (action[:, :1] - u).square())
        )
    # a critic that does not see u is left with the mean of (2 a u)^2, about 0.5
    assert metrics["Q1_loss"] < 0.05
    assert agent.select_action(batch_of(9).state)[:, 0].abs().mean() < 0.15


@pytest.mark.parametrize("networks", [make_mlps, asymmetric, encoded])
@pytest.mark.parametrize(
    "options", [{}, {"atoms": 5, "v_min": -1.0, "v_max": 1.0}, {"normalize_observations": True}]
)
def test_every_network_learns_and_targets_follow(networks, options):
    agent = make(networks, **options)
    before = copy.deepcopy(agent)
    agent.update(batch_of())
    for name in ("actor", "Q1", "Q2", "actor_target", "Q1_target", "Q2_target"):
        moved = [
            not torch.equal(*pair)
            for pair in zip(weights(agent, name), weights(before, name), strict=True)
        ]
        assert all(moved), name


def weights(agent: TD3, name: str) -> list[torch.Tensor]:
    return list(getattr(agent, name).parameters())


def test_the_same_networks_by_one_s_own_function_learn_the_same():
    def own(*arguments):
        return tuple(nn.Sequential(net) for net in make_mlps(*arguments))

    assert same(make(own, updates=4, norm="batch"), make(updates=4, norm="batch"))


def test_weights_that_are_held_still_stay_and_learn_nothing():
    def networks(*arguments):
        made = encoded(*arguments)
        for net in made:
            net(torch.zeros(1, 4 if net is made[0] else 6))
            net.encoder.requires_grad_(False)
        return made

    agent = make(networks)
    before = copy.deepcopy(agent)
    for step in range(3):
        agent.update(batch_of(step))
    for name in ("actor", "Q1", "Q2"):
        net = getattr(agent, name)
        old = getattr(before, name)
        assert (
            torch.equal(net.encoder[0].weight, old.encoder[0].weight)
            and not net.encoder[0].weight.requires_grad
        )
        assert not torch.equal(net.head.layers[0].weight, old.head.layers[0].weight)


def test_dropout_is_for_a_network_s_own_gradient_step_alone():
    def networks(*arguments):
        actor, *critics = make_mlps(*arguments)
        return actor, *(nn.Sequential(critic, nn.Dropout(0.5)) for critic in critics)

    agent = make(networks, updates=3)
    x = torch.randn(5, 6)
    assert torch.equal(agent.Q1(x), agent.Q1(x)) and not agent.Q1.training


# Optimizers

OPTIMIZERS = {
    "AdamW": functools.partial(torch.optim.AdamW, weight_decay=0.1),
    "amsgrad": functools.partial(torch.optim.Adam, amsgrad=True, fused=True),
    "fused AdamW": functools.partial(torch.optim.AdamW, fused=True),
    "SGD": functools.partial(torch.optim.SGD, momentum=0.9),
    "RMSprop": torch.optim.RMSprop,
}
each_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)


def test_an_optimizer_of_one_s_own_makes_the_steps():
    """SGD: what Q1 moves by is its gradient times the learning rate."""
    agent = make(optimizer=torch.optim.SGD, critic_lr=0.5)
    before = [weight.clone() for weight in weights(agent, "Q1")]
    agent.update(batch_of())
    for old, weight in zip(before, weights(agent, "Q1")):
        torch.testing.assert_close(weight, old - 0.5 * weight.grad)


@each_optimizer
def test_learning_rates_scale_from_those_that_were_given(optimizer):
    agent = make(optimizer=optimizer, actor_lr=1e-3, critic_lr=2e-3)
    for _ in range(2):
        agent.scale_learning_rates(0.5)
    rates = [
        group["lr"]
        for name in ("actor", "Q1")
        for group in getattr(agent, f"{name}_optimizer").param_groups
    ]
    assert rates == pytest.approx([5e-4, 1e-3])


def test_every_group_of_weights_keeps_its_own_rate():
    def slow_biases(weights, lr):
        groups = [{"params": weights[::2]}, {"params": weights[1::2], "lr": 0.1 * lr}]
        return torch.optim.Adam(groups, lr, fused=True)

    agent = make(optimizer=slow_biases, critic_lr=1e-3, updates=3)
    agent.scale_learning_rates(0.5)
    assert [group["lr"] for group in agent.Q2_optimizer.param_groups] == pytest.approx([5e-4, 5e-5])


# Checkpoints


@pytest.mark.parametrize("networks", [asymmetric, encoded])
def test_a_checkpoint_loads_into_an_agent_of_the_same_networks_and_learns_on_exactly(
    tmp_path, networks
):
    agent = make(networks, updates=3, policy_noise=0.0)
    other = make(networks, seed=1, policy_noise=0.0)
    agent.save(tmp_path / "run")
    other.load(tmp_path / "run")
    assert same(agent, TD3.from_checkpoint(tmp_path / "run", networks=networks))
    agent.update(batch_of(9))
    other.update(batch_of(9))
    assert same(agent, other)


@each_optimizer
def test_a_checkpoint_keeps_what_other_optimizers_remember(tmp_path, optimizer):
    agent, other = (make(optimizer=optimizer, seed=seed, policy_noise=0.0) for seed in (0, 1))
    agent.update(batch_of())
    agent.save(tmp_path / "run")
    other.load(tmp_path / "run")
    agent.update(batch_of(9))
    other.update(batch_of(9))
    assert same(agent, other)


@pytest.mark.parametrize(
    "saved, loaded, message",
    [
        (encoded, make_mlps, "'layers.0.weight' is missing; was it made with other networks"),
        (make_mlps, encoded, "'encoder.0.weight' is missing; was it made with other networks"),
        (asymmetric, make_mlps, "its layers are 2-16-2"),
    ],
)
def test_a_checkpoint_of_other_networks_is_refused_and_says_why(tmp_path, saved, loaded, message):
    make(saved, updates=1).save(tmp_path / "run")
    with pytest.raises(CheckpointError, match=message) as caught:
        make(loaded).load(tmp_path / "run")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path):
    make(optimizer=OPTIMIZERS["SGD"], updates=1).save(tmp_path / "run")
    with pytest.raises(CheckpointError, match="optimizer does not fit .*'step' is missing"):
        make().load(tmp_path / "run")


# What is no network


def shares_a_layer(*arguments):
    actor, Q1, Q2 = make_mlps(*arguments)
    Q2.layers[0] = Q1.layers[0]
    return actor, Q1, Q2


class Wordless(nn.Module):
    def forward(self, x):
        raise AssertionError


@pytest.mark.parametrize(
    "networks, message",
    [
        (
            lambda *a: (Wordless(), *make_mlps(*a)[1:]),
            r"actor does not take \(B, 4\): AssertionError",
        ),
        (lambda *_: None, "must give a tuple of three modules: the actor, Q1 and Q2"),
        (lambda *a: make_mlps(*a)[:2], "must give a tuple of three modules"),
        (lambda o, a, m, v, c: make_mlps(o + 1, a, m, v, c), r"actor does not take \(B, 4\)"),
        (
            lambda o, a, m, v, c: make_mlps(o, a + 1, 1.0, v, c),
            r"actor must give \(B, 2\) for \(B, 4\), gave \(2, 3\)",
        ),
        (
            lambda o, a, m, v, c: make_mlps(o, a, m, v + 1, c),
            r"Q1 must give \(B, 1\) for \(B, 6\), gave \(2, 2\)",
        ),
        (shares_a_layer, "must share no weights"),
    ],
)
def test_what_is_no_network_is_refused_by_name(networks, message):
    with pytest.raises(ConfigError, match=f"networks.*{message}") as caught:
        make(networks)
    assert "\n" not in str(caught.value)
