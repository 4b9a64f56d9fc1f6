"""N-step returns, computed when a batch is drawn."""

import torch
from torch import Tensor

from td3_robot.config.field import SHARE, require
from td3_robot.config.run import N_STEP
from td3_robot.replay.buffer import Batch, OneStep, ReplayBuffer


class NStep(OneStep):
    """A `Reader` of n-step transitions: the k <= n steps from a drawn row on.

    With k steps until the end of the episode, the newest data or n:

        reward = r_0 + gamma r_1 + ... + gamma^(k-1) r_(k-1), next_state = that of step k - 1,
        discount = gamma^k, done = 1 where the last step terminated,

    so that `reward + discount * (1 - done) * Q(next_state)` is the truncated return that Sutton,
    "Learning to Predict by the Methods of Temporal Differences" (1988), bootstraps from. The steps
    after the first were chosen by older policies and are not corrected for that.

    Args:
        n: largest number of steps.
        gamma: discount of one step, in [0, 1].
    """

    def __init__(self, n: int, gamma: float):
        require("n", n, N_STEP)
        require("gamma", gamma, SHARE)
        self.n = n
        self.gamma = gamma

    def allocate(self, buffer: ReplayBuffer) -> None:
        """Prepare the powers of gamma on the buffer's device."""
        device = buffer.rows.device
        self._ahead = torch.arange(self.n, device=device)
        self._powers = torch.tensor(
            [self.gamma**k for k in range(self.n + 1)], device=device, dtype=torch.float32
        )

    def read(self, buffer: ReplayBuffer, index: Tensor) -> Batch:
        """Return the n-step transitions from the rows at index (B,)."""
        at = buffer.columns
        path = buffer.shift(index[:, None], self._ahead)  # (B, n)
        columns = slice(at.reward.start, at.cut.stop)
        rows = buffer.read(path.flatten(), columns).view(-1, self.n, 3)
        reward, terminated, cut = rows.unbind(2)  # (B, n)
        exists = self._ahead[1:] <= buffer.compute_age(index)[:, None]
        continues = (terminated[:, :-1] + cut[:, :-1] == 0) & exists
        # (B, n), 1 ... 1 0 ... 0
        taken = torch.cat((torch.ones_like(path[:, :1]), continues.cumprod(1)), 1)
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
