"""Where a training is, and how that is saved and taken up."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from td3_robot.checkpoint.resume_point import (
    as_checkpoint_errors,
    load_resume_point,
    write_resume_point,
)
from td3_robot.config.run import Config
from td3_robot.data.batch_source import BatchSource
from td3_robot.errors import CheckpointError
from td3_robot.evaluation.periodic import PeriodicEvaluation
from td3_robot.loggers.base import Trackers
from td3_robot.td3.agent import TD3
from td3_robot.training.best_checkpoint import Best
from td3_robot.training.meters import Interval
from td3_robot.training.nan_guard import Watch
from td3_robot.vec_env import restore_generator


class Resuming:
    """What a `Trainer` knows of where it is and does with resume points; the rest of it is its
    loop.
    """

    processes = 1  # that train together
    agent: TD3
    source: BatchSource
    config: Config
    folder: Path
    metadata: Mapping[str, object]
    trackers: Trackers
    best: Best
    solved_at_s: float | None
    saved_steps: int
    _watch: Watch
    _periodic: PeriodicEvaluation
    _interval: Interval
    _started: float
    _saved_at: float

    @property
    def env_steps(self) -> int:
        """Control steps of all environments together; none in offline learning."""
        return self.source.env_steps

    @property
    def steps(self) -> int:
        """What `config.steps` counts: env steps or, learning from a dataset, gradient steps."""
        return self.env_steps if self.config.dataset is None else self.agent.gradient_steps

    @property
    def _counters(self) -> tuple[int, int, int]:
        return self.steps, self.env_steps, self.agent.gradient_steps

    @property
    def wall_s(self) -> float:
        """Seconds since process start, earlier sittings included."""
        return time.perf_counter() - self._started

    @property
    def logged_steps(self) -> int:
        """`steps` of the newest row that was logged; a resumed run writes later ones again."""
        return self._interval.steps

    def _save(self, with_replay: bool = True) -> None:
        """Write the resume point, after a best policy that could not be written before."""
        self.keep("the best policy", self.best.catch_up)
        self.keep("the resume point", self.save_resume_point, with_replay)
        self._saved_at = time.perf_counter()  # a full disk is not tried again at every step

    def keep(self, what: str, save: Callable[..., None], *arguments: object) -> None:
        """Save a part of the run; where that fails, as on a full disk, the former one stays and the
        run goes on.
        """
        try:
            if not self.folder.is_dir():
                raise CheckpointError(f"there is no folder {str(self.folder)!r} any more")
            save(*arguments)
        except CheckpointError as error:
            self.trackers.warn(what, error)

    def save_resume_point(self, with_replay: bool = True) -> None:
        """Write `last`: networks, optimizers and everything else the next step depends on.

        Raises:
            NotFiniteError: the networks diverged; the former resume point stays.
        """
        source = self.source.state_dict(with_replay)
        rows = (
            {"a transition in the replay": source["replay"]["rows"]} if source.get("replay") else {}
        )
        self._watch.require(self._interval.totals | rows)
        state = {
            "gradient_steps": self.agent.gradient_steps,
            "best": list(self.best.score),
            "solved_at_s": self.solved_at_s,
            "wall_s": self.wall_s,
            "interval": self._interval.state_dict(),
            "target_generator": self.agent.generator.get_state(),
            "source": source,
        }
        metadata = {
            "agent": self.agent.metadata(),
            "trained_on": self.metadata,
            **self.source.metadata(),
        }
        write_resume_point(
            self.folder, {**self.agent.state_dicts(), "trainer_state": state}, metadata
        )
        self.saved_steps = self.steps

    def resume(self) -> list[str]:
        """Take up where `last` left off. Without a saved replay the policy first collects a new
        one.

        Returns:
            What could not be restored, a sentence each.

        Raises:
            CheckpointError: there is no resume point, it is damaged, or its networks have other
                shapes.
            ConfigError: the run had another number of environments.
        """
        states, state = load_resume_point(self.folder, self.processes)
        with as_checkpoint_errors(self.folder):
            lost = self.source.load_state_dict(state["source"])
            self.agent.load_state_dicts(states)
            self.agent.gradient_steps = state["gradient_steps"]
            self.best.recall(state["best"])
            self.solved_at_s = state["solved_at_s"]
            self._started -= state["wall_s"]
            restore_generator(self.agent.generator, state["target_generator"])
            interval = state.get("interval")  # older resume points have none
            self._interval = (
                Interval.of(interval, self.agent.device) if interval else Interval(*self._counters)
            )
            if state.get("begun"):  # older runs could evaluate while they trained
                steps = self._interval.steps
                lost.append(f"the evaluation at step {steps} was not over and has no row")
        self.saved_steps = self.steps
        return lost
