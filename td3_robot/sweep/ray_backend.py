"""Trials on Ray: a trial is an actor that follows the process of its training.

Imported only when a sweep starts, as Ray takes seconds to import.
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

from td3_robot.loggers.base import get_steps
from td3_robot.loggers.csv import read_metrics
from td3_robot.loggers.mlflow import ID_NAME as MLFLOW_ID
from td3_robot.sweep.relaunch import replace_run
from td3_robot.sweep.search_space import FloatRange, SearchSpace, SweepConfig, Trial, find_trusted
from td3_robot.sweep.status_table import TrialTable
from td3_robot.sweep.trial_process import ENDED, FAILED, STOP, UNKNOWN, TrialProcess, get_end_mark

_MAX_FAILURES = 3  # times that a trial may lose the machine it is on


class TrialActor(tune.Trainable):
    """Ray actor of one trial; each step is one evaluation.

    Its `config` has the `trial` (name and options) and, the same for all, `place`, `sweep`,
    `script`, `metric`, `varied`.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Prepare the trial; its process starts with the first step."""
        os.chdir(config["place"])
        self._run = Path(config["sweep"]) / self.trial_name
        self._make_process()

    def _make_process(self, steps: float = 0) -> None:
        config = self.config
        options = config["trial"]["options"]
        begin = Trial(self.trial_name, options).words
        again = dict.fromkeys([*config["varied"], *find_trusted(options)])
        change = Trial(self.trial_name, {name: options[name] for name in again}).words
        self._process = TrialProcess(
            self._run, Path(config["script"]), begin, change, config["metric"], steps
        )

    def step(self) -> dict[str, Any]:
        """Return the next evaluation."""
        return self._process.wait_for_row()

    def cleanup(self) -> None:
        """Let the process save and end."""
        self._process.stop()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Use this actor for another trial, or for other options."""
        self.cleanup()
        self.setup(new_config)
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Copy the run folder, at its resume point."""
        self._process.stop()
        shutil.copytree(self._run, Path(checkpoint_dir) / self.trial_name)

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Replace the run by another trial's; its own, maybe further on, stays as it is."""
        (saved,) = Path(checkpoint).iterdir()
        if saved.name != self.trial_name:
            replace_run(self._run, saved, MLFLOW_ID)  # its MLflow run stays its own
            self._make_process(max(map(get_steps, read_metrics(self._run)), default=0))


class TrialCallback(tune.Callback):
    """Callback that keeps the table up to date and marks the trials that the scheduler ended.

    Attributes:
        failed: reasons of failure, by name of the trial.
        unknown: reason why no trial has the metric, or "".
    """

    def __init__(self, folder: Path, table: TrialTable, metric: str):
        self._folder = folder
        self._table = table
        self._metric = metric
        self.failed: dict[str, str] = {}
        self.unknown = ""

    def on_trial_start(self, iteration, trials, trial, **info):
        """Show a trial that starts."""
        self._table.start_trial(str(trial), trial.config["trial"]["options"])

    def on_trial_result(self, iteration, trials, trial, result, **info):
        """Show an evaluation, or stop the sweep if the metric is unknown."""
        if "outcome" not in result:
            self._table.update_trial(str(trial), result["steps"], result.get(self._metric))
        elif result["outcome"] == UNKNOWN:
            self.unknown = result["why"]
            (self._folder / STOP).touch()

    def on_trial_complete(self, iteration, trials, trial, **info):
        """Show the end of a trial, and mark it if the scheduler ended it."""
        last = trial.last_result or {}
        outcome = last.get("outcome", ENDED)
        why = last.get("why", "")
        if outcome == ENDED:
            get_end_mark(self._folder / str(trial)).touch()
        if outcome == FAILED:
            self.failed[str(trial)] = why
        self._table.end_trial(str(trial), outcome, why)

    def on_trial_error(self, iteration, trials, trial, **info):
        """Show the failure of a trial."""
        why = str(trial.get_pickled_error() or "lost").strip().splitlines()[-1]
        self.failed[str(trial)] = why
        self._table.end_trial(str(trial), FAILED, why)


class StopFile(tune.Stopper):
    """Stopper that ends a sweep when the file `STOP` is in its folder."""

    def __init__(self, folder: Path):
        self._file = folder / STOP

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return False: no result ends a trial."""
        return False

    def stop_all(self) -> bool:
        """Return True if the file is there."""
        return self._file.exists()


def make_scheduler(config: SweepConfig, varied: Mapping[str, Any], total: int) -> TrialScheduler:
    """Return Ray's scheduler of the configured name; a trial has `total` steps."""
    judged: dict[str, Any] = {"time_attr": "steps", "metric": config.metric, "mode": config.goal}
    grace = max(1, round(config.grace * total))
    if config.scheduler == "asha":  # at max_t it would cut off the last evaluation
        return ASHAScheduler(
            **judged,
            max_t=total,
            grace_period=grace,
            reduction_factor=config.factor,
            stop_last_trials=False,
        )
    if config.scheduler == "none":
        return FIFOScheduler()
    ranges = {name: values for name, values in varied.items() if isinstance(values, FloatRange)}

    def clip_options(config: dict[str, Any]) -> dict[str, Any]:
        options = config["trial"]["options"]
        options.update({name: values.clip(options[name]) for name, values in ranges.items()})
        return config

    draws = {
        name: (lambda values=values: values.interpolate(random.random()))
        if name in ranges
        else list(values.values)
        for name, values in varied.items()
    }
    return PopulationBasedTraining(
        **judged,
        perturbation_interval=grace,
        hyperparam_mutations={"trial": {"options": draws}},
        custom_explore_fn=clip_options,
        require_attrs=False,
    )


def run_trials(
    space: SearchSpace,
    trials: Sequence[Trial],
    total: int,
    folder: Path,
    script: Path,
    table: TrialTable,
) -> TrialCallback:
    """Train all trials of a sweep on the connected Ray. Return the callback with the failures."""
    config = space.config
    callback = TrialCallback(folder, table, config.metric)
    tune.run(
        TrialActor,
        config={
            "trial": tune.grid_search(
                [{"name": trial.name, "options": trial.options} for trial in trials]
            ),
            "place": str(Path.cwd()),
            "sweep": str(folder),
            "script": str(script),
            "metric": config.metric,
            "varied": list(space.varied),
        },
        resources_per_trial={"cpu": config.resources.cpus, "gpu": config.resources.gpus},
        scheduler=make_scheduler(config, space.varied, total),
        stop=StopFile(folder),
        callbacks=[callback],
        trial_name_creator=lambda trial: trial.config["trial"]["name"],
        trial_dirname_creator=lambda trial: trial.config["trial"]["name"],
        storage_path=str(folder.absolute() / ".ray"),
        name="tune",
        max_failures=_MAX_FAILURES,
        reuse_actors=True,
        raise_on_failed_trial=False,
        verbose=0,
    )
    return callback
