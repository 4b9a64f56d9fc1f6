"""TD3: who may change whom, what the target is made of, acting, and keeping."""

import copy

import numpy as np
import pytest
import torch

from td3_robot import TD3, Batch, checkpoint
from td3_robot.errors import CheckpointError, ConfigError

NETWORKS = ("actor", "Q1", "Q2")
TARGETS = ("actor_target", "Q1_target", "Q2_target")
A_MAX = (1.0, 0.1)


def batch_of(count: int, o_dim: int = 3, a_dim: int = 2, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    done = (torch.rand(count, 1, generator=generator) < 0.3).float()
    action = draw(count, a_dim).clamp(-1, 1) * torch.tensor(A_MAX[:a_dim])
    return Batch(draw(count, o_dim), action, draw(count, 1), draw(count, o_dim), done)


def snapshot(agent: TD3, *names: str) -> list[torch.Tensor]:
    return [p.detach().clone() for name in names for p in getattr(agent, name).parameters()]


def gradients(agent: TD3, *names: str) -> list[torch.Tensor | None]:
    return [copy.deepcopy(p.grad) for name in names for p in getattr(agent, name).parameters()]


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(torch.equal(a, b) for a, b in zip(left, right))


def none_same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) and not any(torch.equal(a, b) for a, b in zip(left, right))


def flat(state: object) -> list:
    """The leaves of nested state dicts, to compare them."""
    if isinstance(state, dict):
        return [leaf for key in state for leaf in (str(key), *flat(state[key]))]
    if isinstance(state, (list, tuple)):
        return [leaf for item in state for leaf in flat(item)]
    return [state.tolist() if isinstance(state, torch.Tensor) else state]


def test_metrics_are_the_losses_and_the_mean_value():
    agent = TD3(3, 2, A_MAX, hidden=(16,), gamma=0.0, policy_delay=1, seed=0)
    batch = batch_of(32)
    with torch.no_grad():
        q1, q2 = (net(torch.cat((batch.state, batch.action), 1)) for net in (agent.Q1, agent.Q2))
    metrics = agent.update(batch)  # without a future the target is the reward
    assert set(metrics) == {"Q1_loss", "Q2_loss", "Q1", "actor_loss"}
    torch.testing.assert_close(metrics["Q1_loss"], (q1 - batch.reward).square().mean())
    torch.testing.assert_close(metrics["Q2_loss"], (q2 - batch.reward).square().mean())
    torch.testing.assert_close(metrics["Q1"], q1.mean())
    assert all(value.shape == () and not value.requires_grad for value in metrics.values())


# Who may change whom


def test_polyak_step_is_what_a_hand_gets():
    agent = TD3(3, 2, hidden=(4,), actor_lr=1e-30, critic_lr=1e-30, tau=0.25, policy_delay=1)
    with torch.no_grad():
        for names, value in ((NETWORKS, 2.0), (TARGETS, 1.0)):
            for name in names:
                for p in getattr(agent, name).parameters():
                    p.fill_(value)
    for expected in (1.25, 1.4375):  # 0.25 * 2 + 0.75 * 1;  0.25 * 2 + 0.75 * 1.25
        agent.update(batch_of(8))
        assert all((p == expected).all() for p in snapshot(agent, *TARGETS))
        assert all((p == 2.0).all() for p in snapshot(agent, *NETWORKS))


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_actor_and_targets_move_on_every_delayed_update_only(delay):
    agent = TD3(3, 2, hidden=(16,), policy_delay=delay, actor_lr=1e-2, critic_lr=1e-2)
    for step in range(1, 3 * delay + 1):
        held = snapshot(agent, "actor", *TARGETS)
        critics = snapshot(agent, "Q1", "Q2")
        agent.update(batch_of(64, seed=step))
        assert none_same(critics, snapshot(agent, "Q1", "Q2"))
        compare = none_same if step % delay == 0 else same
        assert compare(held, snapshot(agent, "actor", *TARGETS))


