"""Callbacks follow a training: they see the agent, add metrics, stop the run, keep checkpoints."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from td3_robot.config.run import Config
from td3_robot.data.batch_source import BatchSource
from td3_robot.errors import ConfigError
from td3_robot.loggers.base import fill_scores
from td3_robot.td3.agent import TD3

_SOLVED_RATE = 0.99  # success of an evaluation


def is_solved(scores: dict[str, float]) -> bool:
    """Return whether the scores of an evaluation have a success rate of 99% or more."""
    return scores.get("success_rate", 0.0) >= _SOLVED_RATE


class Run(Protocol):
    """The run that a callback follows: the part of `Trainer` that it sees."""

    agent: TD3
    source: BatchSource
    config: Config
    folder: Path
    metadata: dict[str, object]  # what it learns in

    @property
    def solved_at_s(self) -> float | None:
        """Seconds at the first evaluation at or above 99% success; None before."""
        ...

    @property
    def env_steps(self) -> int:
        """Control steps of all environments together."""
        ...

    @property
    def steps(self) -> int:
        """The count of `config.steps`: env steps or gradient steps."""
        ...

    @property
    def logged_steps(self) -> int:
        """`steps` of the newest evaluation that was logged; 0 before the first."""
        ...

    @property
    def actor_trained(self) -> bool:
        """True once the actor has been updated, here or where the run starts from."""
        ...

    def stop(self, finished: bool = False, at_once: bool = True) -> None:
        """End the run after this step.

        Args:
            finished: it has what it was for, so it need not be resumed.
            at_once: an evaluation that is due is left to the resume.
        """

    def keep(self, what: str, save: Callable[..., None], *arguments: object) -> None:
        """Save a checkpoint in the run folder; one that cannot be written is reported, by `what`,
        and ends no run.
        """


class Callback:
    """A follower of a run that does nothing: a callback overrides what it needs.

    Whatever a callback raises ends the run. What only writes figures somewhere is better a
    `loggers.base.Tracker`, whose failure costs no training.
    """

    def on_step(self, run: Run) -> None:
        """Follow a step; called after every step of the environments and the gradient steps that
        follow it, so it must be cheap.
        """

    def on_evaluation(self, run: Run, metrics: dict[str, float]) -> None:
        """Follow an evaluation; called after each, before its metrics are logged. It may add to
        them, the same names every time.
        """


class StopWhenSolved(Callback):
    """A callback that ends the run at the first evaluation with a success rate of 99% or more,
    `solved_at_s` of the summary.

    Without an evaluation environment the success rate is that of the training episodes.

    Raises:
        ConfigError: at the first evaluation with episodes, where the environment does not tell
            success.
    """

    def on_evaluation(self, run: Run, metrics: dict[str, float]) -> None:
        """End the run if it is solved; called after every evaluation."""
        scores = fill_scores(metrics)
        played = not math.isnan(scores.get("episode_return", 0.0))  # before, nothing may be told
        if played and metrics.keys().isdisjoint({"success_rate", "train_success_rate"}):
            raise ConfigError(
                "stop_when_solved needs an environment that reports success; this one does not"
            )
        if run.agent.actor_trained and is_solved(scores):
            run.stop(finished=True)


class StopAt(Callback):
    """A callback that stops the run after so many steps, to be resumed: what is left of it is as
    in one go.

    Args:
        steps: how many, those of earlier sessions included.
        made: where the run is.
        total: the steps of the whole run.

    Raises:
        ConfigError: the stop is not between the two.
    """

    def __init__(self, steps: int, made: int, total: int):
        if not made < steps < total:
            raise ConfigError(
                f"stop_at must be above {made} steps, made already, "
                f"and below steps, {total}, got {steps}"
            )
        self._steps = steps

    def on_step(self, run: Run) -> None:
        """Stop the run if it has made its steps; called after every step."""
        if run.steps >= self._steps:
            run.stop(at_once=False)


class KeepCheckpoints(Callback):
    """A callback that keeps the policy of every so many evaluations, in the folder `step_N` of the
    run folder, for good.

    The policy is kept at the first evaluation after each multiple of `every` times the steps
    between two evaluations.

    Args:
        every: evaluations from one kept checkpoint to the next.
    """

    def __init__(self, every: int):
        self._every = every

    def on_evaluation(self, run: Run, metrics: dict[str, float]) -> None:
        """Keep the policy if its turn has come; called after every evaluation."""
        between = run.config.evaluation.every * self._every  # steps from one to the next
        if run.steps // between > run.logged_steps // between:
            notes = {"trained_on": run.metadata, "actor_trained": run.actor_trained}
            notes |= run.source.metadata()
            run.keep(f"step_{run.steps}", run.agent.save, run.folder / f"step_{run.steps}", notes)


def make_callbacks(config: Config) -> list[Callback]:
    """Make those that a configuration asks for."""
    stop: list[Callback] = [StopWhenSolved()] if config.stop_when_solved else []
    return [*stop, *([KeepCheckpoints(config.evaluation.keep)] if config.evaluation.keep else [])]
