"""The training loop: collect -> store -> update -> evaluate -> checkpoint."""

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from td3_robot import checkpoint
from td3_robot.checkpoint.summary import is_summarised, write_summary
from td3_robot.config.field import require_same
from td3_robot.config.run import Config
from td3_robot.config.schedules import compute_schedule_factor
from td3_robot.data.batch_source import BatchSource
from td3_robot.errors import CheckpointError, RanksError
from td3_robot.loggers.base import Trackers, fill_scores
from td3_robot.td3.agent import TD3
from td3_robot.td3.cuda_graph import CudaGraphUpdates
from td3_robot.training.callbacks import Callback, is_solved
from td3_robot.training.periodic_evaluation import FINAL, PERIODIC, PeriodicEvaluation
from td3_robot.training.run_state import RunState
from td3_robot.utils.communicator import Communicator
from td3_robot.utils.device import limit_threads
from td3_robot.utils.json_file import replace_non_finite
from td3_robot.utils.memory import measure_peak_memory
from td3_robot.utils.seeding import derive_process_seed
from td3_robot.utils.signals import Stopped, stop_on_signal
from td3_robot.vec_env import VecEnv


class Trainer:
    """One run of TD3: batches from a source, evaluations in environments of their own, a run
    folder.

    The run folder holds the best policy so far, by success rate, then return, of the periodic
    evaluation, where any whose actor has learnt is better than all that have not; its subfolder
    `last` holds all that an exact resume needs. A policy that `config.start_from` brings is
    evaluated at step 0, as one that has learnt. Without an evaluation environment, as on real
    hardware, the best is judged by the training episodes that ended since the row before,
    exploration included; where nothing tells how good a policy is, the newest counts as the best.

    What every evaluation logs, and what it means, is in docs/reference/metrics.md.

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
        state: counters, clocks and everything else that a resume restores.
    """

    def __init__(
        self,
        agent: TD3,
        source: BatchSource,
        evaluation_env: VecEnv | None,
        config: Config,
        folder: str | Path,
        started: float | None = None,
        callbacks: Sequence[Callback] = (),
        metadata: Mapping[str, object] | None = None,
    ):
        require_same("td3.", config.td3, agent.config)
        self.agent = agent
        self.source = source
        self.evaluation_env = evaluation_env
        self.config = config
        self.folder = Path(folder)
        self.callbacks = callbacks
        self.metadata = dict(metadata or {})
        self._communicator = agent.communicator
        self.trackers = Trackers(silent=self._communicator.rank > 0)
        started = time.perf_counter() if started is None else started
        self.state = RunState(agent, source, config, self.folder, self.metadata, started)
        seed = derive_process_seed(config.seed, self._communicator.rank)
        self._evaluation = PeriodicEvaluation(evaluation_env, seed, self._communicator)
        self._graphs = CudaGraphUpdates(agent) if config.cuda_graph else None
        self._stop_requested = False
        self._finish_requested = False
        self._stop_agreed = False  # by all processes
        self._finish_agreed = False
        self._saved_at = time.perf_counter()

    @property
    def steps(self) -> int:
        """The count of `config.steps`: env steps or, with a dataset, gradient steps."""
        return self.state.steps

    @property
    def logged_steps(self) -> int:
        """`steps` of the newest evaluation that was logged; 0 before the first."""
        return self.state.logged_steps

    @property
    def env_steps(self) -> int:
        """Control steps of all environments together; none in offline learning."""
        return self.state.env_steps

    @property
    def solved_at_s(self) -> float | None:
        """Seconds at the first evaluation at or above 99% success; None before."""
        return self.state.solved_at_s

    @property
    def actor_trained(self) -> bool:
        """True once the actor has been updated, here or where the run starts from."""
        return self.state.actor_trained

    @property
    def progress(self) -> float:
        """Share of the run's steps already made."""
        return self.steps / self.config.steps

    @property
    def _starts_trained(self) -> bool:
        """True if the run starts from another one's policy, which is evaluated before it learns."""
        return self.config.start_from is not None and self.evaluation_env is not None

    # The loop

    def run(self) -> dict:
        """Train until `config.steps`, or until `stop`, Ctrl-C, SIGTERM or SIGHUP, which save the
        resume point first.

        A stop does not wait for the end of an evaluation: it is repeated when the run is resumed.
        Signals are handled in the main thread; in another one the run is stopped with `stop`.
        Meanwhile torch has `config.threads` CPU threads.

        Returns:
            The summary, as `summary.json` has it; its key `finished` is false after a stop.

        Raises:
            NotFiniteError: something became NaN or infinite; checkpoints stay as they last were
                good, with `EVIDENCE`.
            TypeError: the state of the source, or of its environments, is not of tensors and plain
                values.
            CheckpointError: the first checkpoint cannot be written; a failure of a later one is
                reported, and the former stays.
        """
        # now, and not only when it is first saved
        checkpoint.check_plain(self.source.state_dict(with_replay=False), "source")
        if not self.steps:  # from here on the folder is a whole checkpoint
            self.state.best.save(self.agent, self.source.metadata())
        with (
            limit_threads(self.config.threads),
            stop_on_signal(self.stop),
            self.state.nan_guard.write_evidence(),
        ):
            try:
                self._train()
                self._save(with_replay=False)
                return self._summarise(self._compute_final_scores(), finished=True)
            except Stopped:
                self._save()
                return self._summarise(self._get_known_scores(), finished=False)
            finally:  # `run` may be called again
                self._stop_requested = False
                self._finish_requested = False
                self._evaluation.stop.clear()

    def _train(self) -> None:
        """Make all steps and evaluations; raise `Stopped` where the run is to end before."""
        if self._starts_trained and not self.steps and self.state.best.steps is None:
            self._evaluate()
        self._evaluate_if_due()  # a stop may have cut that short
        self._synchronise_requests()
        while self.steps < self.config.steps and not self._stop_agreed:
            self._step()
        if not self._finish_agreed and self.steps < self.config.steps:
            raise Stopped
        if self.steps > self.state.meters.steps:  # the last steps are not evaluated yet
            self._evaluate()

    def stop(self, finished: bool = False, at_once: bool = True) -> None:
        """End the run after the current step, from whatever thread; in all processes that train
        together.

        Args:
            finished: it need not be resumed.
            at_once: an evaluation that is due is left to the resume.
        """
        self._finish_requested |= finished
        self._stop_requested = True
        if at_once and not finished:
            self._evaluation.stop.set()

    def _step(self) -> None:
        """Make one step of the environments, and all that follows from it."""
        self.source.collect(self.progress)
        if self.source.ready:
            self._learn()
        for callback in self.callbacks:
            callback.on_step(self)
        self._evaluate_if_due()
        if self._synchronise_requests():
            self._save()

    def _synchronise_requests(self) -> bool:
        """Agree with all processes whether the run ends here; return whether the resume point is
        due by the clock of process 0.
        """
        due = time.perf_counter() - self._saved_at > self.config.save_every
        self._stop_agreed, self._finish_agreed, due = self._communicator.all_reduce_any(
            self._stop_requested, self._finish_requested, due and self._communicator.rank == 0
        )
        return due

    def _learn(self) -> None:
        """Make the gradient steps that follow one step of the environments."""
        schedule = self.config.schedule
        progress = self.progress
        self.agent.scale_learning_rates(
            compute_schedule_factor(schedule.lr, progress, schedule.lr_floor)
        )
        update = self._graphs or self.agent.update
        updates = self.config.updates_per_step if self.config.dataset is None else 1
        for _ in range(updates):
            batch = self.source.sample(progress)
            metrics = update(batch)
            self.state.nan_guard.check_update(batch, metrics)
            if "td_error" in metrics:
                self.source.update_priorities(metrics.pop("td_error"))
            self.state.meters.add(metrics)

    # Saving

    def keep(self, what: str, save: Callable[..., None], *arguments: object) -> None:
        """Save a part of the run; where that fails, as on a full disk, report it by `what`: the
        former one stays and the run continues.
        """
        try:
            if not self.folder.is_dir():
                raise CheckpointError(f"there is no folder {str(self.folder)!r} any more")
            save(*arguments)
        except CheckpointError as error:
            self.trackers.warn(what, error)

    def _save(self, with_replay: bool = True) -> None:
        """Write the resume point, after a best policy that could not be written before."""
        self.keep("the best policy", self.state.best.write)
        gathered = self.state.gather(with_replay)  # outside, as saving may fail in one process
        self.keep("the resume point", self.state.write, gathered)
        self._saved_at = time.perf_counter()  # a full disk is not tried again at every step

    def resume(self) -> list[str]:
        """Continue from the resume point `last`. Without a saved replay the policy first collects a
        new one.

        Returns:
            What could not be restored, a sentence each.

        Raises:
            CheckpointError: there is no resume point, it is damaged, or its networks have other
                shapes.
            ConfigError: the run had another number of environments or processes.
        """
        return self.state.load()

    # Measuring

    def _evaluate_if_due(self) -> None:
        every = self.config.evaluation.every
        if self.steps // every > self.state.meters.steps // every:
            self._evaluate()

    def _evaluate(self) -> None:
        """Evaluate the policy, keep it if it is the best so far, and log."""
        state = self.state
        state.nan_guard.require_finite(state.meters.totals)
        if self._communicator.size > 1:
            require_same_networks(self.agent, self._communicator)
        metrics = self._measure()
        scores = fill_scores(metrics)
        actor_trained = self.agent.actor_trained
        if actor_trained and is_solved(scores) and state.solved_at_s is None:
            state.solved_at_s = state.wall_s
        if state.best.judge(scores, actor_trained or self._starts_trained, self.steps):
            self.keep("the best policy", state.best.save, self.agent, self.source.metadata())
        for callback in self.callbacks:
            callback.on_evaluation(self, metrics)
        self.trackers.log(metrics)
        state.reset_meters()

    def _measure(self) -> dict[str, float]:
        """Return the row of an evaluation; speeds come first, since evaluations do not count."""
        meters = self.state.meters
        self._communicator.all_reduce_mean(list(meters.totals.values()))
        speeds = meters.compute_speeds(*self.state.counters, self.config.steps)
        return {
            "env_steps": self.env_steps,
            "gradient_steps": self.agent.gradient_steps,
            **self._evaluation.evaluate(self.agent, PERIODIC),
            **self.source.metrics(),
            **meters.compute_losses(),
            **speeds,
            "wall_s": self.state.wall_s,
        }

    def _get_known_scores(self) -> dict[str, float]:
        """Return the scores by which the best policy was judged."""
        figures = self.state.best.figures
        if self.evaluation_env is not None:
            return figures
        return {f"train_{name.removeprefix('episode_')}": score for name, score in figures.items()}

    def _compute_final_scores(self) -> dict[str, float]:
        """Return the scores of the best policy on episodes used for nothing else."""
        if self.evaluation_env is None:
            scores = dict(zip(("train_success_rate", "train_return"), self.state.best.score))
            known = self.source.metrics()
            return {name: score for name, score in scores.items() if name in known}
        return self._evaluation.evaluate(self.state.best.load(self.agent), FINAL)

    @property
    def summarised(self) -> bool:
        """True if the run ended here and its summary has it; a signal may have come between."""
        written = self._communicator.rank == 0 and is_summarised(
            self.folder, self.env_steps, self.agent.gradient_steps
        )
        return any(self._communicator.all_reduce_any(written))

    def _summarise(self, scores: dict[str, float], finished: bool) -> dict:
        """Write the summary and return it."""
        summary = {
            **self.metadata,
            "seed": self.config.seed,
            **scores,
            "env_steps": self.env_steps,
            "gradient_steps": self.agent.gradient_steps,
            "wall_s": self.state.wall_s,
            "solved_at_s": self.solved_at_s,
            "best_at_steps": self.state.best.steps,
        }
        if (peak_bytes := measure_peak_memory(self.agent.device)) is not None:
            summary["peak_memory_gb"] = round(1e-9 * peak_bytes, 3)
        summary = replace_non_finite({**summary, "finished": finished})
        self.trackers.try_write("the summary", write_summary, self.folder, summary)
        return summary


def require_same_networks(agent: TD3, communicator: Communicator) -> None:
    """Check that the networks are bit-exact the same in all processes.

    Raises:
        RanksError: they differ, as other processors may round otherwise.
    """
    weights = [
        weight.detach().cpu().flatten()
        for net in (agent.actor, agent.Q1, agent.Q2)
        for weight in net.parameters()
    ]
    own = zlib.crc32(torch.cat(weights).numpy().tobytes())
    sums = communicator.all_gather_object(own)
    if differ := [rank for rank, value in enumerate(sums) if value != sums[0]]:
        raise RanksError(
            f"the networks of processes 0 and {differ[0]} differ; train on processors of one kind"
        )
