"""Goals that were reached anyway, taught as if they had been meant.

Andrychowicz et al., "Hindsight Experience Replay", NeurIPS 2017, https://arxiv.org/abs/1707.01495.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from td3_robot.config.field import PART, SHARE, require
from td3_robot.config.run import HINDSIGHT
from td3_robot.errors import ConfigError
from td3_robot.replay.buffer import Batch, ReplayBuffer
from td3_robot.replay.sampler import Uniform

STRATEGIES = HINDSIGHT[1:]

Relabel = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]
Look = Callable[[Tensor], Tensor]  # memories (B, memory_dim) -> observations or goals (B, ...)


class Hindsight:
    """Replaces the goals of some rows of a batch by goals achieved in the same episode; a `Reader`.

    In place of observations the buffer holds memories, see `GoalVecEnv`: they are observed when
    they are drawn.

    The new goal is what the episode had achieved after a row that the strategy chooses (paper,
    section 4.5): `future`, uniformly among the drawn row and the later ones; `final`, the last one;
    `episode`, uniformly among all. An episode still running has the rows stored so far; one whose
    beginning is overwritten, those left.

    Args:
        relabel, achieved_goal, observe: see `GoalVecEnv`.
        strategy: one of STRATEGIES.
        ratio: share of a batch that gets another goal, rounded to whole rows. The paper's k goals
            for each transition are k / (k + 1): 0.8 is its k = 4.
        still: how often rows of an episode whose achieved goal stayed are drawn, beside the others'
            1. Of a cube that nobody touched every goal of the episode is met from the start,
            whatever the arm does: with many such episodes the critics see little else. An episode
            is one of the others from the moment on when it would not have been paid, for the goal
            that it had achieved when it began, what staying there is paid.
    """

    def __init__(
        self,
        relabel: Relabel,
        achieved_goal: Look,
        observe: Look,
        strategy: str = "future",
        ratio: float = 0.8,
        still: float = 1.0,
    ):
        require("strategy", strategy, STRATEGIES)
        require("ratio", ratio, SHARE)
        require("still", still, PART)
        self.relabel, self.achieved_goal, self.observe = relabel, achieved_goal, observe
        self.strategy, self.ratio, self.still = strategy, ratio, still

    # Episodes of each environment are numbered. A row knows the number of its episode, and a table
    # the time step of each episode's newest row; an episode begins right after the one before it.
    # The slots can hold rows of so many episodes at once, and one more entry keeps the end of the
    # one before the oldest.

    def allocate(self, buffer: ReplayBuffer) -> None:
        """See `Reader.allocate`."""
        if self.still < 1.0 and not isinstance(buffer.sampler, Uniform):
            raise ConfigError(
                f"hindsight with still {self.still} needs the sampler Uniform, not {buffer.sampler}"
            )
        device, envs = buffer.rows.device, buffer.num_envs
        self._entries = buffer.slots + 1
        self._now = 0  # the time step stored next
        self._number = torch.zeros(envs, dtype=torch.long, device=device)  # of the newest episodes
        self._entry = torch.zeros(
            buffer.slots, envs, dtype=torch.long, device=device
        )  # number % entries of a row
        self._last = torch.full((self._entries, envs), -1, device=device)  # [time step]
        self._left = torch.full_like(
            self._last, -1
        )  # [time step] newest away from where the episode began

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
        if self.still < 1.0:
            new = torch.arange(
                slot * buffer.num_envs, (slot + count) * buffer.num_envs, device=number.device
            )
            self._mark_left(buffer, new)
            self._weigh(buffer, new)

    def _mark_left(self, buffer: ReplayBuffer, new: Tensor) -> None:
        """Note which of the rows at `new` (N,) led away from the goal that their episode had
        achieved as it began.
        """
        time, first = self._time(buffer, new), self._first(buffer, new)
        made, begun = (
            buffer.batch(buffer.read(index)) for index in (new, buffer.later(new, first - time))
        )
        goal = self.achieved_goal(begun.state)
        paid = self.relabel(made.state, made.action, made.next_state, goal)[2]
        left = paid < self.relabel(begun.state, made.action, begun.state, goal)[2]
        place = self._entry.view(-1)[new] * buffer.num_envs + new % buffer.num_envs
        self._left.view(-1).scatter_reduce_(0, place, torch.where(left, time, -1), "amax")

    def _weigh(self, buffer: ReplayBuffer, new: Tensor) -> None:
        """Tell the sampler how often the rows of those episodes are drawn that the ones at `new`
        (N,) belong to.
        """
        steps = (
            torch.arange(int(self._first(buffer, new).min()) - self._now, 0, device=new.device) + 1
        )
        index = buffer.later(new[-buffer.num_envs :], steps[:, None]).flatten()
        left = self._left[self._entry.view(-1)[index], index % buffer.num_envs] >= self._first(
            buffer, index
        )
        assert isinstance(buffer.sampler, Uniform)
        buffer.sampler.weigh(index, torch.where(left, 1.0, self.still))

    def _begins(self, buffer: ReplayBuffer, slot: int, count: int) -> Tensor:
        """Whether the row before each new one ended an episode; (count, B) bool.

        Before the very first there may be anything: it does not matter whether its episode is
            number 0 or 1.
        """
        if slot:
            return buffer.ended(slot - 1, slot + count - 1)
        return torch.cat((buffer.ended(buffer.slots - 1, buffer.slots), buffer.ended(0, count - 1)))

    def goal_rows(self, buffer: ReplayBuffer, index: Tensor) -> Tensor:
        """For each row at index (B,) the row (B,) whose achieved goal it is given."""
        time = self._time(buffer, index)
        last = self._last[self._entry.view(-1)[index], index % buffer.num_envs]
        if self.strategy == "final":
            return buffer.later(index, last - time)
        first = self._first(buffer, index) if self.strategy == "episode" else time
        unit = torch.rand(index.shape, generator=buffer.generator, device=index.device)
        chosen = first + (unit * (last - first + 1)).long()
        return buffer.later(index, chosen - time)

    def _time(self, buffer: ReplayBuffer, index: Tensor) -> Tensor:
        """The time step of each row at index (N,)."""
        return self._now - 1 - buffer.age(index)

    def _first(self, buffer: ReplayBuffer, index: Tensor) -> Tensor:
        """The time step of the first row that there is of the episode of each row at index (N,)."""
        oldest = self._now - len(buffer) // buffer.num_envs
        entry = self._entry.view(-1)[index]
        return (self._last[(entry - 1) % self._entries, index % buffer.num_envs] + 1).clamp(
            min=oldest
        )

    def read(self, buffer: ReplayBuffer, index: Tensor) -> Batch:
        """See `Reader.read`; as rows are drawn independently, it does not matter that the first get
        the goals.
        """
        kept, count = buffer.batch(buffer.read(index)), round(self.ratio * len(index))
        old = Batch(*(part[count:] for part in kept[:5]))
        seen = self.observe(torch.cat((old.state, old.next_state))).chunk(2)
        old = old._replace(state=seen[0], next_state=seen[1])
        if not count:
            return old
        goal = self.achieved_goal(
            buffer.read(self.goal_rows(buffer, index[:count]), buffer.columns.next_state)
        )
        memory, action, next_memory = (
            kept.state[:count],
            kept.action[:count],
            kept.next_state[:count],
        )
        state, next_state, reward, terminated = self.relabel(memory, action, next_memory, goal)
        new = (state, action, reward[:, None], next_state, terminated[:, None].to(reward.dtype))
        return Batch(*(torch.cat(parts) for parts in zip(new, old[:5])))