def test_until_the_burn_in_is_over_critics_and_targets_learn_alone():
    agent = TD3(3, 2, hidden=(16,), policy_delay=2, burn_in=5, actor_lr=1e-2, critic_lr=1e-2)
    for step in range(1, 9):
        actor = snapshot(agent, "actor")
        targets = snapshot(agent, "Q1_target", "Q2_target")
        metrics = agent.update(batch_of(64, seed=step))
        assert (
            same(actor, snapshot(agent, "actor"))
            == (step not in (6, 8))
            == ("actor_loss" not in metrics)
        )
        assert same(targets, snapshot(agent, "Q1_target", "Q2_target")) == (step % 2 == 1)
        assert agent.actor_trained == (step >= 6)


def test_the_critic_update_leaves_the_actor_alone():
    agent = TD3(3, 2, hidden=(16,), policy_delay=10)
    before = snapshot(agent, "actor")
    agent.update(batch_of(64))
    assert same(before, snapshot(agent, "actor"))
    assert gradients(agent, "actor") == [None] * 4
    assert not agent.actor_optimizer.state


def test_the_actor_update_leaves_the_critics_and_their_gradients_alone():
    with_actor, without = (TD3(3, 2, hidden=(16,), policy_delay=delay) for delay in (1, 10))
    for agent in (with_actor, without):
        agent.update(batch_of(64))
    assert none_same(snapshot(with_actor, "actor"), snapshot(without, "actor"))
    assert same(snapshot(with_actor, "Q1", "Q2"), snapshot(without, "Q1", "Q2"))
    assert same(gradients(with_actor, "Q1", "Q2"), gradients(without, "Q1", "Q2"))


def test_targets_never_get_a_gradient():
    agent = TD3(3, 2, hidden=(16,))
    for step in range(4):
        agent.update(batch_of(16, seed=step))
        assert gradients(agent, *TARGETS) == [None] * 12
        assert not any(
            p.requires_grad for name in TARGETS for p in getattr(agent, name).parameters()
        )


def test_an_update_does_not_write_into_its_batch():
    agent = TD3(3, 2, hidden=(16,), policy_delay=1)
    batch = batch_of(16)
    before = copy.deepcopy(batch)
    agent.update(batch)
    assert same(list(before[:5]), list(batch[:5]))


def test_networks_start_apart_and_targets_start_equal():
    agent = TD3(3, 2)
    assert none_same(snapshot(agent, "Q1"), snapshot(agent, "Q2"))
    assert same(snapshot(agent, *NETWORKS), snapshot(agent, *TARGETS))
    shared = {p.data_ptr() for p in agent.actor.parameters()} & {
        p.data_ptr() for p in agent.actor_target.parameters()
    }
    assert not shared


# What the target is made of


def learned_value(done: float, discount: float | None = None) -> float:
    """What Q1 comes to say of the one transition there is, s -> s with reward 1."""
    agent = TD3(1, 1, hidden=(16,), gamma=0.5, tau=0.1, critic_lr=1e-2, seed=0)
    one = torch.ones(32, 1)
    action = 2 * torch.rand(32, 1) - 1
    for _ in range(400):
        agent.update(
            Batch(one, action, one, one, done * one, None if discount is None else discount * one)
        )
    return agent.Q1(torch.cat((one, action), 1)).mean().item()


def test_values_bootstrap_unless_terminated():
    assert learned_value(done=0.0) == pytest.approx(2.0, abs=0.05)  # 1 + 1/2 + 1/4 + ...
    assert learned_value(done=1.0) == pytest.approx(1.0, abs=0.05)


def test_a_batch_may_bring_its_own_discount():
    assert learned_value(done=0.0, discount=0.75) == pytest.approx(4.0, abs=0.1)


