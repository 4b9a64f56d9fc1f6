"""The training loop: collect -> store -> update -> evaluate -> checkpoint."""

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from td3_robot import checkpoint
from td3_robot.checkpoint.summary import is_summarised, write_summary
from td3_robot.config.field import require_same
from td3_robot.config.run import Config
from td3_robot.config.schedules import compute_schedule_factor
from td3_robot.data.batch_source import BatchSource
from td3_robot.evaluation.periodic import FINAL, PERIODIC, PeriodicEvaluation
from td3_robot.loggers.base import Trackers, fill_scores
from td3_robot.td3.agent import TD3
from td3_robot.td3.cuda_graph import CudaGraphUpdates
from td3_robot.training.best_checkpoint import Best
from td3_robot.training.callbacks import Callback
from td3_robot.training.meters import Interval
from td3_robot.training.nan_guard import Watch
from td3_robot.training.run_state import Resuming
from td3_robot.utils.json_file import replace_non_finite
from td3_robot.utils.memory import measure_peak_memory
from td3_robot.utils.signals import Stopped, stop_on_signal
from td3_robot.vec_env import VecEnv


class Trainer(Resuming):
    """One run of TD3: batches from a source, evaluations in environments of their own, a run
    folder.

    The run folder holds the best policy so far, by success rate, then return, of the periodic
    evaluation, where any whose actor has learnt is better than all that have not; its subfolder
    `last` holds all that an exact resume needs. Without an evaluation environment, as on real
    hardware, the best is judged by the training episodes that ended since the row before,
    exploration included; where nothing tells how good a policy is, the newest counts as the best.

    What every evaluation logs, and what it means, is in docs/td3.md, "What is logged".

    Args:
        agent: who learns.
        source: where its batches come from: `Collector`, `Dataset` or one of yours.
        evaluation_env: as many environments as an evaluation has episodes; None for no evaluations.
        config: the resolved configuration.
        folder: the run folder.
        started: `time.perf_counter()` at process start; by default now.
        callbacks: what follows the run.
        metadata: what the summary says of where it learned.

    Attributes:
        trackers: what takes the metrics; whatever they raise costs no training.
        solved_at_s: seconds at the first evaluation at or above 99% success; None before.
        saved_steps: `steps` of the newest resume point.
    """

    def __init__(
        self,
        agent: TD3,
        source: BatchSource,
        evaluation_env: VecEnv | None,
        config: Config,
        folder: Path,
        started: float | None = None,
        callbacks: Sequence[Callback] = (),
        metadata: Mapping[str, object] | None = None,
    ):
        require_same("td3.", config.td3, agent.config)
        self.agent, self.source, self.config = agent, source, config
        self.folder, self.callbacks, self.evaluation_env = folder, callbacks, evaluation_env
        self.metadata, self.trackers = dict(metadata or {}), Trackers()
        self._started = time.perf_counter() if started is None else started
        self.solved_at_s: float | None = None
        self.best, self._watch = Best(folder, self.metadata), Watch(agent, folder)
        self._captured = CudaGraphUpdates(agent) if config.cuda_graph else None
        self._stop = threading.Event()
        self._periodic = PeriodicEvaluation(evaluation_env, config.seed)
        self._complete = False  # stopped because it has what it was for
        self._saved_at, self.saved_steps = time.perf_counter(), 0
        self._interval = Interval(*self._counters)

    # The loop

    def run(self) -> dict:
        """Train until `config.steps`, or until `stop`, Ctrl-C, SIGTERM or SIGHUP, which save the
        resume point first.

        An evaluation does not hold a stop up: it is made anew when the run is resumed. Signals are
        heeded in the main thread; in another one the run is stopped with `stop`.

        Returns:
            The summary, as `summary.json` has it; its key `finished` says which of the two it was.

        Raises:
            NotFiniteError: something became NaN or infinite; checkpoints stay as they last were
                good, with `EVIDENCE`.
            TypeError: the state of the source, or of its environments, is not of tensors and plain
                values.
            CheckpointError: the first checkpoint cannot be written; a later one is told, and the
                former stays.
        """
        checkpoint.check_plain(
            self.source.state_dict(with_replay=False), "source"
        )  # not only when it is first saved
        if not self.steps:
            self.best.save(
                self.agent, self.source.metadata()
            )  # from here on the folder is a whole checkpoint
        with stop_on_signal(self.stop), self._watch.keeping():
            try:
                self._train()
                self._save(with_replay=False)
                return self._summarise(self._final_scores(), finished=True)
            except Stopped:
                self._save()
                return self._summarise(
                    self.best.figures if self.evaluation_env else self._final_scores(),
                    finished=False,
                )

    def _train(self) -> None:
        """All steps and evaluations; `Stopped` where it is to end before."""
        self._evaluate_if_due()  # a stop may have cut that short
        while self.steps < self.config.steps and not self._stop.is_set():
            self._step()
        if not self._complete and self.steps < self.config.steps:
            raise Stopped
        if self.steps > self._interval.steps:  # the last steps are not evaluated yet
            self._evaluate()

    def stop(self, finished: bool = False, at_once: bool = True) -> None:
        """End the run after the step it is at, from whatever thread.

        Args:
            finished: it has what it was for.
            at_once: an evaluation that is due is left to the resume.
        """
        self._complete |= finished
        self._stop.set()
        if at_once and not finished:
            self._periodic.stop.set()

    def _step(self) -> None:
        """One step of the environments and all that follows from it."""
        self.source.collect(self.progress)
        if self.source.ready:
            self._learn()
        for callback in self.callbacks:
            callback.on_step(self)
        self._evaluate_if_due()
        if self._save_due():
            self._save()

    def _save_due(self) -> bool:
        """Asked after every step: whether the resume point is to be written."""
        return time.perf_counter() - self._saved_at > self.config.save_every

    @property
    def progress(self) -> float:
        """Share of the run's steps already made."""
        return self.steps / self.config.steps

    def _learn(self) -> None:
        """The gradient steps that follow one step of the environments."""
        schedule, progress = self.config.schedule, self.progress
        self.agent.scale_learning_rates(
            compute_schedule_factor(schedule.lr, progress, schedule.lr_floor)
        )
        update = self._captured or self.agent.update
        for _ in range(self.config.updates_per_step):
            batch = self.source.sample(progress)
            metrics = update(batch)
            self._watch.look(batch, metrics)
            if "td_error" in metrics:
                self.source.update_priorities(metrics.pop("td_error"))
            self._interval.add(metrics)

    # Measuring

    def _evaluate_if_due(self) -> None:
        every = self.config.evaluation.every
        if self.steps // every > self._interval.steps // every:
            self._evaluate()

    def _evaluate(self) -> None:
        """Evaluate the policy, keep it if it is the best so far, and log."""
        self._watch.require(self._interval.totals)
        metrics = self._measure()
        scores = fill_scores(metrics)
        actor_trained = self.agent.actor_trained
        if actor_trained and scores.get("success_rate", 0.0) >= 0.99 and self.solved_at_s is None:
            self.solved_at_s = self.wall_s
        if self.best.judge(scores, actor_trained):
            self.keep("the best policy", self.best.save, self.agent, self.source.metadata())
        for callback in self.callbacks:
            callback.on_evaluation(self, metrics)
        self.trackers.log(metrics)
        self._interval = Interval(*self._counters)

    def _measure(self) -> dict[str, float]:
        """Return the row of an evaluation; speeds come first, since evaluations do not count."""
        speeds = self._interval.speeds(*self._counters, self.config.steps)
        return {
            "env_steps": self.env_steps,
            "gradient_steps": self.agent.gradient_steps,
            **self._periodic.scores(self.agent, PERIODIC),
            **self.source.metrics(),
            **self._interval.losses(),
            **speeds,
            "wall_s": self.wall_s,
        }

    def _final_scores(self) -> dict[str, float]:
        """Those of the best policy on episodes used for nothing else."""
        if self.evaluation_env is None:
            judged_by = dict(zip(("train_success_rate", "train_return"), self.best.score))
            known = self.source.metrics()
            return {name: score for name, score in judged_by.items() if name in known}
        return self._periodic.scores(self.best.policy(self.agent), FINAL)

    @property
    def summarised(self) -> bool:
        """Whether the run ended here and its summary says so; a signal may have come between."""
        return is_summarised(self.folder, self.env_steps, self.agent.gradient_steps)

    def _summarise(self, scores: dict[str, float], finished: bool) -> dict:
        """Write the summary and return it."""
        told = {**self.metadata, "seed": self.config.seed, **scores, "env_steps": self.env_steps}
        told |= {
            "gradient_steps": self.agent.gradient_steps,
            "wall_s": self.wall_s,
            "solved_at_s": self.solved_at_s,
        }
        if (most := measure_peak_memory(self.agent.device)) is not None:
            told["peak_memory_gb"] = round(1e-9 * most, 3)
        summary = replace_non_finite({**told, "finished": finished})
        self.trackers.try_write("the summary", write_summary, self.folder, summary)
        return summary
