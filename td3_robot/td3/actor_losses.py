"""What the actor descends: the sum of a short list of terms, chosen by the options when an agent is
made.

A term of your own is any function of an `ActorStep` that gives a 0-d tensor:
`agent.actor_terms.append(term)`.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from td3_robot.config.td3 import TD3Config


class ActorStep(NamedTuple):
    """What terms are made of: a batch as the actor meets it."""

    state: Tensor  # (B, o_dim), normalised where the agent does that
    action: Tensor  # (B, a_dim) pi(s)
    data_action: Tensor  # (B, a_dim) what the replay has there
    q: Tensor  # (B, 1) value_of(state, action)
    value_of: Callable[
        [Tensor, Tensor], Tensor
    ]  # what the actor ascends, for any actions: Q1, or the lower critic


ActorTerm = Callable[[ActorStep], Tensor]


def actor_terms(config: TD3Config, a_max: Tensor) -> list[ActorTerm]:
    """The terms that the options ask for; without any the paper's alone."""
    terms: list[ActorTerm] = [
        ascent if config.bc_alpha is None else partial(scaled_ascent, alpha=config.bc_alpha)
    ]
    if config.bc_alpha is not None:
        terms.append(filtered_imitation if config.bc_filter else imitation)
    if config.action_l2:
        terms.append(partial(action_penalty, weight=config.action_l2, a_max=a_max))
    return terms


def ascent(step: ActorStep) -> Tensor:
    """-mean Q(s, pi(s)): descending it ascends the deterministic policy gradient (paper, section
    3).
    """
    return -step.q.mean()


def scaled_ascent(step: ActorStep, alpha: float) -> Tensor:
    """-lambda * mean Q(s, pi(s)) with lambda = alpha / mean |Q|, a constant to the gradient:
    TD3+BC's first term.

    Fujimoto & Gu, "A Minimalist Approach to Offline Reinforcement Learning", NeurIPS 2021, who take
    alpha 2.5. The mean |Q| is that of the policy's actions, as in https://github.com/sfujim/TD3_BC.
    """
    return alpha / step.q.detach().abs().mean() * ascent(step)


def imitation(step: ActorStep) -> Tensor:
    """mean (pi(s) - a)^2 over the replay's actions: TD3+BC's second term."""
    return F.mse_loss(step.action, step.data_action)


def filtered_imitation(step: ActorStep) -> Tensor:
    """Imitation of those of the replay's actions alone that are worth more than the policy's own.

    The Q-filter of Nair et al., "Overcoming Exploration in Reinforcement Learning with
    Demonstrations", ICRA 2018, https://arxiv.org/abs/1709.10089. The policy's gradient follows the
    values around its own action; this lets it leave one hill for a higher one.
    """
    with torch.no_grad():
        better = (step.value_of(step.state, step.data_action) > step.q).to(step.q.dtype)
    return (better * (step.action - step.data_action).square()).mean()


def action_penalty(step: ActorStep, weight: float, a_max: Tensor) -> Tensor:
    """`weight` times the mean square of actions in units of a_max: 0 at rest, 1 where the policy's
    tanh is saturated.

    It keeps the policy where its gradient is alive (Plappert et al., arXiv:1802.09464, who give it
    weight 1).
    """
    return weight * (step.action / a_max).square().mean()
