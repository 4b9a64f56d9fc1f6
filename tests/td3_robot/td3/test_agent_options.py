"""The options of TD3, each by the law that it follows; without them the agent is the paper's
(test_agent_reference).
"""

from pathlib import Path

import pytest
import torch

from td3_robot import TD3, Batch
from td3_robot.cli.arguments import load_config
from td3_robot.config.run import Config
from td3_robot.config.td3 import BATCHED, NORMS
from td3_robot.errors import CheckpointError, ConfigError

ROOT = Path(__file__).resolve().parents[3]
NETWORKS = ("actor", "Q1", "Q2")
TARGETS = ("actor_target", "Q1_target", "Q2_target")


def batch_of(count: int = 32, seed: int = 0, weight: bool = False) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    done = (draw(count, 1) > 0.5).float()
    batch = Batch(draw(count, 3), draw(count, 2).clamp(-1, 1), draw(count, 1), draw(count, 3), done)
    return batch._replace(weight=draw(count, 1).abs()) if weight else batch


def weights(agent: TD3, *names: str) -> list[torch.Tensor]:
    return [value.clone() for name in names for value in getattr(agent, name).state_dict().values()]


def equal(left: list[torch.Tensor], right: list[torch.Tensor]) -> list[bool]:
    return [torch.equal(a, b) for a, b in zip(left, right, strict=True)]


# DDPG and what lies between


def test_the_ddpg_preset_updates_as_ddpg_does():
    """Three updates against plain autograd: one critic, target r + gamma (1 - d) Q'(s', pi'(s')),
    all every step.
    """
    options = load_config(ROOT / "configs/ddpg.yaml").td3
    agent = TD3(3, 2, hidden=(16,), gamma=0.9, tau=0.1, twin_critics=options.twin_critics, seed=1,
                policy_delay=options.policy_delay, policy_noise=options.policy_noise)  # fmt: skip
    twin = TD3(3, 2, hidden=(16,), seed=1)
    untouched = weights(agent, "Q2", "Q2_target")
    generator = agent.generator.get_state()
    critic_adam = torch.optim.Adam(twin.Q1.parameters(), 3e-4)
    actor_adam = torch.optim.Adam(twin.actor.parameters(), 3e-4)
    for step in range(3):
        s, a, r, s2, d, *_ = batch = batch_of(seed=step)
        metrics = agent.update(batch)
        assert metrics.keys() == {"Q1_loss", "Q1", "actor_loss"}
        with torch.no_grad():
            y = r + 0.9 * (1 - d) * twin.Q1_target(torch.cat((s2, twin.actor_target(s2)), 1))
        critic_adam.zero_grad()
        (twin.Q1(torch.cat((s, a), 1)) - y).square().mean().backward()
        critic_adam.step()
        actor_adam.zero_grad()
        (-twin.Q1(torch.cat((s, twin.actor(s)), 1)).mean()).backward()
        actor_adam.step()
        with torch.no_grad():
            for net, target in ((twin.Q1, twin.Q1_target), (twin.actor, twin.actor_target)):
                for p, q in zip(net.parameters(), target.parameters()):
                    q += 0.1 * (p - q)
        for name in ("actor", "Q1", "actor_target", "Q1_target"):
            for mine, reference in zip(weights(agent, name), weights(twin, name)):
                torch.testing.assert_close(mine, reference, rtol=1e-5, atol=1e-7)
    assert all(equal(untouched, weights(agent, "Q2", "Q2_target")))
    assert torch.equal(generator, agent.generator.get_state())  # no smoothing draws no noise


@pytest.mark.parametrize(
    "name, twin, delay, smoothing",
    [
        ("ddpg", False, False, False),
        ("ablations/only_twin_critics", True, False, False),
        ("ablations/only_delay", False, True, False),
        ("ablations/only_smoothing", False, False, True),
        ("ablations/no_twin_critics", False, True, True),
        ("ablations/no_delay", True, False, True),
        ("ablations/no_smoothing", True, True, False),
    ],
)
def test_the_presets_between_ddpg_and_td3_have_the_ideas_in_their_names(
    name, twin, delay, smoothing
):
    td3 = load_config(ROOT / f"configs/{name}.yaml").td3
    assert (td3.twin_critics, td3.policy_delay > 1, td3.policy_noise > 0) == (
        twin,
        delay,
        smoothing,
    )


