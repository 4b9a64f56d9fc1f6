"""Report the progress of long work: a bar on a terminal, elsewhere a line every ten seconds.

Code that takes long opens a `stage` and advances it. It is displayed where a command has opened a
display with `show_progress`; without one, as in a library call, nothing is printed.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

PERIOD = 10.0  # [s] between two lines where the output is no terminal
PATIENCE = 1.0  # [s] after which a stage has a bar


class Stage:
    """A piece of work.

    Args:
        name: what is done, for the bar's label.
        total: units of the whole work; None if it is unknown.
        unit: what the units are called, for the line.

    Attributes:
        done: units that are done.
        note: text beside the bar, such as the latest score.
    """

    def __init__(self, name: str, total: float | None = None, unit: str = ""):
        self.name = name
        self.total = total
        self.unit = unit
        self.done = 0.0
        self.note = ""
        self.started = time.monotonic()
        self._skipped = 0.0

    def advance(self, count: float = 1.0) -> None:
        """Add to the units that are done."""
        self.done += count

    def iterate(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items, and advance by one after each."""
        for item in items:
            yield item
            self.advance()

    def skip(self, count: float) -> None:
        """Begin with units that were done earlier, which do not count for the time left."""
        self.done = count
        self._skipped = count

    def __str__(self):
        seconds = time.monotonic() - self.started
        unit = f" {self.unit}" if self.unit else ""
        count = f"{self.done:,.0f}{unit}, " if self.done and self.unit else ""
        left = ""
        if self.total:
            # the last step of all environments may go beyond the total
            count = f"{min(self.done / self.total, 1.0):.0%}"
            count += f" of {self.total:,.0f}{unit}, " if self.unit else ", "
            if self.done > self._skipped:
                rest = seconds * (self.total - self.done) / (self.done - self._skipped)
                left = f", about {max(rest, 0.0):,.0f} s left"
        note = f", {self.note}" if self.note else ""
        return f"{self.name}: {count}{seconds:.0f} s{left}{note}"


class Display:
    """A display that shows nothing: the base of bars and lines."""

    def open(self, stage: Stage) -> None:
        """Show a stage, the innermost from now on."""

    def close(self, stage: Stage) -> None:
        """Remove a stage."""

    def print_line(self, text: str) -> None:
        """Print a line of the command itself to stdout."""
        print(text, flush=True)

    def end(self) -> None:
        """Remove the display."""


class Lines(Display):
    """A line on stderr every `PERIOD` seconds in which nothing else was reported."""

    def __init__(self, period: float = PERIOD):
        self._period = period
        self._stages: list[Stage] = []
        self._ended = threading.Event()
        self._postpone()
        threading.Thread(target=self._run, daemon=True).start()

    def open(self, stage: Stage) -> None:
        """Report a stage, at first after a period of silence."""
        if not self._stages:
            self._postpone()
        self._stages.append(stage)

    def close(self, stage: Stage) -> None:
        """Report a stage no longer."""
        self._stages.remove(stage)

    def print_line(self, text: str) -> None:
        """Print a line, and begin the period again."""
        self._postpone()
        super().print_line(text)

    def _postpone(self) -> None:
        self._reported = time.monotonic()

    def end(self) -> None:
        """End the thread."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(max(0.01, self._reported + self._period - time.monotonic())):
            if time.monotonic() - self._reported < self._period:
                continue
            self._postpone()
            if stages := tuple(self._stages):
                with contextlib.suppress(OSError, ValueError):  # nobody reads it
                    print("; ".join(map(str, stages)), file=sys.stderr, flush=True)


class Bars(Display):
    """A bar on the terminal for each stage that takes longer than `PATIENCE` seconds."""

    def __init__(self, console: Any = None, patience: float = PATIENCE):
        self._console = console
        self._patience = patience
        self._live: Any = None
        self._tasks: dict[Stage, Any] = {}

    def open(self, stage: Stage) -> None:
        """Add a bar; the first one starts the display."""
        if self._live is None:
            self._live = self._start()
        self._tasks[stage] = self._live.add_task(stage.name, total=stage.total, stage=stage)

    def close(self, stage: Stage) -> None:
        """Remove a bar; the last one ends the display, so that the terminal is free."""
        self._live.remove_task(self._tasks.pop(stage))
        if not self._tasks:
            self.end()

    def print_line(self, text: str) -> None:
        """Print a line above the bars; one that is too long for the terminal is not cut."""
        if self._live is None:
            super().print_line(text)
        else:
            self._live.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def end(self) -> None:
        """Remove all bars."""
        if self._live is not None:
            self._live.stop()
        self._live = None

    def _start(self) -> Any:
        from rich.progress import (  # here: it takes a tenth of a second
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        patience = self._patience

        class Live(Progress):
            """Bars that follow their stages, without those that have just begun."""

            def get_renderables(self):
                for task in self.tasks:
                    stage = task.fields["stage"]
                    self.update(task.id, completed=stage.done, total=stage.total)
                shown = [task for task in self.tasks if (task.elapsed or 0.0) >= patience]
                yield self.make_tasks_table(shown)

        live = Live(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(show_speed=False),
            TextColumn("{task.fields[stage].note}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        live.start()
        return live


_NOBODY = Display()
_display: ContextVar[Display] = ContextVar("progress display", default=_NOBODY)


@contextlib.contextmanager
def show_progress(display: Display | None = None) -> Iterator[Display]:
    """Display the stages in the block.

    Args:
        display: by default bars if stdout is a terminal, and lines on stderr if not.
    """
    if display is None:
        display = Bars() if sys.stdout is not None and sys.stdout.isatty() else Lines()
    token = _display.set(display)
    try:
        yield display
    finally:
        _display.reset(token)
        display.end()


@contextlib.contextmanager
def stage(name: str, total: float | None = None, unit: str = "") -> Iterator[Stage]:
    """Report the block as a stage of the work, see `Stage` for the arguments."""
    display = _display.get()
    current = Stage(name, total, unit)
    display.open(current)
    try:
        yield current
    finally:
        display.close(current)


def print_line(text: str) -> None:
    """Print a line of results while stages are open: above the bars, if there are any."""
    _display.get().print_line(text)


def iter_with_progress(
    items: Iterable[T], name: str, total: float | None = None, unit: str = ""
) -> Iterator[T]:
    """Yield the items, and report them as a stage."""
    with stage(name, total, unit) as current:
        yield from current.iterate(items)
