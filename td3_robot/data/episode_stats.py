"""Returns and successes of the episodes of exploration, at no extra step."""

import math
from typing import Any

import torch
from torch import Tensor

from td3_robot.utils.communicator import SINGLE_PROCESS, Communicator
from td3_robot.vec_env import Step


class EpisodeStatistics:
    """Means over the episodes that ended since the last `pop_means`.

    Everything stays on the device until then. Exploration noise and random first steps are part of
    these figures, so they do not measure the policy alone.

    Args:
        num_envs: B, environments that step together.
        device: device of their steps.

    Attributes:
        returns: (B,) undiscounted sum of the rewards of each running episode.
    """

    def __init__(self, num_envs: int, device: torch.device | str):
        self.returns = torch.zeros(num_envs, device=device, dtype=torch.float32)
        # episodes, their returns, their successes
        self._sums = torch.zeros(3, device=device, dtype=torch.float32)
        self._knows_success = False

    def count(self, step: Step, left_out: Tensor | None = None) -> None:
        """Count one step of all environments, but no episode that ends where `left_out` (B,)."""
        ended = step.terminated | step.truncated
        valid = torch.ones_like(ended) if step.valid is None else step.valid
        self.returns = self.returns + torch.where(valid, step.reward, 0.0)
        # some environments report it from the end of an episode on
        self._knows_success |= "success" in step.info
        success = step.info.get("success", torch.zeros_like(ended)).bool()
        counted = ended & valid if left_out is None else ended & valid & ~left_out
        columns = (torch.ones_like(self.returns), self.returns, success.to(self.returns.dtype))
        self._sums = self._sums + torch.where(counted, torch.stack(columns), 0.0).sum(1)
        self.returns = self.returns.masked_fill(ended, 0.0)

    def pop_means(self, communicator: Communicator = SINGLE_PROCESS) -> dict[str, float]:
        """Return `train_return` and, if known, `train_success_rate`, and start the next means.

        Both are NaN if no episode ended. Of several processes, each counts by its episodes.
        """
        communicator.all_reduce_mean([self._sums])
        (self._knows_success,) = communicator.all_reduce_any(self._knows_success)
        episodes, total, successes = self._sums.tolist()
        self._sums = torch.zeros_like(self._sums)
        means = {"train_return": total / episodes if episodes else math.nan}
        if self._knows_success:
            means["train_success_rate"] = successes / episodes if episodes else math.nan
        return means

    def begin(self) -> None:
        """Start new episodes in all environments."""
        self.returns = torch.zeros_like(self.returns)

    def state_dict(self) -> dict[str, Tensor | bool]:
        """Return all that the next means depend on."""
        return {"returns": self.returns, "sums": self._sums, "knows_success": self._knows_success}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`."""
        # resume points of older versions have no such entry: the next step says it
        self._knows_success = bool(state.get("knows_success"))
        device = self.returns.device
        self.returns = state["returns"].to(device)
        self._sums = state["sums"].to(device)
