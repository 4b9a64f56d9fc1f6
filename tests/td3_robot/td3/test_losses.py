"""The arithmetic of TD3 against numbers worked out on paper."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from td3_robot.td3.losses import (
    categorical_loss,
    clipped_double_q_target,
    critic_loss,
    project_categorical,
    smooth_target_action,
)
from tests.support import make_column

A_MAX = torch.tensor([1.0, 0.1])


def test_target_is_reward_plus_discounted_smaller_q():
    # 1 + 0.9 * min(10, 8) = 8.2;  -2 + 0.9 * min(-5, 4) = -6.5;  terminated: the reward alone
    y = clipped_double_q_target(
        reward=make_column(1.0, -2.0, 3.0),
        discount=0.9,
        done=make_column(0.0, 0.0, 1.0),
        q1=make_column(10.0, -5.0, 100.0),
        q2=make_column(8.0, 4.0, 200.0),
    )
    torch.testing.assert_close(y, make_column(8.2, -6.5, 3.0))


def test_target_takes_a_discount_for_each_sample():
    # 1 + 0.5 * 4 = 3;  1 + 0.25 * 4 = 2
    one = make_column(1.0, 1.0)
    four = make_column(4.0, 4.0)
    y = clipped_double_q_target(one, make_column(0.5, 0.25), 0 * one, four, four)
    torch.testing.assert_close(y, make_column(3.0, 2.0))


def test_smoothing_clips_the_noise_and_then_every_joint_to_its_own_bound():
    # noise held to +-0.5 of a joint's range: 0.9 + 0.5 = 1.4 -> 1.0;      0.09 - 0.5 * 0.1 = 0.04
    # -0.95 - 0.2 = -1.15 -> -1.0;  -0.09 - 0.3 * 0.1 = -0.12 -> -0.1
    action = torch.tensor([[0.9, 0.09], [-0.95, -0.09]])
    noise = torch.tensor([[0.7, -3.0], [-0.2, -0.3]])
    smoothed = smooth_target_action(action, noise, 0.5, A_MAX)
    torch.testing.assert_close(smoothed, torch.tensor([[1.0, 0.04], [-1.0, -0.1]]))


def test_smoothing_takes_one_bound_for_all_joints():
    smoothed = smooth_target_action(
        torch.tensor([[1.9, -1.0]]), torch.tensor([[0.1, 0.2]]), 0.5, torch.tensor(2.0)
    )
    torch.testing.assert_close(smoothed, torch.tensor([[2.0, -0.6]]))


@given(st.integers(0, 2**31), st.floats(0, 5), st.floats(0, 2))
def test_smoothed_actions_stay_in_bounds_and_near_the_action(seed, policy_noise, noise_clip):
    generator = torch.Generator().manual_seed(seed)
    action = (2 * torch.rand(64, 2, generator=generator) - 1) * A_MAX
    noise = policy_noise * torch.randn(64, 2, generator=generator)
    smoothed = smooth_target_action(action, noise, noise_clip, A_MAX)
    assert (smoothed.abs() <= A_MAX).all()
    assert ((smoothed - action).abs() <= noise_clip * A_MAX + 1e-6).all()


def test_critic_loss_is_the_mean_squared_error():
    # errors 2 and 3
    q = make_column(1.0, 2.0)
    target = make_column(3.0, 5.0)
    torch.testing.assert_close(critic_loss(q, target), torch.tensor(6.5))
    # (4 + 4.5) / 2
    torch.testing.assert_close(
        critic_loss(q, target, weight=make_column(1.0, 0.5)), torch.tensor(4.25)
    )


def test_target_of_one_critic_is_its_own_value():
    y = clipped_double_q_target(
        make_column(1.0, 2.0), 0.9, make_column(0.0, 1.0), make_column(10.0, 7.0)
    )
    torch.testing.assert_close(y, make_column(10.0, 2.0))


# Distributions of returns


def project_one(probability, reward, discount, done, support):
    """One sample, written out from Algorithm 1 of Bellemare, Dabney & Munos (2017)."""
    spacing = (support[-1] - support[0]) / (len(support) - 1)
    last = len(support) - 1
    projected = [0.0] * len(support)
    for p, z in zip(probability, support):
        shifted = min(max(reward + discount * (1 - done) * z, support[0]), support[-1])
        b = min((shifted - support[0]) / spacing, last)
        lower = math.floor(b)
        upper = math.ceil(b)
        if (
            lower == upper
        ):  # exactly on an atom, where the algorithm as printed loses the probability
            projected[lower] += p
        else:
            projected[lower] += p * (upper - b)
            projected[upper] += p * (b - lower)
    return projected


def distributions(seed, count=16, atoms=11):
    """Random (B, N) probabilities, (B, 1) rewards and discounts, in float64."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return (3 * draw(count, atoms)).softmax(1), 3 * draw(count, 1), draw(count, 1).sigmoid()


