"""The seam between learning and simulation: all that either half knows of the other."""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor


class Step(NamedTuple):
    """What one control step of B environments returns.

    `observation` is what to act on next: where an episode ended it is already the first observation
    of the next one. `next_observation` is the true successor of the action, before any automatic
    reset; it is the one to learn from. Bootstrapping stops at `terminated`, never at `truncated`.
    """

    observation: Tensor  # (B, o_dim)
    reward: Tensor  # (B,)
    terminated: Tensor  # (B,) bool: the task itself ended; there is no future value
    truncated: Tensor  # (B,) bool: a time limit cut the episode; the future still has value
    next_observation: Tensor  # (B, o_dim)
    info: dict[str, Tensor]  # per-env measurements, each (B, ...), of the step just made


@runtime_checkable
class VecEnv(Protocol):
    """B environments that step together and start their next episode by themselves.

    Actions are (B, a_dim) in [-1, 1]; scaling to physical units is the environment's own affair.
    """

    num_envs: int
    o_dim: int
    a_dim: int
    device: torch.device

    def reset(self, seed: int | None = None) -> Tensor:
        """Start B new episodes; a seed makes all that follows repeatable. Returns (B, o_dim)."""

    def step(self, action: Tensor) -> Step:
        """Apply actions (B, a_dim) in [-1, 1] for one control period.

        Raises:
            NotFiniteError: an action is NaN or infinite.
        """

    def state_dict(self) -> dict:
        """Everything the next step depends on, random generators included, for an exact resume."""

    def load_state_dict(self, state: dict) -> None:
        """Take back what `state_dict` gave."""
