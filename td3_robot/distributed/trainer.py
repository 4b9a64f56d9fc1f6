"""One training by several processes: each has environments, replay and random numbers of its own,
all one policy.

Every process runs the ordinary trainer over its part of the environments and of each batch. Here is
what they share: the mean of their gradients before each step, running statistics, scores, and when
to stop and to save.
"""

import copy
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from td3_robot import checkpoint
from td3_robot.checkpoint.resume_point import LAST, read_resume_point
from td3_robot.data.batch_source import BatchSource
from td3_robot.distributed.communicator import Ranks
from td3_robot.errors import RanksError
from td3_robot.evaluation.periodic import PeriodicEvaluation
from td3_robot.loggers.base import Trackers
from td3_robot.networks.mlp import get_trainable
from td3_robot.networks.normalization import RunningMoments
from td3_robot.replay import Batch
from td3_robot.td3.agent import TD3
from td3_robot.training.best_checkpoint import Best
from td3_robot.training.trainer import Trainer
from td3_robot.utils.seeding import derive_seed
from td3_robot.utils.signals import Stopped


class SharedTD3(TD3):
    """The agent of one process; all descend the mean of their gradients, so that all stay the same
    to the bit.

    The mean over N processes of the gradients of batches of B / N is the gradient of one of B,
    wherever the loss is a mean over the batch. Only `bc_alpha` is more: its weight is that of each
    process's own part of the batch.
    """

    def __init__(self, ranks: Ranks, *arguments, seed: int = 0, **options):
        super().__init__(*arguments, seed=seed, **options)
        self._ranks = ranks
        if ranks.rank:  # its own target noise; the weights are those of all
            self.generator.manual_seed(derive_seed(seed, f"target noise of process {ranks.rank}"))
        share_moments(self.normalizer, ranks)

    def _limit_gradients(self, nets: Sequence[nn.Module], norm: float | None) -> None:
        self._ranks.average(
            [weight.grad for weight in get_trainable(*nets) if weight.grad is not None]
        )
        super()._limit_gradients(nets, norm)


def share_moments(part: nn.Module, ranks: Ranks) -> None:
    """Have running statistics count in what all processes see, the same in each."""
    for module in part.modules():
        if isinstance(module, RunningMoments):
            module.all_gather = ranks.rows


class SharedSource:
    """The batches of one process, and what all of them saw; a `BatchSource`.

    Attributes:
        env_steps: control steps of all environments of all processes together.
    """

    def __init__(self, source: BatchSource, agent: TD3, ranks: Ranks):
        self._source, self._agent, self._ranks = source, agent, ranks
        self._gathered: dict | None = None
        self.env_steps = source.env_steps * ranks.count
        if scaler := getattr(source, "scaler", None):
            share_moments(scaler, ranks)

    @property
    def ready(self) -> bool:
        """See `BatchSource.ready`."""
        return self._source.ready

    def collect(self, progress: float) -> None:
        """See `BatchSource.collect`."""
        self._source.collect(progress)
        self.env_steps = self._source.env_steps * self._ranks.count

    def sample(self, progress: float) -> Batch:
        """This process's part of a batch."""
        return self._source.sample(progress)

    def update_priorities(self, error: Tensor) -> None:
        """See `BatchSource.update_priorities`."""
        self._source.update_priorities(error)

    def metrics(self) -> dict[str, float]:
        """The mean of each metric over those processes that know it."""
        mine = self._source.metrics()
        values = (
            self._ranks.rows(torch.tensor(list(mine.values()), dtype=torch.float64))
            if mine
            else torch.zeros(1, 0)
        )
        return dict(zip(mine, values.nanmean(0).tolist()))

    def metadata(self) -> dict[str, object]:
        """See `BatchSource.metadata`."""
        return self._source.metadata()

    def gather(self, with_replay: bool, interval: dict | None = None) -> dict:
        """In process 0 `ranks`, the states of all, each with its agent's generator and `interval`;
        elsewhere none.
        """
        mine = {
            "source": self._source.state_dict(with_replay),
            "target_generator": self._agent.generator.get_state(),
        }
        mine["interval"] = interval
        self._gathered = {"ranks": self._ranks.to_first(mine) or [None] * self._ranks.count}
        return self._gathered

    def state_dict(self, with_replay: bool) -> dict:
        """What was gathered, which is then forgotten, or is now."""
        state, self._gathered = self._gathered or self.gather(with_replay), None
        return state

    def load_state_dict(self, state: dict) -> list[str]:
        """Take back this process's part of what `state_dict` gave in process 0."""
        lost = self._source.load_state_dict(state["ranks"][self._ranks.rank]["source"])
        self.env_steps = self._source.env_steps * self._ranks.count
        return lost


class SharedPeriodicEvaluation(PeriodicEvaluation):
    """Every process plays its part of the episodes; the scores are the means of all."""

    def __init__(self, env, seed: int, ranks: Ranks):
        super().__init__(env, seed)
        self._ranks = ranks

    def scores(self, agent: TD3, use: str) -> dict[str, float]:
        """See `PeriodicEvaluation.scores`."""
        try:
            mine, stopped = super().scores(agent, use), False
        except Stopped:
            mine, stopped = {}, True
        if any(self._ranks.any(stopped)):
            raise Stopped
        if self.env is None:
            return mine
        rows = self._ranks.rows(
            torch.tensor([self.env.num_envs, *mine.values()], dtype=torch.float64)
        )
        share = rows[:, :1] / rows[:, 0].sum()
        return dict(zip(mine, (share * rows[:, 1:]).sum(0).tolist()))


