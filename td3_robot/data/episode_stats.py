"""How the episodes end that are explored: their returns and successes, without a step of their
own.
"""

import math
from typing import Any

import torch
from torch import Tensor

from td3_robot.vec_env import Step


class EpisodeStatistics:
    """Means over the episodes that ended since they were last asked for.

    Everything stays on the device until then. Exploration's noise and random first steps are in
    these figures, so they are no measure of the policy alone.

    Args:
        num_envs: B, environments that step together.
        device: where their steps are.

    Attributes:
        returns: (B,) undiscounted sum of rewards of each running episode, as the environment gives
            them.
    """

    def __init__(self, num_envs: int, device: torch.device | str):
        self.returns = torch.zeros(num_envs, device=device)
        self._sums = torch.zeros(3, device=device)  # episodes, their returns, their successes
        self._knows_success = False

    def count(self, step: Step, left_out: Tensor | None = None) -> None:
        """Count one step of all environments in; episodes that end where `left_out` (B,) is true
        are not counted.
        """
        ended = step.terminated | step.truncated
        valid = torch.ones_like(ended) if step.valid is None else step.valid
        self.returns = self.returns + torch.where(valid, step.reward, 0.0)
        self._knows_success = "success" in step.info
        success = step.info["success"].bool() if self._knows_success else torch.zeros_like(ended)
        counted = ended & valid if left_out is None else ended & valid & ~left_out
        columns = (torch.ones_like(self.returns), self.returns, success.to(self.returns.dtype))
        self._sums = self._sums + torch.where(counted, torch.stack(columns), 0.0).sum(1)
        self.returns = self.returns.masked_fill(ended, 0.0)

    def take(self) -> dict[str, float]:
        """`train_return` and, where the environment tells success, `train_success_rate`; NaN if no
        episode ended.
        """
        episodes, total, successes = self._sums.tolist()
        self._sums = torch.zeros_like(self._sums)
        means = {"train_return": total / episodes if episodes else math.nan}
        if self._knows_success:
            means["train_success_rate"] = successes / episodes if episodes else math.nan
        return means

    def begin(self) -> None:
        """All environments have begun new episodes."""
        self.returns = torch.zeros_like(self.returns)

    def state_dict(self) -> dict[str, Tensor | bool]:
        """What the next means depend on."""
        return {"returns": self.returns, "sums": self._sums, "knows_success": self._knows_success}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self._knows_success = bool(
            state.get("knows_success")
        )  # older resume points have to see a step first
        self.returns, self._sums = (
            state[name].to(self.returns.device) for name in ("returns", "sums")
        )
