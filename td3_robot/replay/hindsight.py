"""Goals that were reached anyway, taught as if they had been meant.

Andrychowicz et al., "Hindsight Experience Replay", NeurIPS 2017, https://arxiv.org/abs/1707.01495.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from td3_robot.config import HINDSIGHT
from td3_robot.fields import SHARE, require
from td3_robot.replay.buffer import Batch, ReplayBuffer

STRATEGIES = HINDSIGHT[1:]

Relabel = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]
Look = Callable[[Tensor], Tensor]  # memories (B, memory_dim) -> observations or goals (B, ...)


class Hindsight:
    """Replaces the goals of some rows of a batch by goals achieved in the same episode; a `Reader`.

    In place of observations the buffer holds memories, see `GoalVecEnv`: they are observed when they are drawn.

    The new goal is what the episode had achieved after a row that the strategy chooses (paper, section 4.5):
    `future`, uniformly among the drawn row and the later ones; `final`, the last one; `episode`, uniformly among
    all. An episode still running has the rows stored so far; one whose beginning is overwritten, those left.

    Args:
        relabel, achieved_goal, observe: see `GoalVecEnv`.
        strategy: one of STRATEGIES.
        ratio: share of a batch that gets another goal, rounded to whole rows. The paper's k goals for each
            transition are k / (k + 1): 0.8 is its k = 4.
    """

    def __init__(
        self,
        relabel: Relabel,
        achieved_goal: Look,
        observe: Look,
        strategy: str = "future",
        ratio: float = 0.8,
    ):
        require("strategy", strategy, STRATEGIES)
        require("ratio", ratio, SHARE)
        self.relabel, self.achieved_goal, self.observe = relabel, achieved_goal, observe
        self.strategy, self.ratio = strategy, ratio

    # Episodes of each environment are numbered. A row knows the number of its episode, and a table the
    # time step of each episode's newest row; an episode begins right after the one before it. The slots can hold
    # rows of so many episodes at once, and one more entry keeps the end of the one before the oldest.

    def allocate(self, buffer: ReplayBuffer) -> None:
        """See `Reader.allocate`."""
        device, envs = buffer.rows.device, buffer.num_envs
        self._entries = buffer.slots + 1
        self._now = 0  # the time step stored next
        self._number = torch.zeros(envs, dtype=torch.long, device=device)  # of the newest episodes
        self._entry = torch.zeros(buffer.slots, envs, dtype=torch.long, device=device)  # number % entries of a row
        self._last = torch.full((self._entries, envs), -1, device=device)  # [time step]

    def stored(self, buffer: ReplayBuffer, slot: int, count: int) -> None:
        """See `Reader.stored`."""
        begins = self._begins(buffer, slot, count)
        number = self._number + begins.cumsum(0)  # (count, B)
        entry = number % self._entries
        time = torch.arange(self._now, self._now + count, device=number.device)[:, None]
        self._entry[slot : slot + count] = entry
        self._last.scatter_reduce_(0, entry, time.expand_as(entry), "amax")
        self._number = number[-1]
        self._now += count

    def _begins(self, buffer: ReplayBuffer, slot: int, count: int) -> Tensor:
        """Whether the row before each new one ended an episode; (count, B) bool.

        Before the very first there may be anything: it does not matter whether its episode is number 0 or 1.
        """
        if slot:
            return buffer.ended(slot - 1, slot + count - 1)
        return torch.cat((buffer.ended(buffer.slots - 1, buffer.slots), buffer.ended(0, count - 1)))

    def goal_rows(self, buffer: ReplayBuffer, index: Tensor) -> Tensor:
        """For each row at index (B,) the row (B,) whose achieved goal it is given."""
        env = index % buffer.num_envs
        entry = self._entry.view(-1)[index]
        time = self._now - 1 - buffer.age(index)
        last = self._last[entry, env]
        if self.strategy == "final":
            return buffer.later(index, last - time)
        first = time
        if self.strategy == "episode":
            oldest = self._now - len(buffer) // buffer.num_envs
            first = (self._last[(entry - 1) % self._entries, env] + 1).clamp(min=oldest)
        unit = torch.rand(index.shape, generator=buffer.generator, device=index.device)
        chosen = first + (unit * (last - first + 1)).long()
        return buffer.later(index, chosen - time)

    def read(self, buffer: ReplayBuffer, index: Tensor) -> Batch:
        """See `Reader.read`; as rows are drawn independently, it does not matter that the first get the goals."""
        kept, count = buffer.batch(buffer.read(index)), round(self.ratio * len(index))
        old = Batch(*(part[count:] for part in kept[:5]))
        seen = self.observe(torch.cat((old.state, old.next_state))).chunk(2)
        old = old._replace(state=seen[0], next_state=seen[1])
        if not count:
            return old
        goal = self.achieved_goal(buffer.read(self.goal_rows(buffer, index[:count]), buffer.columns.next_state))
        memory, action, next_memory = kept.state[:count], kept.action[:count], kept.next_state[:count]
        state, next_state, reward, terminated = self.relabel(memory, action, next_memory, goal)
        new = (state, action, reward[:, None], next_state, terminated[:, None].to(reward.dtype))
        return Batch(*(torch.cat(parts) for parts in zip(new, old[:5])))