# The actor's loss


def test_the_actor_may_ascend_the_lower_critic():
    """With Q2 far below Q1 it goes where an agent goes whose only critic is that Q2."""
    lower = TD3(3, 2, hidden=(16,), actor_min_q=True, seed=2)
    plain = TD3(3, 2, hidden=(16,), seed=2)
    for agent in (lower, plain):
        with torch.no_grad():
            agent.Q2.layers[-1].bias -= 100.0
    plain.Q1.load_state_dict(plain.Q2.state_dict())
    state, action, *_ = batch_of()
    loss = [agent._update_actor(state, action) for agent in (lower, plain)]
    assert torch.equal(*loss) and all(equal(weights(lower, "actor"), weights(plain, "actor")))


def test_bounded_targets_are_of_every_update():
    """A critic that is far out of bounds learns their end; without bounds it stays where it was."""
    values = []
    for bounds in ({}, {"r_min": -1.0, "r_max": 0.0}):
        agent = TD3(3, 2, hidden=(8,), gamma=0.5, critic_lr=0.05, tau=0.01, seed=2, **bounds)
        for name in ("Q1", "Q2", "Q1_target", "Q2_target"):
            getattr(agent, name).layers[-1].bias.data.fill_(-40.0)
        batch = batch_of()._replace(reward=-torch.ones(32, 1), done=torch.zeros(32, 1))
        first = agent.update(batch)["Q1"].item()
        for _ in range(200):
            values.append(agent.update(batch)["Q1"].item())
    assert first < -35 and values[199] < -15 and abs(values[-1] + 2.0) < 0.1  # -1 / (1 - 0.5)


def test_an_action_penalty_keeps_actions_where_value_and_penalty_balance():
    """Q1 is made to be the first of two elements a: a - 2 (a^2 + b^2) / 2 is greatest at a = 0.5, b
    = 0.
    """
    agent = TD3(3, 2, hidden=(16,), action_l2=2.0, actor_lr=1e-2, seed=3)
    agent.Q1.forward = lambda x: x[:, 3:4]
    state = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    for _ in range(500):
        agent._update_actor(state, torch.zeros(64, 2))
    torch.testing.assert_close(
        agent.select_action(state), torch.tensor([[0.5, 0.0]]).expand(64, 2), atol=0.03, rtol=0
    )


def test_td3_bc_imitates_where_the_value_weighs_little_and_ascends_where_it_weighs_all():
    state, action, *_ = batch_of(64)
    imitator = TD3(3, 2, hidden=(64,), bc_alpha=1e-6, actor_lr=1e-2, seed=3)
    before = (imitator.select_action(state) - action).square().mean()
    for _ in range(300):
        imitator._update_actor(state, action)
    assert (imitator.select_action(state) - action).square().mean() < 0.2 * before
    greedy, plain = (TD3(3, 2, hidden=(16,), bc_alpha=alpha, seed=3) for alpha in (1e9, None))
    for agent in (greedy, plain):
        agent._update_actor(state, action)
    gradients = [
        torch.cat([p.grad.flatten() for p in agent.actor.parameters()]) for agent in (greedy, plain)
    ]
    assert torch.cosine_similarity(*gradients, dim=0) > 0.99999


# Gradients


def test_gradients_are_clipped_by_norm_each_network_by_itself():
    free, loose, tight = (
        TD3(3, 2, hidden=(16,), policy_delay=1, critic_grad_clip=clip, actor_grad_clip=clip, seed=4)
        for clip in (None, 1e6, 1e-3)
    )
    for agent in (free, loose, tight):
        agent.update(batch_of())
    assert all(equal(weights(free, *NETWORKS), weights(loose, *NETWORKS)))
    for name in NETWORKS:
        norm = torch.cat([p.grad.flatten() for p in getattr(tight, name).parameters()]).norm()
        assert norm == pytest.approx(1e-3, rel=1e-3)


# Normalisation


