"""The arithmetic of the critics (Fujimoto, van Hoof & Meger, ICML 2018), as pure functions."""

import torch
from torch import Tensor
from torch.nn import functional as F

from td3_robot.replay import Batch


def require_columns(batch: Batch) -> None:
    """Check that reward, done, discount and weight of a batch are columns (B, 1).

    Raises:
        ValueError: one is of another shape; as (B,) it would silently broadcast to (B, B).
    """
    column = (len(batch.state), 1)
    for name in ("reward", "done", "discount", "weight"):
        part = getattr(batch, name)
        if part is not None and part.shape != column:
            raise ValueError(f"{name} must be {column}, got {tuple(part.shape)}")


def smooth_target_action(
    target_action: Tensor, noise: Tensor, noise_clip: float, a_max: Tensor
) -> Tensor:
    """Smooth target actions (paper, section 5.3), every joint clamped to its own bound.

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
    """Compute y = r + discount * (1 - done) * min(q1, q2) (paper, section 4.2).

    Args:
        reward, done, q1, q2: (B, 1); `done` is 1 only where the task terminated. Without q2 it is
            DDPG's target.
        discount: gamma, or (B, 1) gamma^k after k steps.

    Returns:
        (B, 1).
    """
    q = q1 if q2 is None else torch.min(q1, q2)
    return reward + discount * (1.0 - done) * q


def return_bounds(
    r_min: float | None, r_max: float | None, gamma: float
) -> tuple[float | None, float | None]:
    """Return the bounds of the discounted return of rewards in [r_min, r_max]; None is no bound.

    An episode lasts from one step, with return r, to forever, with return r (1 + gamma + ...)
    = r / (1 - gamma).
    """
    least = None if r_min is None else min(r_min, r_min / (1.0 - gamma))
    most = None if r_max is None else max(r_max, r_max / (1.0 - gamma))
    return least, most


def critic_loss(q: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute one critic's mean squared TD error, with importance weights `weight` (B, 1)."""
    if weight is None:
        return F.mse_loss(q, target)
    return (weight * (q - target).square()).mean()


def project_categorical(
    probability: Tensor, reward: Tensor, discount: Tensor | float, done: Tensor, support: Tensor
) -> Tensor:
    """Project r + discount * (1 - done) * Z onto the atoms of Z (Bellemare et al., ICML 2017).

    Each shifted atom, clipped to the support, splits its probability between its two neighbours in
    proportion to nearness (their Algorithm 1), which keeps the mean if nothing is clipped.

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
    place = (shifted - support[0]) * (last / (support[-1] - support[0]))  # in units of atoms
    place = place.clamp(0, last)
    # a reward that is NaN makes the target NaN, and is no place
    lower = place.nan_to_num().floor()
    to_upper = probability * (place - lower)
    lower = lower.long()
    projected = torch.zeros_like(probability).scatter_add_(1, lower, probability - to_upper)
    return projected.scatter_add_(1, (lower + 1).clamp(max=last), to_upper)


def categorical_loss(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute the mean cross-entropy of one critic's `logits` (B, N) with `target` (B, N).

    `weight` (B, 1) are importance weights of the samples.
    """
    if weight is None:
        return F.cross_entropy(logits, target)
    return (weight[:, 0] * F.cross_entropy(logits, target, reduction="none")).mean()