class SharedBest(Best):
    """The best policy of all processes is the one that process 0 could write; the others write
    none.
    """

    def __init__(self, folder: Path, metadata: Mapping[str, object], ranks: Ranks):
        super().__init__(folder, metadata)
        self._ranks = ranks

    def catch_up(self) -> None:
        """See `Best.catch_up`."""
        if self._ranks.rank:
            self._waiting = None
        else:
            super().catch_up()

    def policy(self, like: TD3) -> TD3:
        """See `Best.policy`: the one in the folder of process 0, in all."""
        states = None
        try:
            states = (
                None if self._ranks.rank else [checkpoint.read(self._folder)] * self._ranks.count
            )
        finally:  # they are told of a failure, too
            mine = self._ranks.from_first(states)
        best = copy.deepcopy(like)
        best.load_state_dicts(mine)
        return best


class SilentLoggers(Trackers):
    """Those of the others: what cannot be written to a folder that is thrown away is nobody's
    loss.
    """

    def tell(self, name: str, error: Exception) -> None:
        """See `Trackers.tell`."""


class SharedTrainer(Trainer):
    """The trainer of one process. All step, evaluate, save and stop together; process 0 has the run
    folder.

    The others have a folder of their own that is thrown away, for what they are told when a run is
    resumed: all that is theirs is in the resume point of process 0.
    """

    def __init__(
        self, ranks: Ranks, agent: TD3, source: BatchSource, evaluation_env, *arguments, seed: int
    ):
        """`seed` is that of this process's episodes; the rest is as for `Trainer`."""
        self.shared = SharedSource(source, agent, ranks)
        super().__init__(agent, self.shared, evaluation_env, *arguments)
        self._ranks, self.processes = ranks, ranks.count
        self._wish = (False, False)  # to stop, as it has what it was for
        self._periodic = SharedPeriodicEvaluation(evaluation_env, seed, ranks)
        self.best = SharedBest(self.folder, self.metadata, ranks)
        self.trackers = SilentLoggers() if ranks.rank else self.trackers

    def stop(self, finished: bool = False, at_once: bool = True) -> None:
        """Wish for the end, which comes for all after the same step; see `Trainer.stop`."""
        self._wish = True, self._wish[1] or finished
        if at_once and not finished:
            self._periodic.stop.set()

    def _save_due(self) -> bool:
        """What the clock of process 0 says; here, after every step, all agree."""
        stop, finished, due = self._ranks.any(
            *self._wish, self._ranks.rank == 0 and super()._save_due()
        )
        if stop:
            super().stop(finished, at_once=False)
        return due

    def _measure(self) -> dict[str, float]:
        self._share_losses()
        self._require_same()
        return super()._measure()

    def _share_losses(self) -> None:
        """The sums of losses become their means over all processes, for the row that is about to be
        logged.
        """
        self._ranks.average(list(self._interval.totals.values()))

    def _require_same(self) -> None:
        """Hold the networks to those of process 0.

        Raises:
            RanksError: they differ, as other processors may round otherwise.
        """
        weights = [
            p.detach().cpu()
            for net in (self.agent.actor, self.agent.Q1, self.agent.Q2)
            for p in net.parameters()
        ]
        sums = self._ranks.gather(
            zlib.crc32(torch.cat([weight.flatten() for weight in weights]).numpy().tobytes())
        )
        if differ := [rank for rank, value in enumerate(sums) if value != sums[0]]:
            raise RanksError(
                f"the networks of processes 0 and {differ[0]} differ; train on processors of one kind"
            )

    def _save(self, with_replay: bool = True) -> None:
        # before anything that may fail in one process alone, such as a full disk
        self.shared.gather(with_replay, self._interval.state_dict())
        super()._save(with_replay)

    def save_resume_point(self, with_replay: bool = True) -> None:
        """See `Trainer.save_resume_point`; process 0 writes what it has gathered."""
        if self._ranks.rank == 0:
            super().save_resume_point(with_replay)
        else:
            self._watch.require(self._interval.totals)
            self.shared.state_dict(with_replay)
            self.saved_steps = self.steps

    def resume(self) -> list[str]:
        """See `Trainer.resume`; process 0 reads, and tells the others what is theirs."""
        parts = None
        try:
            parts = self._parts() if self._ranks.rank == 0 else None
        finally:  # they are told of a failure, too
            mine = self._ranks.from_first(parts)
        if self._ranks.rank:
            best, last = mine
            checkpoint.write(self.folder, *best)
            checkpoint.write(self.folder / LAST, *last)
        return super().resume()

    def _parts(self) -> list[object]:
        """For each process what its own folder is to hold: the best policy and the resume point,
        its own part of it.
        """
        states, state = read_resume_point(self.folder, self.processes)
        best, last = checkpoint.load(self.folder), checkpoint.load(self.folder / LAST, names=())
        parts: list[object] = []
        for rank, own in enumerate(state["source"]["ranks"]):
            ranks = [own if other == rank else None for other in range(self.processes)]
            mine = {
                **state,
                "target_generator": own["target_generator"],
                "source": {"ranks": ranks},
            }
            mine["interval"] = (
                own.get("interval") or state["interval"]
            )  # older resume points have their mean
            parts.append(
                [[best.states, best.metadata], [{**states, "trainer_state": mine}, last.metadata]]
            )
        return parts

    @property
    def summarised(self) -> bool:
        """See `Trainer.summarised`."""
        return any(self._ranks.any(self._ranks.rank == 0 and super().summarised))