ENDS = st.sampled_from([(-10.0, 10.0), (0.0, 1.0), (-7.3, -0.2)])


@given(st.integers(0, 2**31), ENDS)
def test_projection_is_what_a_loop_over_atoms_gives(seed, ends):
    probability, reward, discount = distributions(seed)
    support = torch.linspace(*ends, 11, dtype=torch.float64)
    done = (torch.arange(16)[:, None] % 4 == 0).double()
    projected = project_categorical(probability, reward, discount, done, support)
    rows = zip(
        probability.tolist(), reward[:, 0].tolist(), discount[:, 0].tolist(), done[:, 0].tolist()
    )
    expected = [project_one(*row, support.tolist()) for row in rows]
    torch.testing.assert_close(
        projected, torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=0
    )


@given(st.integers(0, 2**31), ENDS)
def test_projections_are_probabilities_in_float32_too(seed, ends):
    probability, reward, discount = (value.float() for value in distributions(seed))
    projected = project_categorical(
        probability, reward, discount, torch.zeros(16, 1), torch.linspace(*ends, 11)
    )
    assert (projected >= 0).all()
    torch.testing.assert_close(projected.sum(1), torch.ones(16))


@given(st.integers(0, 2**31))
def test_projection_keeps_the_mean_where_nothing_is_clipped(seed):
    probability, reward, discount = distributions(seed)
    support = torch.linspace(-100, 100, 11, dtype=torch.float64)
    reward = reward.clamp(-5, 5)  # |r + 0.9 * 100| < 100
    projected = project_categorical(
        probability, reward, 0.9 * discount, torch.zeros(16, 1), support
    )

    def mean(p):
        return (p * support).sum(1, keepdim=True)

    torch.testing.assert_close(
        mean(projected), reward + 0.9 * discount * mean(probability), atol=1e-10, rtol=0
    )


def test_a_shift_by_whole_atoms_moves_probabilities_and_collects_them_at_the_end():
    support = torch.linspace(-2, 2, 5)
    probability = torch.tensor([[0.1, 0.2, 0.3, 0.25, 0.15]])
    still = project_categorical(probability, make_column(0.0), 1.0, make_column(0.0), support)
    torch.testing.assert_close(still, probability)
    shifted = project_categorical(probability, make_column(2.0), 1.0, make_column(0.0), support)
    torch.testing.assert_close(shifted, torch.tensor([[0.0, 0.0, 0.1, 0.2, 0.7]]))


def test_after_termination_all_lies_on_the_two_atoms_next_to_the_reward():
    support = torch.linspace(-2, 2, 5)
    probability = torch.full((3, 5), 0.2)
    projected = project_categorical(
        probability, make_column(0.25, -1.0, 9.0), 0.99, make_column(1.0, 1.0, 1.0), support
    )
    expected = [[0.0, 0.0, 0.75, 0.25, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]]
    torch.testing.assert_close(projected, torch.tensor(expected))


def test_a_reward_that_is_nan_makes_its_own_target_nan_alone():
    support = torch.linspace(-2, 2, 5)
    reward = make_column(math.nan, 1.0)
    projected = project_categorical(
        torch.full((2, 5), 0.2), reward, 0.99, make_column(0.0, 1.0), support
    )
    assert projected[0].isnan().any() and projected[0].sum().isnan()
    torch.testing.assert_close(projected[1], torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0]))


def test_categorical_loss_is_the_cross_entropy():
    # softmax of logs is the probabilities: -(0.5 ln 0.2 + 0.5 ln 0.8) = 0.916291 and -ln 0.5 =
    # 0.693147
    logits = torch.tensor([[0.2, 0.8], [0.5, 0.5]]).log()
    target = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    assert categorical_loss(logits, target).item() == pytest.approx(
        (0.916291 + 0.693147) / 2, abs=1e-6
    )
    weighted = categorical_loss(logits, target, weight=make_column(1.0, 0.5))
    assert weighted.item() == pytest.approx((0.916291 + 0.5 * 0.693147) / 2, abs=1e-6)
