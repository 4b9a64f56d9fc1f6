"""Errors that a task drives to zero."""

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.evaluation.metrics import find_counted_steps
from envs.evaluation.report.trajectories import Trajectories
from envs.tasks.measures import Measure
from envs.tasks.task import Task

POSITION = Measure(
    "final_position_error_m",
    "position_error",
    "last",
    "quantiles",
    "final error",
    "mm",
    "tolerance",
)


@dataclass(frozen=True)
class Error:
    """An error that the task drives to zero.

    Attributes:
        task: the task.
        measure: the task's measure of it.
    """

    task: Task
    measure: Measure

    @property
    def name(self) -> str:
        """Name of the error at any time, for titles."""
        return self.measure.label.removeprefix("final ")

    @property
    def final_name(self) -> str:
        """Name of the error of an episode, for titles."""
        return f"mean {self.name}" if self.measure.reduction == "steps" else f"final {self.name}"

    @property
    def tolerance(self) -> float | None:
        """Largest final error of a success, in the unit shown; None without any."""
        name = self.measure.within
        return None if name is None else self.measure.to_table_unit(getattr(self.task, name))

    def compute_series(self, played: Trajectories) -> Tensor:
        """Compute the error (T, E) after every step, in the unit shown."""
        return self.measure.to_table_unit(played.series[self.measure.of].double())

    def compute_finals(self, played: Trajectories) -> Tensor:
        """Compute the error (E,) that decides success, in the unit shown.

        It is that after the last step or, where every step counts, the mean of all steps.
        """
        if self.measure.reduction != "steps":
            return self.measure.to_table_unit(played.select_last(self.measure.of).double())
        counts = find_counted_steps(self.task, played.alive)
        return torch.where(counts, self.compute_series(played), 0.0).sum(0) / counts.sum(0)


def list_errors(task: Task) -> list[Error]:
    """List the position error, unless the task has its own measure of it, and the task's errors."""
    own = [measure for measure in task.measures if measure.summary == "quantiles"]
    place = [] if any(measure.of == POSITION.of for measure in own) else [POSITION]
    return [Error(task, measure) for measure in place + own]
