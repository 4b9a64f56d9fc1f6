"""A sweep at the terminal: a table of its trials, kept up to date, or a line an evaluation where
nobody looks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from td3_robot.sweep.search_space import Trial
from td3_robot.utils.console import say

_SHOWN = 20  # trials in the table: those at work, and the newest of the others


@dataclass
class _Line:
    options: str
    state: str = "waits"
    steps: float = 0
    value: float | None = None


@dataclass
class Board:
    """What is known of each trial.

    Args:
        trials: all of them.
        varied: the options to show.
        metric: what is looked at.
    """

    trials: Iterable[Trial]
    varied: Iterable[str]
    metric: str
    console: Console = field(default_factory=lambda: Console(highlight=False))

    def __post_init__(self):
        self._lines = {trial.name: _Line(self._told_of(trial.options)) for trial in self.trials}
        self._live = Live(console=self.console, get_renderable=self._table, refresh_per_second=2)

    def __enter__(self) -> "Board":
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def began(self, name: str, options: Mapping[str, Any]) -> None:
        """A trial is at work, for the first time or again, with the options that it has by now."""
        line = self._lines[name]
        line.state, line.options = "trains", self._told_of(options)
        self._tell(f"{name}: {line.options}")

    def _told_of(self, options: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {options[name]}" for name in self.varied)

    def row(self, name: str, steps: float, value: float | None) -> None:
        """A trial has been evaluated."""
        line = self._lines[name]
        line.steps, line.value = steps, value
        self._tell(f"{name}: {steps:,.0f} steps, {self.metric} {_shown(value)}")

    def ended(self, name: str, state: str, why: str = "") -> None:
        """A trial has come to its end, for now or for good."""
        self._lines[name].state = state
        self._tell(f"{name}: {state}{': ' if why else ''}{why}")

    def _tell(self, text: str) -> None:
        if not self.console.is_terminal:
            say(text)

    def _table(self) -> Table:
        table = Table("trial", "options", "steps", self.metric, "", box=None)
        begun = [(name, line) for name, line in self._lines.items() if line.state != "waits"]
        begun.sort(key=lambda item: item[1].state == "trains")  # these last, so that they stay
        for name, line in begun[-_SHOWN:]:
            table.add_row(name, line.options, f"{line.steps:,.0f}", _shown(line.value), line.state)
        table.caption = f"{len(self._lines) - len(begun)} of {len(self._lines)} wait"
        return table


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
