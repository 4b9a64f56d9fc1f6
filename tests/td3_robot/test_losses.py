"""The arithmetic of TD3 against numbers worked out on paper."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from td3_robot.losses import actor_loss, clipped_double_q_target, critic_loss, smoothed_target_action

A_MAX = torch.tensor([1.0, 0.1])


def column(*values):
    return torch.tensor(values)[:, None]


def test_target_is_reward_plus_discounted_smaller_q():
    # 1 + 0.9 * min(10, 8) = 8.2;  -2 + 0.9 * min(-5, 4) = -6.5;  terminated: the reward alone
    y = clipped_double_q_target(
        reward=column(1.0, -2.0, 3.0),
        discount=0.9,
        done=column(0.0, 0.0, 1.0),
        q1=column(10.0, -5.0, 100.0),
        q2=column(8.0, 4.0, 200.0),
    )
    torch.testing.assert_close(y, column(8.2, -6.5, 3.0))


def test_target_takes_a_discount_for_each_sample():
    # 1 + 0.5 * 4 = 3;  1 + 0.25 * 4 = 2
    one, four = column(1.0, 1.0), column(4.0, 4.0)
    y = clipped_double_q_target(one, column(0.5, 0.25), 0 * one, four, four)
    torch.testing.assert_close(y, column(3.0, 2.0))


def test_smoothing_clips_the_noise_and_then_every_joint_to_its_own_bound():
    # noise held to +-0.5 of a joint's range: 0.9 + 0.5 = 1.4 -> 1.0;      0.09 - 0.5 * 0.1 = 0.04
    #                                        -0.95 - 0.2 = -1.15 -> -1.0;  -0.09 - 0.3 * 0.1 = -0.12 -> -0.1
    action = torch.tensor([[0.9, 0.09], [-0.95, -0.09]])
    noise = torch.tensor([[0.7, -3.0], [-0.2, -0.3]])
    smoothed = smoothed_target_action(action, noise, 0.5, A_MAX)
    torch.testing.assert_close(smoothed, torch.tensor([[1.0, 0.04], [-1.0, -0.1]]))


def test_smoothing_takes_one_bound_for_all_joints():
    smoothed = smoothed_target_action(torch.tensor([[1.9, -1.0]]), torch.tensor([[0.1, 0.2]]), 0.5, torch.tensor(2.0))
    torch.testing.assert_close(smoothed, torch.tensor([[2.0, -0.6]]))


@given(st.integers(0, 2**31), st.floats(0, 5), st.floats(0, 2))
def test_smoothed_actions_stay_in_bounds_and_near_the_action(seed, policy_noise, noise_clip):
    generator = torch.Generator().manual_seed(seed)
    action = (2 * torch.rand(64, 2, generator=generator) - 1) * A_MAX
    noise = policy_noise * torch.randn(64, 2, generator=generator)
    smoothed = smoothed_target_action(action, noise, noise_clip, A_MAX)
    assert (smoothed.abs() <= A_MAX).all()
    assert ((smoothed - action).abs() <= noise_clip * A_MAX + 1e-6).all()


def test_critic_loss_is_the_mean_squared_error():
    q, target = column(1.0, 2.0), column(3.0, 5.0)  # errors 2 and 3
    torch.testing.assert_close(critic_loss(q, target), torch.tensor(6.5))
    torch.testing.assert_close(critic_loss(q, target, weight=column(1.0, 0.5)), torch.tensor(4.25))  # (4 + 4.5) / 2


def test_actor_loss_is_minus_the_mean_value_of_state_and_action():
    def Q1(x):
        return x @ torch.tensor([[1.0], [10.0]])  # state + 10 * action

    loss = actor_loss(Q1, column(1.0, 2.0), column(3.0, 5.0))  # values 31 and 52
    torch.testing.assert_close(loss, torch.tensor(-41.5))