@pytest.mark.parametrize("norm", BATCHED)
def test_batch_statistics_belong_to_the_networks_own_step(norm):
    agent = TD3(3, 2, hidden=(16,), norm=norm, tau=0.25, seed=5)

    def statistics(name):
        return [b.clone() for b in getattr(agent, name).norms.buffers() if b.is_floating_point()]

    before = {name: statistics(name) for name in NETWORKS + TARGETS}
    agent.update(batch_of())  # the critics' step alone
    assert all(
        equal(before["actor"] + before["Q1_target"], statistics("actor") + statistics("Q1_target"))
    )
    assert not any(equal(before["Q1"] + before["Q2"], statistics("Q1") + statistics("Q2")))
    between = statistics("Q1")
    state, action, *_ = batch_of()
    # goes through Q1, whose statistics are of the replay's actions
    agent._update_actor(state, action)
    assert all(equal(between, statistics("Q1"))) and not any(
        equal(before["actor"], statistics("actor"))
    )
    agent._update_targets()
    for old, new, online in zip(before["Q1_target"], statistics("Q1_target"), statistics("Q1")):
        torch.testing.assert_close(new, 0.75 * old + 0.25 * online)
    o = torch.randn(5, 3)
    torch.testing.assert_close(
        agent.select_action(o), torch.stack([agent.select_action(row) for row in o])
    )


@pytest.mark.parametrize(
    "options",
    [*({"norm": norm} for norm in NORMS[1:]), {"init": "orthogonal", "final_bound": 3e-3}],
)
def test_every_network_is_shaped_alike_and_survives_a_round_trip(tmp_path, options):
    agent, other = (TD3(3, 2, hidden=(16, 8), seed=seed, **options) for seed in (6, 7))
    for step in range(4):
        agent.update(batch_of(seed=step))
    agent.save(tmp_path / "run")
    other.load(tmp_path / "run")
    assert all(equal(weights(agent, *NETWORKS, *TARGETS), weights(other, *NETWORKS, *TARGETS)))


def test_observations_are_normalised_for_every_network_and_the_statistics_are_kept(tmp_path):
    """Shifted and scaled observations give the same actions and the same update as plain ones."""
    plain = TD3(3, 2, hidden=(16,), policy_delay=1, seed=8)
    agent = TD3(3, 2, hidden=(16,), policy_delay=1, seed=8, normalize_observations=True)
    seen = 5.0 + 3.0 * torch.randn(10_000, 3)
    agent.observe(seen)
    plain.observe(seen)  # does nothing
    mean = seen.mean(0)
    deviation = seen.std(0, correction=0)
    batch = batch_of()
    raw = batch._replace(
        state=batch.state * deviation + mean, next_state=batch.next_state * deviation + mean
    )
    torch.testing.assert_close(
        agent.select_action(raw.state), plain.select_action(batch.state), rtol=1e-4, atol=1e-5
    )
    frozen = {name: value.clone() for name, value in agent.normalizer.state_dict().items()}
    agent.update(raw)
    plain.update(batch)
    for mine, other in zip(
        weights(agent, *NETWORKS, *TARGETS), weights(plain, *NETWORKS, *TARGETS)
    ):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)
    assert all(
        torch.equal(frozen[name], value) for name, value in agent.normalizer.state_dict().items()
    )

    agent.save(tmp_path / "run")
    loaded = TD3(3, 2, hidden=(16,), seed=9, normalize_observations=True)
    loaded.load(tmp_path / "run")
    assert torch.equal(loaded.select_action(raw.state), agent.select_action(raw.state))
    with pytest.raises(
        CheckpointError,
        match="it normalises observations: make the agent with normalize_observations",
    ):
        plain.load(tmp_path / "run")
    plain.save(tmp_path / "plain")
    with pytest.raises(CheckpointError, match="normalizer does not fit"):
        loaded.load(tmp_path / "plain")


# What a critic gives


