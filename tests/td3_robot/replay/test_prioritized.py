"""Prioritised replay: its frequencies, weights and memory, and the tree of sums below it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from td3_robot.errors import ConfigError
from td3_robot.replay import NStep, Prioritized, ReplayBuffer, Uniform
from td3_robot.replay.sum_tree import SumTree

CPU = torch.device("cpu")
DRAWS = 100_000


def ring(slots: int, envs: int = 1, sampler=None, seed: int = 0, reader=None) -> ReplayBuffer:
    sampler = Prioritized() if sampler is None else sampler
    return ReplayBuffer(
        slots * envs, envs, 1, 1, "cpu", torch.Generator().manual_seed(seed), sampler, reader
    )


def put(buffer: ReplayBuffer, first: int, count: int, valid: torch.Tensor | None = None) -> None:
    """Time steps whose state is time * envs + env."""
    envs = buffer.num_envs
    for time in range(first, first + count):
        x = torch.arange(time * envs, (time + 1) * envs)[:, None].float()
        no = torch.zeros(envs, dtype=torch.bool)
        buffer.add(x, x, x[:, 0], x, no, no, None if valid is None else valid[time - first])


def learn(buffer: ReplayBuffer, error_of: dict[int, float]) -> None:
    """Give every stored transition the error that belongs to its number, 0 where none is named."""
    for _ in range(5):  # so that none is left out
        numbers = buffer.sample(50 * len(buffer)).state[:, 0].int().tolist()
        buffer.update_priorities(torch.tensor([error_of.get(number, 0.0) for number in numbers]))


def shares(buffer: ReplayBuffer, count: int) -> torch.Tensor:
    drawn = buffer.sample(DRAWS).state[:, 0].long()
    return torch.bincount(drawn, minlength=count) / DRAWS


def assert_shares(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Pearson's chi-square over the rows that can be drawn, below its 1 - 1e-6 quantile
    (Wilson-Hilferty).
    """
    possible = expected > 0
    assert not found[~possible].any()
    found = found[possible]
    expected = expected[possible] / expected.sum()
    chi = DRAWS * ((found - expected).square() / expected).sum()
    freedom = max(len(found) - 1, 1)
    assert chi < freedom * (1 - 2 / (9 * freedom) + 4.75 * (2 / (9 * freedom)) ** 0.5) ** 3


# The tree


@pytest.mark.parametrize("size", [1, 2, 31, 32, 33, 1024, 1025, 40_000])
def test_the_tree_draws_in_proportion_to_the_weights_and_never_a_zero(size):
    generator = torch.Generator().manual_seed(size)
    tree = SumTree(size, CPU)
    weights = torch.rand(size, generator=generator).pow(3) * (
        torch.rand(size, generator=generator) < 0.6
    )
    weights[size // 2] = 1.0
    tree.set_range(0, weights)
    drawn = tree.draw(DRAWS, generator)
    counts = torch.bincount(drawn, minlength=size)
    assert len(counts) == size and not counts[weights == 0].any()
    bins = torch.arange(size) * 40 // size  # so that each is drawn often enough for the test
    expected = torch.zeros(40, dtype=torch.float64).index_add_(0, bins, weights.double())
    found = torch.zeros(40, dtype=torch.float64).index_add_(0, bins, counts.double()) / DRAWS
    assert_shares(found, expected)


@pytest.mark.parametrize("unit", [0.0, 1 - 2**-53])
@pytest.mark.parametrize(
    "weights", [[0, 0, 3.0, 0], [0, 1e-300, 0], [0] * 40 + [1.0 + 2**-52, 5.0] + [0] * 2000]
)
def test_even_the_least_and_the_greatest_random_number_draw_no_zero(monkeypatch, unit, weights):
    tree = SumTree(len(weights), CPU)
    weights = torch.tensor(weights, dtype=torch.float64)
    tree.set_range(0, weights)
    monkeypatch.setattr(
        torch, "rand", lambda shape, dtype, **_: torch.full(shape, unit, dtype=dtype)
    )
    drawn = tree.draw(3, torch.Generator())
    possible = weights.nonzero().flatten().tolist()
    assert drawn.tolist() == [possible[0 if unit == 0 else -1]] * 3


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3000), st.lists(st.tuples(st.booleans(), st.integers(0, 10**6)), max_size=12))
def test_every_sum_is_that_of_what_lies_below(size, writes):
    tree = SumTree(size, CPU)
    expected = torch.zeros(size, dtype=torch.float64)
    for in_a_row, seed in writes:
        generator = torch.Generator().manual_seed(seed)
        index = torch.randint(size, (1 + seed % 70,), generator=generator)
        weights = torch.rand(len(index), generator=generator, dtype=torch.float64) * 10 ** (
            seed % 9
        )
        if in_a_row:
            weights = weights[: size - int(index[0])]
            tree.set_range(int(index[0]), weights)
            expected[index[0] : index[0] + len(weights)] = weights
        else:
            tree.set(index, weights)
            for i in index.unique():
                expected[i] = weights[index == i].max()  # of several the greatest
    assert torch.equal(tree.weights[:size], expected) and not tree.weights[size:].any()
    for level, above in zip(tree._levels, tree._levels[1:]):
        torch.testing.assert_close(above.view(-1)[: len(level)], level.sum(1), rtol=1e-15, atol=0)
    assert len(tree._levels[-1]) == 1


