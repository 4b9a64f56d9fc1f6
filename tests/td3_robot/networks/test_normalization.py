"""Running statistics against NumPy's over all the data at once."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.wrappers.vector import NormalizeReward
from hypothesis import given, settings
from hypothesis import strategies as st

from td3_robot.checkpoint.validation import validate_state
from td3_robot.networks import normalization as normalizer
from td3_robot.networks.normalization import (
    RewardScaler,
    RunningMoments,
    RunningNormalizer,
    choose_precision,
)


def rows(seed, count, dim=3, offset=0.0, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    return offset + spread * torch.randn(count, dim, generator=generator, dtype=torch.float64)


# Moments


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    offset=st.sampled_from([0.0, -3.0, 1e8]),
    spread=st.sampled_from([1e-2, 1.0, 1e4]),
)
def test_batches_of_any_size_give_the_moments_of_all_rows(seed, sizes, offset, spread):
    data = rows(seed, sum(sizes), offset=offset, spread=spread)
    moments = RunningMoments(3)
    for batch in data.split(sizes):
        moments.update(batch)
    assert moments.count == len(data)
    if len(data):
        np.testing.assert_allclose(
            moments.mean, data.numpy().mean(0), rtol=1e-12, atol=1e-9 * spread
        )
        # A double near `offset` is exact to `last`: so far off is each deviation from the mean.
        variance = data.numpy().var(0)
        last = np.spacing(abs(offset) + spread)
        most = 1e-9 * variance + 2 * last * np.sqrt(variance) + last**2
        assert (np.abs(np.asarray(moments.variance) - variance) <= most).all()


def test_many_small_batches_far_from_zero_stay_accurate():
    data = rows(0, 20_000, offset=1e8)
    moments = RunningMoments(3)
    for batch in data.split(4):
        moments.update(batch)
    np.testing.assert_allclose(moments.variance, data.numpy().var(0), rtol=1e-7)


# Observations


def test_before_any_update_it_is_the_identity():
    x = 1e6 * torch.randn(50, 3)
    assert torch.equal(RunningNormalizer(3)(x), x)


def test_what_was_counted_comes_out_at_mean_0_and_variance_1():
    normalizer = RunningNormalizer(3)
    data = rows(0, 5000, offset=100.0, spread=7.0).float()
    for batch in data.split(64):
        normalizer.update(batch)
    normalised = normalizer(data)
    assert normalised.dtype == torch.float32
    torch.testing.assert_close(normalised.mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(normalised.std(0, correction=0), torch.ones(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(normalizer(data[7]), normalised[7])


def test_small_differences_far_from_zero_survive():
    # multiples of 8 are exact in float32 there, but not their mean 1e8 + 4; by hand: -12, -4, 4, 12
    # have variance 80
    x = 1e8 + torch.tensor([[-8.0], [0.0], [8.0], [16.0]])
    normalizer = RunningNormalizer(1)
    normalizer.update(x)
    torch.testing.assert_close(
        normalizer(x), torch.tensor([[-12.0], [-4.0], [4.0], [12.0]]) / 80**0.5
    )


def test_outliers_are_clipped():
    normalizer = RunningNormalizer(1, clip=2.5)
    normalizer.update(torch.tensor([[-1.0], [1.0]]))  # mean 0, variance 1
    torch.testing.assert_close(
        normalizer(torch.tensor([[-9.0], [1.5], [3.0]])), torch.tensor([[-2.5], [1.5], [2.5]])
    )


def test_an_element_that_never_changed_is_zero():
    normalizer = RunningNormalizer(2)
    normalizer.update(torch.tensor([[5.0, 0.1]]).expand(10, 2))
    assert (normalizer(torch.tensor([[5.0, 0.1]])).abs() < 1e-3).all()


def test_an_element_that_hardly_changes_is_not_blown_up_where_epsilon_is_larger():
    """A deviation of 1e-5, and then a difference of 1e-3: 100 deviations, or a tenth of
    sqrt(1e-4).
    """
    x = torch.tensor([[0.4], [0.4 + 2e-5]])
    for epsilon, clip, expected in ((1e-14, 10.0, 10.0), (1e-14, 3.0, 3.0), (1e-4, 10.0, 0.1)):
        normalizer = RunningNormalizer(1, clip=clip, epsilon=epsilon)
        normalizer.update(x)
        assert normalizer(torch.tensor([[0.40101]])).item() == pytest.approx(expected, rel=0.01)


def test_normalising_counts_nothing():
    normalizer = RunningNormalizer(3)
    normalizer.update(rows(0, 50))
    before = {name: value.clone() for name, value in normalizer.state_dict().items()}
    normalizer(rows(1, 50))
    assert all(torch.equal(value, before[name]) for name, value in normalizer.state_dict().items())


def test_the_statistics_take_no_gradient_and_pass_it_on():
    normalizer = RunningNormalizer(3)
    x = rows(0, 50).requires_grad_()
    normalizer.update(x)
    normalizer(x).sum().backward()
    torch.testing.assert_close(x.grad, normalizer.scale.expand(50, 3))
    assert list(normalizer.parameters()) == []


# Rewards


def test_rewards_are_divided_by_the_deviation_of_returns_worked_out_by_hand():
    scaler = RewardScaler(2, gamma=0.5)
    # returns 1, 4; the second ends
    scaler.update(torch.tensor([1.0, 4.0]), torch.tensor([False, True]))
    scaler.update(torch.tensor([2.0, 6.0]), torch.tensor([False, False]))  # 0.5 + 2 = 2.5, 6
    scaler.update(torch.tensor([0.0, 1.0]), torch.tensor([False, False]))  # 1.25, 3 + 1 = 4
    deviation = np.std([1, 4, 2.5, 6, 1.25, 4])
    torch.testing.assert_close(
        scaler.scale(torch.tensor([[3.0]])), torch.tensor([[3.0 / deviation]]).float()
    )


def test_rows_that_are_no_transition_do_not_count():
    scaler = RewardScaler(2, gamma=0.9)
    plain = RewardScaler(1, gamma=0.9)
    never = torch.zeros(2, dtype=torch.bool)
    for reward in (1.0, 5.0, -2.0):
        scaler.update(torch.tensor([reward, 100.0]), never, valid=torch.tensor([True, False]))
        plain.update(torch.tensor([reward]), never[:1])
    scaler.update(torch.tensor([7.0, 7.0]), never, valid=never)
    assert scaler.moments.count == plain.moments.count == 3
    torch.testing.assert_close(scaler.factor, plain.factor)
    assert scaler.returns[1] == 0 and scaler.returns[0] == plain.returns[0]


class RewardsAsTold(gymnasium.vector.VectorEnv):
    """Five environments whose rewards and truncations are the action."""

    num_envs = 5
    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}

    def reset(self, *, seed=None, options=None):
        return np.zeros((5, 1)), {}

    def step(self, actions):
        reward, truncated = actions
        return np.zeros((5, 1)), reward, np.zeros(5, dtype=bool), truncated, {}


def test_it_comes_to_what_gymnasium_comes_to():
    # Gymnasium begins with 1e-4 rows of variance 1, and at a termination (here none) forgets the
    # return a step early.
    theirs = NormalizeReward(RewardsAsTold(), gamma=0.97)
    ours = RewardScaler(5, gamma=0.97)
    theirs.reset()
    generator = np.random.default_rng(0)
    for _ in range(2000):
        reward = 1 + 3 * generator.normal(size=5)
        truncated = generator.random(5) < 0.02
        expected = theirs.step((reward, truncated))[1]
        ours.update(torch.tensor(reward), torch.tensor(truncated))
    np.testing.assert_allclose(ours.scale(torch.tensor(reward)), expected, rtol=1e-6)


def test_scaling_keeps_sign_shape_and_precision_and_counts_nothing():
    scaler = RewardScaler(4, gamma=0.9)
    reward = torch.tensor([[1.0], [-2.0], [0.0]])
    assert torch.equal(scaler.scale(reward), reward)  # before any update
    scaler.update(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.zeros(4, dtype=torch.bool))
    before = scaler.moments.count.clone()
    scaled = scaler.scale(reward)
    assert scaled.dtype == torch.float32 and torch.equal(scaled.sign(), reward.sign())
    assert (scaled[1] / scaled[0]).item() == pytest.approx(-2)
    assert scaler.moments.count == before


# Resuming


def test_a_resumed_normalizer_goes_on_exactly():
    normalizer = RunningNormalizer(3)
    resumed = RunningNormalizer(3)
    normalizer.update(rows(0, 70))
    resumed.load_state_dict(normalizer.state_dict())
    x = rows(2, 20)
    assert torch.equal(resumed(x), normalizer(x))
    normalizer.update(rows(1, 30))
    resumed.update(rows(1, 30))
    assert torch.equal(resumed(x), normalizer(x))


def test_a_resumed_scaler_goes_on_exactly():
    scaler = RewardScaler(4, gamma=0.9)
    resumed = RewardScaler(4, gamma=0.9)
    steps = [(rows(i, 4)[:, 0], rows(i, 4)[:, 1] > 1) for i in range(20)]
    for step in steps[:10]:
        scaler.update(*step)
    resumed.load_state_dict(scaler.state_dict())
    for step in steps[10:]:
        scaler.update(*step)
        resumed.update(*step)
    assert torch.equal(resumed.scale(torch.ones(1)), scaler.scale(torch.ones(1)))


def test_where_there_is_no_float64_statistics_are_of_float32_and_can_be_taken_over(monkeypatch):
    """As on mps; a run of a CPU goes on there, and comes back."""
    assert (
        choose_precision("cpu") == choose_precision("cuda:1") == torch.float64
        and choose_precision("mps") == torch.float32
    )
    precise = RunningNormalizer(3)
    precise.update(rows(0, 100, offset=5.0))
    monkeypatch.setattr(normalizer, "choose_precision", lambda device: torch.float32)
    coarse = RunningNormalizer(3)
    x = torch.randn(4, 3)
    coarse.load_state_dict(validate_state(coarse, precise.state_dict()))
    assert all(value.dtype == torch.float32 for value in coarse.state_dict().values())
    coarse.update(x)
    precise.update(x)
    torch.testing.assert_close(coarse(x), precise(x), rtol=1e-4, atol=1e-4)
    precise.load_state_dict(validate_state(precise, coarse.state_dict()))
