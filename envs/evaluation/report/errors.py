"""The kinds of error that a task wants to be zero."""

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.evaluation.metrics import counted
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
    """One of them.

    Attributes:
        task: whose it is.
        measure: what is told of it.
    """

    task: Task
    measure: Measure

    @property
    def name(self) -> str:
        """At any time, for titles."""
        return self.measure.label.removeprefix("final ")

    @property
    def final_name(self) -> str:
        """Of an episode, for titles."""
        return f"mean {self.name}" if self.measure.reduction == "steps" else f"final {self.name}"

    @property
    def tolerance(self) -> float | None:
        """Below which the final error is a success, in the unit shown; None where there is no such
        value.
        """
        return (
            None
            if self.measure.within is None
            else self.measure.shown(getattr(self.task, self.measure.within))
        )

    def series(self, played: Trajectories) -> Tensor:
        """(T, E) after every step, in the unit shown."""
        return self.measure.shown(played.series[self.measure.of].double())

    def finals(self, played: Trajectories) -> Tensor:
        """(E,) what success is judged by: after the last step or, where every step counts, the mean
        of those.
        """
        if self.measure.reduction != "steps":
            return self.measure.shown(played.last(self.measure.of).double())
        counts = counted(self.task, played.alive)
        return torch.where(counts, self.series(played), 0.0).sum(0) / counts.sum(0)


def errors_of(task: Task) -> list[Error]:
    """Of the place, unless the task measures that in its own way, and of all that it measures
    likewise.
    """
    own = [measure for measure in task.measures if measure.summary == "quantiles"]
    place = [] if any(measure.of == POSITION.of for measure in own) else [POSITION]
    return [Error(task, measure) for measure in place + own]