def test_updates_of_greatly_different_size_leave_no_trace():
    """Sums kept by adding differences would still hold the rounding errors of 1e15."""
    tree = SumTree(2000, CPU)
    index = torch.arange(2000)
    for _ in range(50):
        tree.set(index, torch.full((2000,), 1e15, dtype=torch.float64))
        tree.set(index, torch.full((2000,), 1e-3, dtype=torch.float64))
    assert tree._levels[-1].sum().item() == pytest.approx(2.0, rel=1e-12)


def test_a_device_without_double_precision_is_refused():
    with pytest.raises(ConfigError, match="mps"):
        SumTree(4, torch.device("mps"))


# The sampler


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_transitions_are_drawn_in_proportion_to_their_priorities(alpha):
    buffer = ring(5, 2, Prioritized(alpha, epsilon=0.1))
    put(buffer, 0, 8)
    errors = torch.arange(10.0) - 4  # their sign does not matter
    learn(buffer, {6 + i: error for i, error in enumerate(errors.tolist())})
    priorities = torch.cat((torch.zeros(6), (errors.abs() + 0.1).pow(alpha)))
    assert_shares(shares(buffer, 16), priorities)


def test_weights_by_hand():
    """Priorities 4 and 1, alpha 1/2: P = 2/3 and 1/3, so that with beta 1 weights are as 1/2 to
    1.
    """
    buffer = ring(2, 1, Prioritized(alpha=0.5, beta=1.0, epsilon=1.0))
    put(buffer, 0, 2)
    learn(buffer, {0: 3.0, 1: 0.0})
    batch = buffer.sample(100)
    torch.testing.assert_close(batch.weight, torch.where(batch.state == 0, 0.5, 1.0))


@pytest.mark.parametrize(
    ("beta", "progress", "exponent"),
    [(0.4, 0.0, 0.4), (0.4, 0.5, 0.7), (0.4, 1.0, 1.0), (0, 0.25, 0.25)],
)
def test_beta_goes_linearly_to_one(beta, progress, exponent):
    buffer = ring(2, 1, Prioritized(alpha=1.0, beta=beta, epsilon=1.0))
    put(buffer, 0, 2)
    learn(buffer, {0: 7.0, 1: 0.0})
    buffer.anneal(progress)
    batch = buffer.sample(100)
    torch.testing.assert_close(batch.weight, torch.where(batch.state == 0, 8.0**-exponent, 1.0))


def test_weights_are_at_most_one_and_as_the_paper_has_them_up_to_a_factor():
    buffer = ring(50, 2, Prioritized(0.7, 0.5))
    put(buffer, 0, 50)
    learn(buffer, {i: 0.01 * i**2 for i in range(100)})
    batch = buffer.sample(64)
    probability = (0.01 * batch.state.double().square() + 1e-6).pow(0.7)
    # the sum is one of many factors that cancel
    weight = (100 * probability / probability.sum()).pow(-0.5)
    torch.testing.assert_close(batch.weight, (weight / weight.max()).float())
    assert (
        batch.weight.shape == (64, 1)
        and batch.weight.dtype == torch.float32
        and batch.weight.max() == 1
    )


def test_new_transitions_have_the_greatest_priority_so_far():
    buffer = ring(4, 1, Prioritized(alpha=1.0, epsilon=1e-9))
    put(buffer, 0, 3)
    learn(buffer, {0: 1.0, 1: 5.0, 2: 2.0})
    put(buffer, 3, 1)
    assert_shares(shares(buffer, 4), torch.tensor([1.0, 5.0, 2.0, 5.0]))
    learn(buffer, {0: 1.0, 1: 1.0, 2: 2.0, 3: 1.0})
    put(buffer, 4, 2)  # in place of 0 and 1; that 5 was long ago does not matter
    assert_shares(shares(buffer, 6), torch.tensor([0, 0, 2.0, 1.0, 5.0, 5.0]))


