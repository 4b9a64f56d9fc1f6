"""The terms of the actor's loss against numbers worked out on paper, and which options choose
which.
"""

import pytest
import torch

from td3_robot import TD3, Batch
from td3_robot.config.run import TD3Config
from td3_robot.td3.actor_losses import (
    ActorStep,
    action_penalty,
    ascent,
    filtered_imitation,
    imitation,
    make_actor_terms,
    scaled_ascent,
)
from tests.support import make_column

A_MAX = torch.tensor([2.0, 0.1])


def step_of(q=None, action=None, data_action=None, value_of=None):
    return ActorStep(None, action, data_action, q, value_of)


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, [(ascent, {})]),
        ({"action_l2": 0.5}, [(ascent, {}), (action_penalty, {"weight": 0.5, "a_max": A_MAX})]),
        ({"bc_alpha": 2.5}, [(scaled_ascent, {"alpha": 2.5}), (imitation, {})]),
        (
            {"bc_alpha": 2.5, "bc_filter": True},
            [(scaled_ascent, {"alpha": 2.5}), (filtered_imitation, {})],
        ),
    ],
)
def test_options_choose_terms(options, expected):
    terms = make_actor_terms(TD3Config(**options), A_MAX)
    assert [
        (getattr(term, "func", term), getattr(term, "keywords", {})) for term in terms
    ] == expected


def test_ascent_is_minus_the_mean_value():
    torch.testing.assert_close(ascent(step_of(make_column(31.0, 52.0))), torch.tensor(-41.5))


def test_action_penalty_is_the_mean_square_in_units_of_the_bound():
    action = torch.tensor([[2.0, 0.05], [-1.0, 0.0]])
    expected = torch.tensor(3.0 * (1.0 + 0.25 + 0.25 + 0.0) / 4)
    torch.testing.assert_close(action_penalty(step_of(action=action), 3.0, A_MAX), expected)


def test_td3_bc_by_hand():
    # lambda = 2.5 / mean(4, 6) = 0.5; -0.5 * mean(4, -6) = 0.5; mean(0.1^2, 0.3^2, 0, 0.2^2) =
    # 0.035
    action = torch.tensor([[0.1, 0.5], [0.0, 0.2]])
    step = step_of(make_column(4.0, -6.0), action, torch.tensor([[0.0, 0.2], [0.0, 0.0]]))
    torch.testing.assert_close(scaled_ascent(step, 2.5), torch.tensor(0.5))
    torch.testing.assert_close(imitation(step), torch.tensor(0.035))


def test_scaled_ascent_does_not_change_with_the_unit_of_the_reward():
    q = make_column(4.0, -1.0)
    torch.testing.assert_close(
        scaled_ascent(step_of(q), 2.5), scaled_ascent(step_of(1000 * q), 2.5)
    )


def test_scaled_ascent_takes_lambda_as_a_constant():
    # d loss / d q = -lambda / B = -(2 / 2) / 2, where a lambda that follows q would give 0 for
    # values of one sign
    q = make_column(1.0, 3.0).requires_grad_()
    scaled_ascent(step_of(q), 2.0).backward()
    torch.testing.assert_close(q.grad, make_column(-0.5, -0.5))


def test_filtered_imitation_takes_the_better_actions_alone_and_gives_values_no_gradient():
    # the value is the first element: 0.4 > 0.1 is imitated, 0.2 < 0.3 and 0.5 = 0.5 are not
    action = torch.tensor([[0.1, 0.0], [0.3, 0.0], [0.5, 0.0]], requires_grad=True)
    data = torch.tensor([[0.4, 0.2], [0.2, 0.2], [0.5, 0.2]])
    step = step_of(action[:, :1], action, data, lambda state, a: a[:, :1])
    loss = filtered_imitation(step)
    torch.testing.assert_close(loss, torch.tensor((0.3**2 + 0.2**2) / 6))
    loss.backward()
    torch.testing.assert_close(
        action.grad, torch.tensor([[-0.6, -0.4], [0.0, 0.0], [0.0, 0.0]]) / 6
    )


def test_the_filter_holds_the_value_that_the_actor_ascends_to_the_same_value_of_the_data():
    """Q1 gives 10 a, Q2 gives a: by the lower one the data's positive actions are worth less, by Q1
    alone more.
    """
    agent = TD3(
        3, 1, hidden=(8,), bc_alpha=1e-6, bc_filter=True, actor_min_q=True, policy_delay=1, seed=3
    )
    agent.Q1.forward = lambda x: 10.0 * x[:, 3:]
    agent.Q2.forward = lambda x: x[:, 3:]
    state = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    policy = agent.select_action(state)
    data = torch.where(policy > 0, 0.5 * policy, policy - 0.1)  # everywhere below the policy's
    loss = agent._update_actor(state, data)
    assert abs(loss) < 2e-6  # nothing is imitated: what is left is alpha


def test_a_term_of_one_s_own_is_added_to_the_list():
    agent = TD3(1, 1, hidden=(8,), actor_lr=1e-2, policy_delay=1, policy_noise=0.0, critic_lr=1e-12)
    agent.actor_terms[:] = [lambda step: (step.action - 0.3).square().mean()]
    ones = torch.ones(16, 1)
    for _ in range(200):
        agent.update(Batch(ones, ones, ones, ones, ones))
    assert abs(agent.select_action(ones[0]).item() - 0.3) < 0.01
