"""Hindsight experience replay: achieved goals relabelled as if they had been the desired ones.

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
from td3_robot.vec_env import draw_uniform

STRATEGIES = HINDSIGHT[1:]

Relabel = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]
FromMemory = Callable[[Tensor], Tensor]  # memories (B, memory_dim) -> observations or goals


class Hindsight:
    """A `Reader` that replaces the goals of some rows by goals achieved in the same episode.

    The buffer holds memories instead of observations, see `GoalVecEnv`; observations are computed
    when rows are drawn.

    The new goal is the one achieved after a row that the strategy chooses (paper, section 4.5):
    `future`, uniformly among the drawn row and later ones; `final`, the last one; `episode`,
    uniformly among all. Only stored rows count, of running and of partly overwritten episodes.

    Args:
        relabel, achieved_goal, observe: see `GoalVecEnv`.
        strategy: one of STRATEGIES.
        ratio: share of a batch that gets another goal, rounded to whole rows. The paper's k goals
            for each transition are k / (k + 1): 0.8 is its k = 4.
        still: sampling weight of rows of an episode whose achieved goal never changed; others have
            1. An untouched cube, for example, meets every goal of its episode from the start,
            whatever the arm does, and with many such episodes the critics see little else. An
            episode counts as changed after the first step whose reward for the goal achieved at
            the start is lower than that of staying there.
    """

    def __init__(
        self,
        relabel: Relabel,
        achieved_goal: FromMemory,
        observe: FromMemory,
        strategy: str = "future",
        ratio: float = 0.8,
        still: float = 1.0,
    ):
        require("strategy", strategy, STRATEGIES)
        require("ratio", ratio, SHARE)
        require("still", still, PART)
        self.relabel = relabel
        self.achieved_goal = achieved_goal
        self.observe = observe
        self.strategy = strategy
        self.ratio = ratio
        self.still = still

    # Episodes of each environment are numbered. Each row has the number of its episode, and a table
    # has the time step of each episode's newest row; an episode begins right after the one before
    # it. The table has one entry for each slot, since each may be of another episode, and one for
    # the episode before the oldest.

    def allocate(self, buffer: ReplayBuffer) -> None:
        """Forget everything and make tables for the slots of `buffer`."""
        if self.still < 1.0 and not isinstance(buffer.sampler, Uniform):
            raise ConfigError(
                f"hindsight with still {self.still} needs the sampler Uniform, not {buffer.sampler}"
            )
        device = buffer.rows.device
        envs = buffer.num_envs
        self._entries = buffer.slots + 1
        self._now = 0  # the time step stored next
        self._number = torch.zeros(envs, dtype=torch.long, device=device)  # of the newest episodes
        # number % entries of each row
        self._entry = torch.zeros(buffer.slots, envs, dtype=torch.long, device=device)
        self._last = torch.full((self._entries, envs), -1, device=device)  # [time step]
        # [time step] of the newest row away from the goal achieved at the start
        self._left = torch.full_like(self._last, -1)

    def add_rows(self, buffer: ReplayBuffer, slot: int, count: int) -> None:
        """Number the episodes of new rows in the `count` slots from `slot` on."""
        begins = self._find_begins(buffer, slot, count)
        number = self._number + begins.cumsum(0)  # (count, B)
        entry = number % self._entries
        time = torch.arange(self._now, self._now + count, device=number.device)[:, None]
        self._entry[slot : slot + count] = entry
        self._last.scatter_reduce_(0, entry, time.expand_as(entry), "amax")
        self._number = number[-1]
        self._now += count
        if self.still < 1.0:
            new = torch.arange(count * buffer.num_envs, device=number.device)
            new += slot * buffer.num_envs
            self._mark_left(buffer, new)
            self._weigh(buffer, new)

    def _mark_left(self, buffer: ReplayBuffer, new: Tensor) -> None:
        """Mark the rows at `new` (N,) that leave the goal achieved as their episode began."""
        time = self._compute_time(buffer, new)
        start = buffer.shift(new, self._find_first(buffer, new) - time)
        step = buffer.batch(buffer.read(new))
        first = buffer.batch(buffer.read(start))
        goal = self.achieved_goal(first.state)
        reward = self.relabel(step.state, step.action, step.next_state, goal)[2]
        left = reward < self.relabel(first.state, step.action, first.state, goal)[2]
        place = self._entry.view(-1)[new] * buffer.num_envs + new % buffer.num_envs
        self._left.view(-1).scatter_reduce_(0, place, torch.where(left, time, -1), "amax")

    def _weigh(self, buffer: ReplayBuffer, new: Tensor) -> None:
        """Set the sampling weights of the episodes that the rows at `new` (N,) belong to."""
        oldest = int(self._find_first(buffer, new).min())
        steps = torch.arange(oldest - self._now, 0, device=new.device) + 1
        index = buffer.shift(new[-buffer.num_envs :], steps[:, None]).flatten()
        newest_left = self._left[self._entry.view(-1)[index], index % buffer.num_envs]
        left = newest_left >= self._find_first(buffer, index)
        assert isinstance(buffer.sampler, Uniform)
        buffer.sampler.weigh(index, torch.where(left, 1.0, self.still))

    def _find_begins(self, buffer: ReplayBuffer, slot: int, count: int) -> Tensor:
        """Find the new rows that begin an episode, (count, B) bool.

        The first row of all may count as one or not: its episode is then number 1 or 0.
        """
        if slot:
            return buffer.find_ends(slot - 1, slot + count - 1)
        last = buffer.find_ends(buffer.slots - 1, buffer.slots)
        return torch.cat((last, buffer.find_ends(0, count - 1)))

    def choose_goal_rows(self, buffer: ReplayBuffer, index: Tensor) -> Tensor:
        """Choose for each row at index (B,) the row (B,) whose achieved goal becomes its goal."""
        time = self._compute_time(buffer, index)
        last = self._last[self._entry.view(-1)[index], index % buffer.num_envs]
        if self.strategy == "final":
            return buffer.shift(index, last - time)
        first = self._find_first(buffer, index) if self.strategy == "episode" else time
        unit = draw_uniform(buffer.generator, *index.shape)
        chosen = first + (unit * (last - first + 1)).long()
        return buffer.shift(index, chosen - time)

    def _compute_time(self, buffer: ReplayBuffer, index: Tensor) -> Tensor:
        """Compute the time step of each row at index (N,)."""
        return self._now - 1 - buffer.compute_age(index)

    def _find_first(self, buffer: ReplayBuffer, index: Tensor) -> Tensor:
        """Find the time step of the first stored row of each row's episode; index (N,)."""
        oldest = self._now - len(buffer) // buffer.num_envs
        before = (self._entry.view(-1)[index] - 1) % self._entries
        return (self._last[before, index % buffer.num_envs] + 1).clamp(min=oldest)

    def read(self, buffer: ReplayBuffer, index: Tensor) -> Batch:
        """Return the rows at index (B,); the first, as good as any, get new goals."""
        rows = buffer.batch(buffer.read(index))
        count = round(self.ratio * len(index))
        old = Batch(*(part[count:] for part in rows[:5]))
        state, next_state = self.observe(torch.cat((old.state, old.next_state))).chunk(2)
        old = old._replace(state=state, next_state=next_state)
        if not count:
            return old
        goal_rows = self.choose_goal_rows(buffer, index[:count])
        goal = self.achieved_goal(buffer.read(goal_rows, buffer.columns.next_state))
        action = rows.action[:count]
        state, next_state, reward, terminated = self.relabel(
            rows.state[:count], action, rows.next_state[:count], goal
        )
        new = (state, action, reward[:, None], next_state, terminated[:, None].to(reward.dtype))
        return Batch(*(torch.cat(parts) for parts in zip(new, old[:5])))

    def state_dict(self, buffer: ReplayBuffer, index: Tensor) -> dict:
        """Return how long ago the episode of each row at `index`, oldest first, left its goal.

        The rows alone do not tell: the start of an episode may be overwritten.
        """
        if self.still == 1.0:
            return {}
        left = self._left[self._entry.view(-1)[index], index % buffer.num_envs]
        never = len(buffer) // buffer.num_envs + 1  # older marks, of other episodes, mean nothing
        return {"left_age": (self._now - left).clamp_max(never)}

    def load_state_dict(self, buffer: ReplayBuffer, state: dict, index: Tensor) -> None:
        """Restore the state of any reader, whose newest rows are now at `index`, oldest first."""
        if self.still < 1.0 and "left_age" in state:
            age = state["left_age"][-len(index) :].to(index.device)
            self._left[self._entry.view(-1)[index], index % buffer.num_envs] = self._now - age
