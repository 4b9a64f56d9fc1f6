"""Prioritised replay: transitions with large errors of the critics are drawn more often.

Schaul, Quan, Antonoglou & Silver, "Prioritized Experience Replay", ICLR 2016,
https://arxiv.org/abs/1511.05952.
"""

import torch
from torch import Tensor

from td3_robot.config.field import POSITIVE, SHARE, require
from td3_robot.replay.sum_tree import SumTree

_LARGEST = 1e30  # an infinite priority would leave no chance to any other


class Prioritized:
    """A `Sampler` with proportional prioritisation (paper, section 3.3).

    Row i is drawn with probability P(i) = p_i^alpha / sum_k p_k^alpha, where p_i = |error_i| +
    epsilon, and has the importance weight w_i = (N P(i))^-beta (section 3.4), divided by the
    largest of its batch so that weights only scale updates down. New transitions get the largest
    priority so far, so that each is soon drawn.

    Args:
        alpha: how much priorities matter; 0 is uniform.
        beta: share of the bias that weights correct at the start, in [0, 1]; `anneal` raises it to
            1.
        epsilon: keeps transitions without error drawable.
    """

    def __init__(self, alpha: float = 0.6, beta: float = 0.4, epsilon: float = 1e-6):
        require("alpha", alpha, SHARE)
        require("beta", beta, SHARE)
        require("epsilon", epsilon, POSITIVE)
        self.alpha = alpha
        self.beta = beta
        self.epsilon = epsilon
        self._beta_now = beta

    def allocate(self, size: int, device: torch.device, generator: torch.Generator) -> None:
        """Make a sum tree of `size` priorities, all 0."""
        self._generator = generator
        self._tree = SumTree(size, device)  # of p^alpha
        self._greatest = torch.ones((), dtype=torch.float64, device=device)  # p^alpha so far

    def add_rows(self, first: int, count: int, valid: Tensor | None) -> None:
        """Give new transitions the largest priority so far."""
        weights = self._greatest.expand(count) if valid is None else self._greatest * valid
        self._tree.set_range(first, weights)

    def draw(self, batch_size: int) -> tuple[Tensor, Tensor]:
        """Draw indices (batch_size,) by priority, and weights (batch_size, 1)."""
        index = self._tree.draw(batch_size, self._generator)
        weight = self._tree.weights[index]  # N and the sum of all cancel in w_i / max w
        return index, (weight / weight.min()).pow(-self._beta_now).float().unsqueeze(1)

    def update(self, index: Tensor, error: Tensor) -> None:
        """Set priorities from the critics' errors (B,), the largest of several of one row."""
        priority = error.detach().abs().double() + self.epsilon
        # an error that is not finite stops the run, but only when the trainer next checks losses
        priority = priority.nan_to_num(nan=_LARGEST, posinf=_LARGEST).pow(self.alpha)
        self._tree.set(index, priority)
        self._greatest = torch.maximum(self._greatest, priority.max())

    def anneal(self, progress: float) -> None:
        """Raise beta linearly to 1 as progress goes from 0 to 1 (paper, section 3.4)."""
        self._beta_now = self.beta + (1.0 - self.beta) * min(max(progress, 0.0), 1.0)

    def state_dict(self, index: Tensor) -> dict:
        """Return the priorities p^alpha of the rows at `index`, their largest so far and beta."""
        return {
            "priorities": self._tree.weights[index],
            "greatest": self._greatest,
            "beta": self._beta_now,
        }

    def load_state_dict(self, state: dict, index: Tensor) -> None:
        """Restore priorities; rows of another sampler keep the priority of new ones."""
        if "priorities" not in state:
            return
        self._beta_now = state["beta"]
        self._greatest = state["greatest"].to(index.device)
        saved = state["priorities"].to(index.device)
        weights = torch.zeros_like(self._tree.weights)
        weights[index] = saved[len(saved) - len(index) :]
        self._tree.set_range(0, weights)
