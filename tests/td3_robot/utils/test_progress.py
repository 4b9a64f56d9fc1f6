"""Progress of long work: a bar on a terminal, elsewhere a line a period, and nothing in a library."""

import io
import time

import pytest
from rich.console import Console

from td3_robot.utils import progress
from td3_robot.utils.progress import Bars, Lines, Stage, iter_with_progress, show_progress, stage
from tests.support import wait_for


def test_without_a_display_nothing_is_printed(capfd):
    with stage("evaluation", 10, "steps") as current:
        for _ in range(10):
            current.advance()
    assert list(iter_with_progress("abc", "letters")) == ["a", "b", "c"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("total", "unit", "done", "line"),
    [
        (200, "steps", 50, "x: 25% of 200 steps, 20 s, about 60 s left"),
        (200, "", 50, "x: 25%, 20 s, about 60 s left"),
        (200, "steps", 0, "x: 0% of 200 steps, 20 s"),
        (200, "steps", 204, "x: 100% of 200 steps, 20 s, about 0 s left"),
        (None, "pictures", 1_200, "x: 1,200 pictures, 20 s"),
        (None, "", 0, "x: 20 s"),
    ],
)
def test_a_line_says_how_far_the_work_is_and_how_long_it_takes(
    monkeypatch, total, unit, done, line
):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    current = Stage("x", total, unit)
    current.advance(done)
    now[0] += 20.0
    assert str(current) == line
    current.note = "success 9.0%"
    assert str(current) == f"{line}, success 9.0%"


def test_what_was_done_earlier_does_not_count_as_speed(monkeypatch):
    """Steps 800 to 850 of 1,000 took 10 s, so that the other 150 take 30 s."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    current = Stage("training", 1000, "steps")
    current.skip(800)
    current.advance(50)
    now[0] = 10.0
    assert str(current) == "training: 85% of 1,000 steps, 10 s, about 30 s left"


def test_lines_come_once_a_period_while_there_is_work_and_nothing_else_is_printed(capsys):
    printed = ""

    def count() -> int:
        nonlocal printed
        printed += capsys.readouterr().err
        return printed.count("\n")

    with show_progress(Lines(period=0.1)):
        time.sleep(0.3)
        assert count() == 0  # there is no work yet
        with stage("outer", 4, "parts"), stage("inner") as inner:
            inner.note = "a note"
            wait_for(lambda: count() >= 2)
        lines = printed.splitlines()
        assert all(line.startswith("outer: 0% of 4 parts, ") for line in lines)
        assert all("; inner: 0 s, a note" in line for line in lines)
        before = count()
        time.sleep(0.3)
        assert count() == before


def test_a_row_that_is_printed_postpones_the_next_line(capsys):
    with show_progress(Lines(period=60.0)) as display:
        before = display._reported
        progress.print_line("a row")
        assert display._reported > before
    assert capsys.readouterr().out == "a row\n"


def test_bars_are_shown_on_a_terminal_and_leave_nothing_behind():
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=100, color_system=None)
    with show_progress(Bars(console, patience=0.0)):
        with stage("evaluation", 4, "steps") as current:
            current.advance(1)
            current.note = "success 25.0%"
            wait_for(lambda: "success 25.0%" in text.getvalue())
        shown = text.getvalue()
        assert "evaluation" in shown and " 25%" in shown
        assert shown.endswith("\x1b[2K") or "\x1b[?25h" in shown  # erased, and the cursor is back
        size = len(shown)
        time.sleep(0.3)
        assert len(text.getvalue()) == size  # the terminal is free


def test_a_stage_that_is_short_has_no_bar():
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=100, color_system=None)
    with show_progress(Bars(console, patience=60.0)), stage("evaluation", 4):
        time.sleep(0.3)
    assert "evaluation" not in text.getvalue()


def test_an_error_ends_the_stage_and_the_display(capsys):
    with pytest.raises(ZeroDivisionError), show_progress(Lines(period=0.02)) as display:
        with stage("fails"):
            raise ZeroDivisionError
    assert display._stages == []
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().err == ""