def test_weights_of_one_change_nothing_and_zero_weight_drops_a_sample():
    batch = batch_of(64)
    plain, weighted, masked = (TD3(3, 2, hidden=(16,), policy_noise=0.0, seed=0) for _ in range(3))
    plain.update(batch)
    weighted.update(batch._replace(weight=torch.ones(64, 1)))
    for a, b in zip(snapshot(plain, "Q1", "Q2"), snapshot(weighted, "Q1", "Q2")):
        torch.testing.assert_close(a, b)
    half = (torch.arange(64) < 32).float()[:, None]
    masked.update(batch._replace(weight=2 * half))
    other = TD3(3, 2, hidden=(16,), policy_noise=0.0, seed=0)
    other.update(Batch(*(x[:32] for x in batch[:5])))
    for a, b in zip(gradients(masked, "Q1", "Q2"), gradients(other, "Q1", "Q2")):
        torch.testing.assert_close(a, b)


def test_every_target_action_keeps_each_joints_bound():
    agent = TD3(3, 2, (1.0, 0.1), hidden=(16,), policy_noise=5.0, noise_clip=2.0, policy_delay=100)
    seen = []
    agent.Q1_target.register_forward_pre_hook(lambda module, args: seen.append(args[0][:, 3:]))
    for step in range(20):
        agent.update(batch_of(64, seed=step))
    largest = torch.cat(seen).abs().amax(0)
    # reached by both joints, passed by none
    torch.testing.assert_close(largest, torch.tensor([1.0, 0.1]))


def test_target_noise_is_fresh_for_every_sample_joint_and_update():
    agent = TD3(3, 2, hidden=(16,), policy_noise=0.01, policy_delay=100)
    same_state = batch_of(1)
    batch = Batch(*(x.expand(64, -1) for x in same_state[:5]))
    seen = []
    agent.Q1_target.register_forward_pre_hook(lambda module, args: seen.append(args[0][:, 3:]))
    agent.update(batch)
    agent.update(batch)
    actions = torch.cat(seen)
    assert len(seen) == 2 and actions.unique().numel() > 0.95 * actions.numel()


@pytest.mark.parametrize("part", ["reward", "done", "discount", "weight"])
def test_a_row_where_a_column_belongs_is_refused_before_anything_changes(part):
    """torch would spread (B,) over (B, B) and learn from the wrong targets without a word."""
    agent = TD3(3, 2, hidden=(16,))
    batch = batch_of(8)
    batch = batch._replace(discount=torch.ones(8, 1), weight=torch.ones(8, 1))
    before = snapshot(agent, *NETWORKS)
    with pytest.raises(ValueError, match=rf"{part} must be \(8, 1\), got \(8,\)"):
        agent.update(batch._replace(**{part: getattr(batch, part)[:, 0]}))
    assert same(before, snapshot(agent, *NETWORKS)) and agent.gradient_steps == 0


@pytest.mark.parametrize(
    "a_max",
    [0.0, -1.0, float("nan"), float("inf"), (1.0,), (1.0, 0.0), (1.0, 1.0, 1.0), [[1.0, 1.0]]],
)
def test_a_bound_that_is_none_is_refused(a_max):
    with pytest.raises(ConfigError, match="a_max must be positive and finite, one value or 2"):
        TD3(3, 2, a_max)


@pytest.mark.parametrize("sizes", [(0, 7), (3, -1), (3.0, 2), ("3", 2)])
def test_sizes_that_are_none_are_refused(sizes):
    with pytest.raises(ConfigError, match="_dim must be a positive integer, got "):
        TD3(*sizes)


def test_sizes_and_seeds_of_numpy_are_those_of_python():
    one = TD3(*np.array([3, 2]), seed=np.int64(5), hidden=np.int64(8))
    other = TD3(3, 2, seed=5, hidden=8)
    assert one.config == other.config and (type(one.o_dim), type(one.a_dim)) == (int, int)
    assert same(snapshot(one, "actor", "Q1"), snapshot(other, "actor", "Q1"))


@pytest.mark.parametrize("seed", ["7", "x", 2.0, -1, None])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(ConfigError, match=rf"seed must be an integer in \[0, \d+\], got {seed!r}"):
        TD3(3, 2, seed=seed)


