"""The arithmetic of TD3 (Fujimoto, van Hoof & Meger, ICML 2018) and of its options, as pure functions."""

import torch
from torch import Tensor
from torch.nn import functional as F


def smoothed_target_action(target_action: Tensor, noise: Tensor, noise_clip: float, a_max: Tensor) -> Tensor:
    """Target policy smoothing (paper, section 5.3), every joint clamped to its own bound.

    Args:
        target_action: (B, a_dim) the target actor's action in the next state.
        noise: (B, a_dim) drawn from N(0, policy_noise^2), in units of a_max.
        noise_clip: bound of the noise, in units of a_max.
        a_max: () or (a_dim,) bound of the actions.

    Returns:
        (B, a_dim) inside [-a_max, a_max].
    """
    smoothed = target_action + noise.clamp(-noise_clip, noise_clip) * a_max
    return torch.clamp(smoothed, -a_max, a_max)


def clipped_double_q_target(
    reward: Tensor, discount: Tensor | float, done: Tensor, q1: Tensor, q2: Tensor | None = None
) -> Tensor:
    """y = r + discount * (1 - done) * min(q1, q2) (paper, section 4.2).

    Args:
        reward, done, q1, q2: (B, 1); `done` is 1 only where the task terminated. Without q2 it is DDPG's target.
        discount: gamma, or (B, 1) gamma^k after k steps.

    Returns:
        (B, 1).
    """
    q = q1 if q2 is None else torch.min(q1, q2)
    return reward + discount * (1.0 - done) * q


def critic_loss(q: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean squared TD error of one critic; `weight` (B, 1) are importance weights of the samples."""
    if weight is None:
        return F.mse_loss(q, target)
    return (weight * (q - target).square()).mean()


def categorical_projection(
    probability: Tensor, reward: Tensor, discount: Tensor | float, done: Tensor, support: Tensor
) -> Tensor:
    """The distribution of r + discount * (1 - done) * Z on the atoms of Z (Bellemare, Dabney & Munos, ICML 2017).

    Each shifted atom, clipped to the support, gives its probability to its two neighbours in proportion to
    nearness (their Algorithm 1), so the mean stays what it was wherever nothing is clipped.

    Args:
        probability: (B, N) of the atoms of Z.
        reward, done: (B, 1).
        discount: gamma, or (B, 1) gamma^k after k steps.
        support: (N,) values of the atoms, evenly spaced and rising.

    Returns:
        (B, N) probabilities.
    """
    last = len(support) - 1
    shifted = reward + discount * (1.0 - done) * support
    place = ((shifted - support[0]) * (last / (support[-1] - support[0]))).clamp(0, last)  # in units of atoms
    lower = place.floor()
    to_upper = probability * (place - lower)
    lower = lower.long()
    projected = torch.zeros_like(probability).scatter_add_(1, lower, probability - to_upper)
    return projected.scatter_add_(1, (lower + 1).clamp(max=last), to_upper)


def categorical_loss(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean cross-entropy of one critic's atoms, `logits` (B, N), with the probabilities `target` (B, N).

    `weight` (B, 1) are importance weights of the samples.
    """
    if weight is None:
        return F.cross_entropy(logits, target)
    return (weight[:, 0] * F.cross_entropy(logits, target, reduction="none")).mean()


def actor_loss(q: Tensor) -> Tensor:
    """-mean Q(s, pi(s)): descending it ascends the deterministic policy gradient (paper, section 3).

    Args:
        q: (B, 1) the critic's value of the policy's own actions.
    """
    return -q.mean()


def action_penalty(action: Tensor, a_max: Tensor) -> Tensor:
    """Mean square of actions (B, a_dim) in units of a_max: 0 at rest, 1 where the policy's tanh is saturated.

    Added to the actor's loss it keeps the policy where its gradient is alive (Plappert et al., arXiv:1802.09464,
    who give it weight 1).
    """
    return (action / a_max).square().mean()


def actor_loss_bc(q: Tensor, action: Tensor, data_action: Tensor, alpha: float, data_q: Tensor | None = None) -> Tensor:
    """-lambda * mean Q(s, pi(s)) + mean (pi(s) - a)^2 with lambda = alpha / mean |Q| (TD3+BC).

    Fujimoto & Gu, "A Minimalist Approach to Offline Reinforcement Learning", NeurIPS 2021. lambda is a constant to
    the gradient, and the mean |Q| is that of the policy's actions, as in https://github.com/sfujim/TD3_BC.

    Args:
        q: (B, 1) the critic's value of the policy's own actions.
        action: (B, a_dim) pi(s).
        data_action: (B, a_dim) what the data has there.
        alpha: weight of the value; the authors take 2.5.
        data_q: (B, 1) the critic's value of `data_action`. If given, only actions that it values above the policy's
            are imitated: the Q-filter of Nair et al., "Overcoming Exploration in Reinforcement Learning with
            Demonstrations", ICRA 2018, https://arxiv.org/abs/1709.10089. The policy's gradient follows the values
            around its own action; this lets it leave one hill for a higher one.
    """
    weight = alpha / q.detach().abs().mean()
    if data_q is None:
        return weight * actor_loss(q) + F.mse_loss(action, data_action)
    better = (data_q > q.detach()).to(q.dtype)
    return weight * actor_loss(q) + (better * (action - data_action).square()).mean()
