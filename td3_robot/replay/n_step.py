"""Returns over several steps, put together when a batch is drawn."""

import torch
from torch import Tensor

from td3_robot.config.field import SHARE, require
from td3_robot.config.run import N_STEP
from td3_robot.replay.buffer import Batch, OneStep, ReplayBuffer


class NStep(OneStep):
    """The k <= n steps really taken from a drawn row on, as one transition; a `Reader`.

    With k steps until the episode ends, the newest data or n is reached:

        reward = r_0 + gamma r_1 + ... + gamma^(k-1) r_(k-1), next_state = that of the last step,
        discount = gamma^k, done = 1 where the last step terminated,

    so that `reward + discount * (1 - done) * Q(next_state)` is the truncated return that Sutton,
    "Learning to Predict by the Methods of Temporal Differences" (1988), bootstraps from. The steps
    after the first were chosen by older policies and are not corrected for that.

    Args:
        n: most steps.
        gamma: discount of one step, in [0, 1].
    """

    def __init__(self, n: int, gamma: float):
        require("n", n, N_STEP)
        require("gamma", gamma, SHARE)
        self.n, self.gamma = n, gamma

    def allocate(self, buffer: ReplayBuffer) -> None:
        """See `Reader.allocate`."""
        device = buffer.rows.device
        self._ahead = torch.arange(self.n, device=device)
        self._powers = torch.tensor([self.gamma**k for k in range(self.n + 1)], device=device)

    def read(self, buffer: ReplayBuffer, index: Tensor) -> Batch:
        """See `Reader.read`."""
        at = buffer.columns
        path = buffer.later(index[:, None], self._ahead)  # (B, n)
        columns = slice(at.reward.start, at.cut.stop)
        reward, terminated, cut = (
            buffer.read(path.flatten(), columns).view(-1, self.n, 3).unbind(2)
        )  # (B, n)
        leads_on = (terminated[:, :-1] + cut[:, :-1] == 0) & (
            self._ahead[1:] <= buffer.age(index)[:, None]
        )
        taken = torch.cat(
            (torch.ones_like(path[:, :1]), leads_on.cumprod(1)), 1
        )  # (B, n), 1 ... 1 0 ... 0
        steps = taken.sum(1, keepdim=True)  # (B, 1)
        last = path.gather(1, steps - 1).squeeze(1)
        first = buffer.read(index, slice(at.state.start, at.action.stop))
        return Batch(
            first[:, at.state],
            first[:, at.action],
            # where, not a product: beyond the newest data a row may hold anything, NaN included
            torch.where(taken > 0, reward * self._powers[:-1], 0.0).sum(1, keepdim=True),
            buffer.read(last, at.next_state),
            terminated.gather(1, steps - 1),
            self._powers[steps],
        )
