"""What critics' outputs mean: the same laws for values and for distributions of returns."""

import math

import pytest
import torch

from td3_robot.errors import ConfigError
from td3_robot.td3.losses import clipped_double_q_target, project_categorical, return_bounds
from td3_robot.td3.value_heads import CategoricalValue, ScalarValue
from tests.support import make_column

HEADS = pytest.mark.parametrize(
    "head", [ScalarValue(), CategoricalValue(-50.0, 50.0, 51)], ids=["scalar", "c51"]
)


@pytest.fixture(autouse=True)
def _same_draws():
    torch.manual_seed(0)


def outputs(head, seed, count=64):
    return 2 * torch.randn(count, head.out_dim, generator=torch.Generator().manual_seed(seed))


@HEADS
def test_the_mean_of_a_target_is_the_clipped_double_q_target(head):
    """In the mean, the distributional target is TD3's as long as no return is clipped."""
    if head.out_dim > 1:  # returns in the middle of the support
        inside = head.support.abs() < 40
        one, two = (outputs(head, seed).masked_fill(~inside, -math.inf) for seed in (0, 1))
    else:
        one = outputs(head, 0)
        two = outputs(head, 1)
    reward = torch.randn(64, 1)
    discount = torch.rand(64, 1)
    done = (torch.rand(64, 1) < 0.3).float()
    for second in (two, None):
        target = head.target(reward, discount, done, one, second)
        assert target.shape == (64, head.out_dim)
        mean = target if head.out_dim == 1 else target @ head.support[:, None]
        q2 = None if second is None else head.mean(second)
        expected = clipped_double_q_target(reward, discount, done, head.mean(one), q2)
        torch.testing.assert_close(mean, expected, atol=1e-4, rtol=1e-4)


@HEADS
def test_the_order_of_the_critics_does_not_matter(head):
    rest = torch.randn(64, 1), 0.9, torch.zeros(64, 1)
    one = outputs(head, 0)
    two = outputs(head, 1)
    torch.testing.assert_close(head.target(*rest, one, two), head.target(*rest, two, one))


@HEADS
def test_error_is_one_number_a_sample_without_gradient_and_zero_at_the_target(head):
    output = outputs(head, 0).requires_grad_()
    reached = output.detach() if head.out_dim == 1 else output.detach().softmax(1)
    error = head.error(output, reached)
    assert error.shape == (64,) and not error.requires_grad
    torch.testing.assert_close(error, torch.zeros(64), atol=1e-6, rtol=0)
    away = head.target(torch.randn(64, 1), 0.9, torch.zeros(64, 1), outputs(head, 5))
    assert (head.error(output, away) > 0).all()


@HEADS
def test_descending_the_loss_takes_the_output_to_the_target(head):
    target = head.target(
        torch.randn(64, 1), 0.9, torch.zeros(64, 1), outputs(head, 1), outputs(head, 2)
    )
    output = outputs(head, 0).requires_grad_()
    optimizer = torch.optim.Adam([output], 0.05)
    before = head.error(output, target).mean()
    for _ in range(1000):
        optimizer.zero_grad()
        head.loss(output, target).backward()
        optimizer.step()
    assert head.error(output, target).max() < 1e-2 * before


@HEADS
def test_weights_of_samples_weigh_their_gradients(head):
    target = head.target(torch.randn(64, 1), 0.9, torch.zeros(64, 1), outputs(head, 1))
    weight = torch.rand(64, 1)
    plain = outputs(head, 0).requires_grad_()
    weighted = outputs(head, 0).requires_grad_()
    head.loss(plain, target).backward()
    head.loss(weighted, target, weight).backward()
    torch.testing.assert_close(weighted.grad, weight * plain.grad)
    torch.testing.assert_close(
        head.loss(plain, target, torch.ones(64, 1)), head.loss(plain, target)
    )


def test_scalar_error_is_the_absolute_td_error():
    torch.testing.assert_close(
        ScalarValue().error(make_column(1.0, 5.0), make_column(3.0, 2.0)), torch.tensor([2.0, 3.0])
    )


