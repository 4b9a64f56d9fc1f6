"""The arithmetic of TD3 (Fujimoto, van Hoof & Meger, ICML 2018), as pure functions."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Critic = Callable[[Tensor], Tensor]  # (B, o_dim + a_dim) -> (B, 1)


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


def clipped_double_q_target(reward: Tensor, discount: Tensor | float, done: Tensor, q1: Tensor, q2: Tensor) -> Tensor:
    """y = r + discount * (1 - done) * min(q1, q2) (paper, section 4.2).

    Args:
        reward, done, q1, q2: (B, 1); `done` is 1 only where the task terminated.
        discount: gamma, or (B, 1) gamma^k after k steps.

    Returns:
        (B, 1).
    """
    return reward + discount * (1.0 - done) * torch.min(q1, q2)


def critic_loss(q: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean squared TD error of one critic; `weight` (B, 1) are importance weights of the samples."""
    if weight is None:
        return F.mse_loss(q, target)
    return (weight * (q - target).square()).mean()


def actor_loss(Q1: Critic, state: Tensor, action: Tensor) -> Tensor:
    """-mean Q1(s, pi(s)): descending it ascends the deterministic policy gradient (paper, section 3)."""
    return -Q1(torch.cat((state, action), 1)).mean()