def test_an_option_that_there_is_not_is_named_with_the_nearest():
    for wrong in (TypeError, ConfigError):
        with pytest.raises(wrong, match="unknown option of TD3 'gama'; did you mean 'gamma'?"):
            TD3(3, 2, gama=0.9)


def test_a_run_is_found_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = TD3(3, 2, hidden=(8,))
    agent.save("checkpoints/mine")
    assert same(snapshot(agent, *NETWORKS), snapshot(TD3.from_checkpoint("mine"), *NETWORKS))
    agent.load("mine")


# Acting


def test_select_action_takes_arrays_and_tensors_one_or_many():
    agent = TD3(3, 2, (1.0, 0.1))
    o = torch.randn(5, 3)
    actions = agent.select_action(o)
    assert actions.shape == (5, 2) and actions.dtype == torch.float32 and not actions.requires_grad
    assert torch.equal(agent.select_action(o.numpy().astype(np.float64)), actions)
    for row, action in zip(o, actions):
        torch.testing.assert_close(agent.select_action(row), action)
        torch.testing.assert_close(agent.select_action(row.numpy()), action)
    assert agent.select_action(o[0].numpy()).shape == (2,)


def test_observations_count_the_same_one_by_one_and_together():
    o = torch.tensor([[100.0, 0.0, -5.0], [102.0, 1.0, -7.0]])
    together, apart = (TD3(3, 2, hidden=(16,), normalize_observations=True) for _ in range(2))
    together.observe(o.numpy().astype(np.float64))
    for row in o:
        apart.observe(row)
    for agent in (together, apart):
        assert agent.normalizer.moments.mean.tolist() == [101.0, 0.5, -6.0]
        assert agent.normalizer.moments.variance.tolist() == [1.0, 0.25, 1.0]


@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 1), (2, 6), (0,)])
def test_observations_of_another_width_are_refused(shape):
    """The running mean of three would broadcast with one, and the actions would be nobody's."""
    agent = TD3(3, 2, hidden=(16,), normalize_observations=True)
    for take in (agent.select_action, agent.select_exploratory_action, agent.observe):
        with pytest.raises(ConfigError, match=r"^observations must end in 3 values, got \("):
            take(torch.zeros(shape))
    assert agent.normalizer.moments.count == 0


def test_actions_use_the_whole_range_of_each_joint_and_no_more():
    actions = TD3(3, 2, (1.0, 0.1)).select_action(1e4 * torch.randn(2000, 3)).abs()
    assert (actions <= torch.tensor([1.0, 0.1])).all()
    torch.testing.assert_close(actions.amax(0), torch.tensor([1.0, 0.1]))


def test_a_seed_fixes_the_agent_and_leaves_torchs_own_generator_alone():
    state = torch.get_rng_state()
    agents = [TD3(3, 2, hidden=(16,), seed=5) for _ in range(2)] + [TD3(3, 2, hidden=(16,), seed=6)]
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    for agent in agents:
        for step in range(4):
            agent.update(batch_of(16, seed=step))
    first, second, other = (snapshot(agent, *NETWORKS, *TARGETS) for agent in agents)
    assert same(first, second) and none_same(first, other)


def test_learning_rates_scale_from_the_first_ones():
    agent = TD3(3, 2, actor_lr=1e-3, critic_lr=2e-3)

    def rates():
        return [
            agent.actor_optimizer.param_groups[0]["lr"],
            agent.Q1_optimizer.param_groups[0]["lr"],
        ]

    for factor, expected in ((0.5, [5e-4, 1e-3]), (0.5, [5e-4, 1e-3]), (0.1, [1e-4, 2e-4])):
        agent.scale_learning_rates(factor)
        assert rates() == pytest.approx(expected)
    agent.scale_learning_rates(0.0)
    before = snapshot(agent, "Q1", "Q2")
    agent.update(batch_of(8))
    assert same(before, snapshot(agent, "Q1", "Q2"))


# Keeping


