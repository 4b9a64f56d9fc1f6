"""The trials of a sweep: a live table at a terminal, or else a line for each evaluation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from td3_robot.sweep.search_space import Trial
from td3_robot.utils.console import say

_MAX_ROWS = 20  # of the table: running trials, and the newest of the others


@dataclass
class _Line:
    options: str
    state: str = "waits"
    steps: float = 0
    value: float | None = None


@dataclass
class TrialTable:
    """Table of a sweep's trials and their latest figures.

    Args:
        trials: all trials of the sweep.
        varied: names of the options to show.
        metric: name of the metric to show.
    """

    trials: Iterable[Trial]
    varied: Iterable[str]
    metric: str
    console: Console = field(default_factory=lambda: Console(highlight=False))

    def __post_init__(self):
        self._lines = {
            trial.name: _Line(self._format_options(trial.options)) for trial in self.trials
        }
        self._live = Live(
            console=self.console, get_renderable=self._make_table, refresh_per_second=2
        )

    def __enter__(self) -> "TrialTable":
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def start_trial(self, name: str, options: Mapping[str, Any]) -> None:
        """Show that a trial runs, for the first time or again, with its current options."""
        line = self._lines[name]
        line.state = "trains"
        line.options = self._format_options(options)
        self._print_line(f"{name}: {line.options}")

    def _format_options(self, options: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {options[name]}" for name in self.varied)

    def update_trial(self, name: str, steps: float, value: float | None) -> None:
        """Show an evaluation of a trial."""
        line = self._lines[name]
        line.steps = steps
        line.value = value
        self._print_line(f"{name}: {steps:,.0f} steps, {self.metric} {_format_value(value)}")

    def end_trial(self, name: str, state: str, why: str = "") -> None:
        """Show the end of a trial, which may be resumed."""
        self._lines[name].state = state
        self._print_line(f"{name}: {state}{': ' if why else ''}{why}")

    def _print_line(self, text: str) -> None:
        if not self.console.is_terminal:
            say(text)

    def _make_table(self) -> Table:
        table = Table("trial", "options", "steps", self.metric, "", box=None)
        started = [(name, line) for name, line in self._lines.items() if line.state != "waits"]
        started.sort(key=lambda item: item[1].state == "trains")  # these last, so that they stay
        for name, line in started[-_MAX_ROWS:]:
            value = _format_value(line.value)
            table.add_row(name, line.options, f"{line.steps:,.0f}", value, line.state)
        table.caption = f"{len(self._lines) - len(started)} of {len(self._lines)} wait"
        return table


def _format_value(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