def test_distributional_critics_learn_the_value():
    """One state, one action, a reward of 1 or -2 and no future: the mean comes to -0.5."""
    agent = TD3(1, 1, hidden=(32,), atoms=31, v_min=-5.0, v_max=5.0, critic_lr=1e-2, seed=10)
    ones = torch.ones(64, 1)
    reward = torch.where(torch.arange(64)[:, None] < 32, 1.0, -2.0)
    for _ in range(200):
        metrics = agent.update(Batch(ones, 0 * ones, reward, ones, ones))
    assert metrics["Q1"].item() == pytest.approx(-0.5, abs=0.05)
    probability = agent.Q1(torch.tensor([[1.0, 0.0]])).softmax(1)[0].detach()
    support = torch.linspace(-5, 5, 31)
    assert probability[(support - 1).abs() < 0.34].sum() == pytest.approx(0.5, abs=0.05)
    assert probability[(support + 2).abs() < 0.34].sum() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    "options", [{}, {"twin_critics": False}, {"atoms": 11, "v_min": -2.0, "v_max": 2.0}]
)
def test_priorities_come_with_importance_weights_alone(options):
    agent = TD3(3, 2, hidden=(16,), seed=11, **options)
    assert "td_error" not in agent.update(batch_of())
    error = agent.update(batch_of(weight=True))["td_error"]
    assert error.shape == (32,) and (error >= 0).all() and error.unique().numel() == 32


def test_the_td_error_is_the_mean_of_both_critics():
    agent = TD3(3, 2, hidden=(16,), gamma=0.0, seed=12)
    batch = batch_of(weight=True)
    x = torch.cat((batch.state, batch.action), 1)
    with torch.no_grad():
        expected = ((agent.Q1(x) - batch.reward).abs() + (agent.Q2(x) - batch.reward).abs())[
            :, 0
        ] / 2
    torch.testing.assert_close(agent.update(batch)["td_error"], expected)


def test_critics_disagree_by_the_distance_of_their_values_of_normalised_observations():
    """The critics are made to give x and 3 x - 2 of the first normalised coordinate x."""
    agent = TD3(3, 2, hidden=(16,), seed=13, normalize_observations=True)
    agent.observe(5.0 + 3.0 * torch.randn(1000, 3))
    o = 5.0 + 3.0 * torch.randn(7, 3)
    action = torch.rand(7, 2)
    first = agent.normalizer(o)[:, :1]
    agent.Q1.forward = lambda x: x[:, :1]
    agent.Q2.forward = lambda x: 3.0 * x[:, :1] - 2.0
    torch.testing.assert_close(
        agent.compute_disagreement(o, action), (2.0 * first - 2.0).abs()[:, 0]
    )


def test_distributional_critics_disagree_by_the_distance_of_their_means():
    agent = TD3(3, 2, hidden=(16,), seed=14, atoms=11, v_min=-2.0, v_max=2.0)
    o = torch.randn(7, 3)
    action = torch.rand(7, 2)
    x = torch.cat((o, action), 1)
    support = torch.linspace(-2.0, 2.0, 11)
    with torch.no_grad():
        means = [(Q(x).softmax(1) * support).sum(1) for Q in (agent.Q1, agent.Q2)]
    torch.testing.assert_close(agent.compute_disagreement(o, action), (means[0] - means[1]).abs())


# From Python, too, nothing wrong is taken


@pytest.mark.parametrize(
    "options, message",
    [
        ({"gamma": 2}, "gamma must be in"),
        ({"hidden": ()}, "hidden must name 1 to 64 layers"),
        ({"norm": "group"}, "norm must be one of"),
        ({"policy_delay": 2.5}, "policy_delay must be a whole number, got 2.5"),
        ({"twin_critics": False, "actor_min_q": True}, "actor_min_q needs two critics"),
        ({"atoms": 5}, "atoms must be 0, or 2 and more with v_min below v_max"),
        ({"hidden": 8.0}, "hidden must be a list, each a whole number, got 8.0"),
        ({"critic_hidden": None}, "critic_hidden must be in .*, got None"),
        ({"config": Config()}, "config must be a TD3Config, such as the td3 of a Config, got a C"),
        ({"config": {"gamma": 0.9}, "tau": 0.1}, "config must be a TD3Config, .*, got a dict"),
    ],
)
def test_the_constructor_refuses_what_the_command_line_does(options, message):
    with pytest.raises(ConfigError, match=message):
        TD3(3, 2, **options)
    with pytest.raises(TypeError, match="gama"):
        TD3(3, 2, gama=0.9)


def test_one_width_is_one_layer_as_on_the_command_line():
    assert TD3(3, 2, hidden=8).config == TD3(3, 2, hidden=(8,)).config