def trained(updates: int = 5, seed: int = 0, **options) -> TD3:
    agent = TD3(3, 2, A_MAX, **{"hidden": (16,), "seed": seed} | options)
    for step in range(updates):
        agent.update(batch_of(16, seed=step))
    return agent


def test_after_a_state_dict_round_trip_learning_goes_on_exactly():
    agent = trained(seed=0)
    other = TD3(3, 2, A_MAX, hidden=(16,), seed=9)
    other.load_state_dicts(copy.deepcopy(agent.state_dicts()))
    other.gradient_steps = agent.gradient_steps
    other.generator.set_state(agent.generator.get_state())
    for step in range(5):
        for learner in (agent, other):
            learner.update(batch_of(16, seed=100 + step))
    assert flat(agent.state_dicts()) == flat(other.state_dicts())


def test_save_and_load_give_identical_actions_targets_and_optimizers(tmp_path):
    agent = trained(seed=0)
    other = trained(seed=9)
    o = torch.randn(50, 3)
    assert not torch.equal(agent.select_action(o), other.select_action(o))
    agent.save(tmp_path / "run")
    other.load(tmp_path / "run")
    assert torch.equal(agent.select_action(o), other.select_action(o))
    assert flat(agent.state_dicts()) == flat(other.state_dicts())
    assert not any(p.requires_grad for name in TARGETS for p in getattr(other, name).parameters())


def test_saved_once_later_learning_changes_nothing_in_the_folder(tmp_path):
    agent = trained()
    agent.save(tmp_path / "run")
    before = flat(agent.state_dicts())
    agent.update(batch_of(16))
    agent.update(batch_of(16))
    other = trained(seed=9)
    other.load(str(tmp_path / "run"))
    assert flat(other.state_dicts()) == before != flat(agent.state_dicts())


def test_missing_targets_become_copies_of_the_loaded_networks(tmp_path):
    agent = trained()
    other = trained(seed=9)
    states = {
        name: state for name, state in agent.state_dicts().items() if not name.endswith("_target")
    }
    checkpoint.write(tmp_path / "run", states)
    other.load(tmp_path / "run")
    assert same(snapshot(other, *TARGETS), snapshot(agent, *NETWORKS))
    before = snapshot(other, *TARGETS)
    other.Q1.layers[0].weight.data.zero_()
    assert same(before, snapshot(other, *TARGETS))


@pytest.mark.parametrize(
    "options", [{"hidden": (8,)}, {"hidden": (16, 16)}, {"o_dim": 4}, {"a_dim": 1}]
)
def test_a_checkpoint_of_other_shapes_is_refused_and_changes_nothing(tmp_path, options):
    shape = {"o_dim": 3, "a_dim": 2, "hidden": (16,)} | options
    stranger = TD3(**shape, a_max=A_MAX if shape["a_dim"] == 2 else 1.0, seed=1)
    stranger.update(batch_of(16, shape["o_dim"], shape["a_dim"]))
    stranger.save(tmp_path / "stranger")
    agent = trained()
    before = copy.deepcopy(flat(agent.state_dicts()))
    with pytest.raises(
        CheckpointError, match=r"(?s)stranger.*does not fit.*o_dim 3, a_dim 2, hidden \[16\]"
    ) as caught:
        agent.load(tmp_path / "stranger")
    assert "\n" not in str(caught.value)
    assert flat(agent.state_dicts()) == before
    agent.update(batch_of(16))  # and it learns on


@pytest.mark.parametrize("name", ["Q2", "actor", "actor_optimizer", "Q1_target"])
def test_one_part_that_does_not_fit_is_enough_to_load_none(name):
    agent = trained()
    states = copy.deepcopy(trained(seed=9).state_dicts())
    states[name] = {"nothing": "of use"}
    before = copy.deepcopy(flat(agent.state_dicts()))
    with pytest.raises(CheckpointError, match=name):
        agent.load_state_dicts(states)
    assert flat(agent.state_dicts()) == before


def test_a_missing_checkpoint_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere"):
        trained().load(tmp_path / "nowhere")
