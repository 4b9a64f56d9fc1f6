"""Terms of the actor's loss, which is the sum of those that the options choose.

Your own term is any function of an `ActorStep` that returns a 0-d tensor:
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
    """A batch as the terms of the actor's loss receive it."""

    state: Tensor  # (B, o_dim + privileged), normalised if the agent does so
    action: Tensor  # (B, a_dim) pi(s)
    data_action: Tensor  # (B, a_dim) from the replay
    q: Tensor  # (B, 1) value_of(state, action)
    # the value that the actor ascends, of any (state, action): Q1, or the lower critic
    value_of: Callable[[Tensor, Tensor], Tensor]


ActorTerm = Callable[[ActorStep], Tensor]


def make_actor_terms(config: TD3Config, a_max: Tensor) -> list[ActorTerm]:
    """Make the terms that the options ask for; the default is the paper's alone."""
    terms: list[ActorTerm] = [
        ascent if config.bc_alpha is None else partial(scaled_ascent, alpha=config.bc_alpha)
    ]
    if config.bc_alpha is not None:
        terms.append(filtered_imitation if config.bc_filter else imitation)
    if config.action_l2:
        terms.append(partial(action_penalty, weight=config.action_l2, a_max=a_max))
    return terms


def ascent(step: ActorStep) -> Tensor:
    """Compute -mean Q(s, pi(s)), whose descent is the deterministic policy gradient (section 3)."""
    return -step.q.mean()


def scaled_ascent(step: ActorStep, alpha: float) -> Tensor:
    """Compute TD3+BC's first term, -lambda * mean Q(s, pi(s)) with lambda = alpha / mean |Q|.

    Fujimoto & Gu, "A Minimalist Approach to Offline Reinforcement Learning", NeurIPS 2021, who take
    alpha 2.5. Lambda is a constant to the gradient. The mean |Q| is that of the policy's actions,
    as in https://github.com/sfujim/TD3_BC.
    """
    return alpha / step.q.detach().abs().mean() * ascent(step)


def imitation(step: ActorStep) -> Tensor:
    """Compute TD3+BC's second term, mean (pi(s) - a)^2 over the replay's actions."""
    return F.mse_loss(step.action, step.data_action)


def filtered_imitation(step: ActorStep) -> Tensor:
    """Compute the imitation of those replay actions alone that beat the policy's own.

    This is the Q-filter of Nair et al., "Overcoming Exploration in Reinforcement Learning with
    Demonstrations", ICRA 2018, https://arxiv.org/abs/1709.10089. The policy's gradient climbs the
    values around its own action; this lets it jump to a higher local maximum.
    """
    with torch.no_grad():
        better = (step.value_of(step.state, step.data_action) > step.q).to(step.q.dtype)
    return (better * (step.action - step.data_action).square()).mean()


def action_penalty(step: ActorStep, weight: float, a_max: Tensor) -> Tensor:
    """Compute `weight` times the mean square of actions in units of a_max, 1 at saturation.

    It keeps the policy's tanh out of saturation (Plappert et al., arXiv:1802.09464, with weight 1).
    """
    return weight * (step.action / a_max).square().mean()
