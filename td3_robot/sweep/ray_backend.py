"""Trials on Ray: a trial is an actor that follows the process which trains it. Imported only where
a sweep begins.
"""

import os
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    PopulationBasedTraining,
    TrialScheduler,
)

from td3_robot.checkpoint import RUNS
from td3_robot.loggers.base import get_steps
from td3_robot.loggers.csv import read_metrics
from td3_robot.sweep.search_space import Interval, Plan, Settings, Trial
from td3_robot.sweep.status_table import Board
from td3_robot.sweep.trial_process import ENDED, FAILED, STOP, UNKNOWN, Attempt, ended_early

_MACHINES = 3  # times that a trial may lose the machine it is on


class Training(tune.Trainable):
    """What Ray runs: one trial, an evaluation at a time.

    Its `config`: the `trial` (name and options) and what all have, `place`, `sweep`, `script`,
    `metric`, `varied`.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Nothing begins before the first step."""
        os.chdir(config["place"])
        self._run = RUNS / config["sweep"] / self.trial_name
        self._follow()

    def _follow(self, steps: float = 0) -> None:
        config, options = self.config, self.config["trial"]["options"]
        begin = Trial(self.trial_name, options).words
        change = Trial(self.trial_name, {name: options[name] for name in config["varied"]}).words
        self._attempt = Attempt(
            self._run, Path(config["script"]), begin, change, config["metric"], steps
        )

    def step(self) -> dict[str, Any]:
        """The next evaluation."""
        return self._attempt.next()

    def cleanup(self) -> None:
        """The process saves and ends."""
        self._attempt.stop()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Another trial, or other options, in the process of this actor."""
        self.cleanup()
        self.setup(new_config)
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """The run folder, at its resume point."""
        self._attempt.stop()
        shutil.copytree(self._run, Path(checkpoint_dir) / self.trial_name)

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Another trial's run in place of this one's; its own is in the folder already, and maybe
        further on.
        """
        (saved,) = Path(checkpoint).iterdir()
        if saved.name != self.trial_name:
            shutil.rmtree(self._run, ignore_errors=True)
            shutil.copytree(saved, self._run)
            self._follow(max(map(get_steps, read_metrics(self._run)), default=0))


class Follow(tune.Callback):
    """Tells the board what becomes of each trial, and notes which ones the scheduler ended.

    Attributes:
        failed: why, by name.
        unknown: why the metric will never come; empty as long as it may.
    """

    def __init__(self, folder: Path, board: Board, metric: str):
        self._folder, self._board, self._metric = folder, board, metric
        self.failed: dict[str, str] = {}
        self.unknown = ""

    def on_trial_start(self, iteration, trials, trial, **info):
        """See `tune.Callback`."""
        self._board.began(str(trial), trial.config["trial"]["options"])

    def on_trial_result(self, iteration, trials, trial, result, **info):
        """See `tune.Callback`."""
        if "outcome" not in result:
            self._board.row(str(trial), result["steps"], result.get(self._metric))
        elif result["outcome"] == UNKNOWN:
            self.unknown = result["why"]
            (self._folder / STOP).touch()

    def on_trial_complete(self, iteration, trials, trial, **info):
        """See `tune.Callback`."""
        last = trial.last_result or {}
        outcome, why = last.get("outcome", ENDED), last.get("why", "")
        if outcome == ENDED:
            ended_early(self._folder / str(trial)).touch()
        if outcome == FAILED:
            self.failed[str(trial)] = why
        self._board.ended(str(trial), outcome, why)

    def on_trial_error(self, iteration, trials, trial, **info):
        """See `tune.Callback`."""
        self.failed[str(trial)] = str(trial.get_pickled_error() or "lost").strip().splitlines()[-1]
        self._board.ended(str(trial), FAILED, self.failed[str(trial)])


class Asked(tune.Stopper):
    """Ends a sweep when its folder says so, as the trials themselves do."""

    def __init__(self, folder: Path):
        self._file = folder / STOP

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """No trial is ended by what it says."""
        return False

    def stop_all(self) -> bool:
        """Whether all are to end."""
        return self._file.exists()


def scheduler_of(settings: Settings, varied: Mapping[str, Any], total: int) -> TrialScheduler:
    """Ray's scheduler of that name, by steps; `total` are those of a trial."""
    judged: dict[str, Any] = {
        "time_attr": "steps",
        "metric": settings.metric,
        "mode": settings.goal,
    }
    grace = max(1, round(settings.grace * total))
    if settings.scheduler == "asha":  # at max_t it would cut off the last evaluation
        return ASHAScheduler(
            **judged,
            max_t=total,
            grace_period=grace,
            reduction_factor=settings.factor,
            stop_last_trials=False,
        )
    if settings.scheduler == "none":
        return FIFOScheduler()
    intervals = {name: values for name, values in varied.items() if isinstance(values, Interval)}

    def inside(config: dict[str, Any]) -> dict[str, Any]:
        options = config["trial"]["options"]
        options.update(
            {name: interval.nearest(options[name]) for name, interval in intervals.items()}
        )
        return config

    draws = {
        name: (lambda of=values: of.at(random.random()))
        if name in intervals
        else list(values.values)
        for name, values in varied.items()
    }
    return PopulationBasedTraining(
        **judged,
        perturbation_interval=grace,
        hyperparam_mutations={"trial": {"options": draws}},
        custom_explore_fn=inside,
        require_attrs=False,
    )


def search(
    plan: Plan, trials: Sequence[Trial], total: int, folder: Path, script: Path, board: Board
) -> Follow:
    """Train all trials of a sweep on the Ray that this process is connected to. Returns what became
    of them.
    """
    settings, follow = plan.settings, Follow(folder, board, plan.settings.metric)
    tune.run(
        Training,
        config={
            "trial": tune.grid_search(
                [{"name": trial.name, "options": trial.options} for trial in trials]
            ),
            "place": str(Path.cwd()),
            "sweep": folder.name,
            "script": str(script),
            "metric": settings.metric,
            "varied": list(plan.varied),
        },
        resources_per_trial={"cpu": settings.resources.cpus, "gpu": settings.resources.gpus},
        scheduler=scheduler_of(settings, plan.varied, total),
        stop=Asked(folder),
        callbacks=[follow],
        trial_name_creator=lambda trial: trial.config["trial"]["name"],
        trial_dirname_creator=lambda trial: trial.config["trial"]["name"],
        storage_path=str(folder.absolute() / ".ray"),
        name="tune",
        max_failures=_MACHINES,
        reuse_actors=True,
        raise_on_failed_trial=False,
        verbose=0,
    )
    return follow