def test_bounded_targets_are_the_target_where_returns_can_be_and_the_nearer_end_elsewhere():
    value = torch.tensor([[-300.0], [-40.0], [0.0], [7.0]])
    column = torch.ones(4, 1)
    bounded = ScalarValue(*return_bounds(-1.0, 0.0, 0.98))
    # -1 + 0.98 Q: -295, -40.2, -1 and 5.86, within [-1 / (1 - 0.98), 0]
    assert bounded.target(-column, 0.98, 0 * column, value)[:, 0].tolist() == pytest.approx(
        [-50.0, -40.2, -1.0, 0.0]
    )
    assert ScalarValue(None, 0.0).target(-column, 0.98, 0 * column, value)[
        :, 0
    ].tolist() == pytest.approx([-295.0, -40.2, -1.0, 0.0])


@pytest.mark.parametrize("rewards", [(-1.0, 0.0), (-3.0, -1.0), (0.5, 2.0), (-1.0, 4.0)])
def test_no_return_of_bounded_rewards_lies_beyond_the_bounds_and_some_reach_them(rewards):
    least, most = return_bounds(*rewards, gamma=0.9)
    discounts = 0.9 ** torch.arange(400.0, dtype=torch.float64)
    for length in (1, 2, 7, 400):
        drawn = torch.empty(200, length, dtype=torch.float64).uniform_(*rewards)
        returns = (drawn * discounts[:length]).sum(1)
        assert least <= returns.min() and returns.max() <= most
    always = torch.tensor([[r * discounts[:length].sum() for r in rewards] for length in (1, 400)])
    assert always.min() == pytest.approx(least) and always.max() == pytest.approx(most)
    assert return_bounds(None, 1.0, 0.5) == (None, 2.0) and return_bounds(-1.0, None, 0.5) == (
        -2.0,
        None,
    )


def test_categorical_mean_by_hand():
    head = CategoricalValue(-1.0, 3.0, 3)  # atoms -1, 1, 3
    mean = head.mean(torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]]).log())
    torch.testing.assert_close(mean, make_column(0.5, 3.0))


def test_each_sample_takes_the_whole_distribution_of_the_lower_critic():
    head = CategoricalValue(0.0, 10.0, 6)
    wide = torch.tensor([[0.5, 0.0, 0.0, 0.0, 0.0, 0.5]]).log()  # mean 5
    low = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]]).log()  # mean 4
    high = torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0, 0.0]]).log()  # mean 6
    one = torch.cat((wide, wide))
    two = torch.cat((low, high))
    target = head.target(make_column(0.0, 0.0), 1.0, make_column(0.0, 0.0), one, two)
    torch.testing.assert_close(target, torch.cat((low, wide)).exp())


def test_categorical_error_is_the_divergence_worked_out_by_hand():
    # 0.5 ln(0.5 / 0.2) + 0.5 ln(0.5 / 0.8) = 0.223144; 1 ln(1 / 0.5) = 0.693147, with 0 ln 0 = 0
    head = CategoricalValue(0.0, 1.0, 2)
    error = head.error(
        torch.tensor([[0.2, 0.8], [0.5, 0.5]]).log(), torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    )
    torch.testing.assert_close(error, torch.tensor([0.223144, 0.693147]))


def test_the_support_reaches_from_end_to_end():
    head = CategoricalValue(-7.0, 13.0, 101)
    assert head.out_dim == 101 and head.support[0] == -7 and head.support[-1] == 13
    torch.testing.assert_close(head.support.diff(), torch.full((100,), 0.2))


def test_the_target_is_the_projection_of_the_softmax():
    head = CategoricalValue(-5.0, 5.0, 21)
    output = torch.randn(8, 21)
    reward = torch.randn(8, 1)
    done = torch.zeros(8, 1)
    expected = project_categorical(output.softmax(1), reward, 0.9, done, head.support)
    assert torch.equal(head.target(reward, 0.9, done, output), expected)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((0.0, 1.0, 1), "atoms must be in [2, 10_000], got 1"),
        ((1.0, 1.0, 51), "v_max must be in (1, 1e+38], got 1.0"),
        ((-math.inf, 1.0, 51), "v_min must be in [-1e+38, 1e+38], got -inf"),
        ((0.0, math.nan, 51), "v_max must be in (0, 1e+38], got nan"),
    ],
)
def test_a_wrong_support_is_named(arguments, message):
    with pytest.raises(ConfigError) as raised:
        CategoricalValue(*arguments)
    assert str(raised.value) == message