def test_of_several_errors_of_a_transition_the_greatest_counts():
    buffer = ring(2, 1, Prioritized(alpha=1.0, epsilon=1e-9))
    put(buffer, 0, 2)
    number = buffer.sample(1000).state[:, 0]
    buffer.update_priorities(torch.where(number == 0, 1.0, torch.linspace(0, 3, 1000).roll(137)))
    greatest = torch.linspace(0, 3, 1000).roll(137)[number == 1].max()
    assert_shares(shares(buffer, 2), torch.tensor([1.0, greatest]))


def test_rows_that_are_no_transition_are_never_drawn():
    valid = torch.tensor([[1, 0], [1, 1], [0, 1], [1, 1]], dtype=torch.bool)
    buffer = ring(3, 2, Prioritized(epsilon=1.0))
    put(buffer, 0, 4, valid)
    learn(buffer, {})
    assert_shares(shares(buffer, 8), torch.tensor([0, 0, 1.0, 1, 0, 1, 1, 1]))
    put(buffer, 4, 2)
    assert_shares(shares(buffer, 12), torch.tensor([0.0] * 6 + [1.0] * 6))


def test_weights_come_with_several_step_returns():
    buffer = ring(6, 2, reader=NStep(3, 0.9))
    put(buffer, 0, 9)
    batch = buffer.sample(20)
    assert batch.weight.shape == batch.discount.shape == (20, 1)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_error_that_is_not_finite_breaks_no_draw(bad):
    buffer = ring(40)
    put(buffer, 0, 40)
    buffer.sample(8)
    buffer.update_priorities(torch.tensor([bad] + [1.0] * 7))
    batch = buffer.sample(100)
    assert torch.isfinite(batch.weight).all() and torch.isfinite(batch.state).all()


def test_it_learns_from_errors_that_still_have_a_gradient():
    buffer = ring(4)
    put(buffer, 0, 4)
    buffer.sample(3)
    buffer.update_priorities(torch.ones(3, requires_grad=True) * 2)
    assert not buffer.sample(3).weight.requires_grad


# Saving


@pytest.mark.parametrize("count", [3, 5, 13])
def test_restored_it_draws_weighs_and_learns_exactly_as_the_original(count):
    original = ring(5, 2)
    restored = ring(5, 2, seed=9)
    put(original, 0, count)
    learn(original, {i: i % 7 for i in range(99)})
    original.anneal(0.3)
    restored.load_state_dict(original.state_dict())
    restored.generator.set_state(original.generator.get_state())
    for time in range(count, count + 8):
        one = original.sample(30)
        other = restored.sample(30)
        assert torch.equal(one.state, other.state) and torch.equal(one.weight, other.weight)
        for buffer in (original, restored):
            buffer.update_priorities(one.state[:, 0] * 0.1)
            put(buffer, time, 1)


@pytest.mark.parametrize("slots", [2, 9])
def test_restored_into_another_capacity_transitions_keep_their_priorities(slots):
    original = ring(4, 2, Prioritized(1.0, epsilon=1e-9))
    restored = ring(slots, 2, Prioritized(1.0, epsilon=1e-9))
    put(original, 0, 6)
    priorities = torch.arange(12.0) % 5 + 1
    learn(original, dict(enumerate(priorities.tolist())))
    restored.load_state_dict(original.state_dict())
    priorities[: 12 - 2 * min(slots, 4)] = 0
    assert_shares(shares(restored, 12), priorities)


def test_what_was_stored_by_a_uniform_run_is_new_to_a_prioritised_one_and_the_reverse():
    uniform = ring(4, 1, Uniform())
    prioritised = ring(4, 1)
    put(uniform, 0, 6)
    prioritised.load_state_dict(uniform.state_dict())
    assert_shares(shares(prioritised, 6), torch.tensor([0, 0, 1.0, 1, 1, 1]))
    learn(prioritised, {3: 9.0})
    uniform.load_state_dict(prioritised.state_dict())
    assert_shares(shares(uniform, 6), torch.tensor([0, 0, 1.0, 1, 1, 1]))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({name: value}, f"^{name} must be")
        for name in ("alpha", "beta")
        for value in (-0.1, 1.5, float("nan"))
    ]
    + [({"epsilon": value}, "epsilon") for value in (0.0, -1.0, float("inf"), float("nan"))],
)
def test_bad_options_are_refused(options, name):
    with pytest.raises(ConfigError, match=name):
        Prioritized(**options)
