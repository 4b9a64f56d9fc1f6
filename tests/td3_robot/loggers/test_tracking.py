"""Where the figures go: every one of them is to be found there again."""

import contextlib
import io
import math
import os
import time
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from td3_robot.cli.progress import Display
from td3_robot.errors import ConfigError
from td3_robot.loggers.csv import CsvLog, read_metrics
from td3_robot.loggers.learning_curve import plot_learning_curve
from td3_robot.loggers.tensorboard import TensorBoardLog, make_record
from td3_robot.utils import progress
from td3_robot.utils.progress import Bars, show_progress


def metrics(env_steps: int, **changed: float) -> dict[str, float]:
    """What the trainer logs at an evaluation."""
    values = dict(
        gradient_steps=env_steps // 10,
        success_rate=env_steps / 1e6,
        episode_return=-1.5,
        Q1_loss=0.1,
        Q2_loss=0.2,
        Q1=-0.3,
        actor_loss=0.4,
        env_steps_per_s=5e3,
        updates_per_s=80.0,
        wall_s=env_steps / 5e3,
        left_s=12.0,
    )
    return {"env_steps": env_steps} | values | changed


# CSV


def test_rows_come_back_as_they_were_logged(tmp_path):
    log = CsvLog(tmp_path)
    rows = [metrics(1000), metrics(2000, success_rate=1 / 3)]
    for row in rows:
        log.log(row)
        assert read_metrics(tmp_path)[-1] == row  # on the disk at once
    assert read_metrics(tmp_path) == rows
    assert (
        (tmp_path / "metrics.csv")
        .read_text()
        .splitlines()[0]
        .startswith("env_steps,gradient_steps,success_rate,")
    )


def test_numbers_that_are_none_come_back_too(tmp_path):
    CsvLog(tmp_path).log(metrics(1000, actor_loss=math.nan))
    assert math.isnan(read_metrics(tmp_path)[0]["actor_loss"])


def test_a_resumed_run_keeps_its_rows_up_to_where_it_resumes(tmp_path):
    first = CsvLog(tmp_path)
    for env_steps in (1000, 2000, 3000):
        first.log(metrics(env_steps))
    second = CsvLog(tmp_path, steps=2000)
    assert [row["env_steps"] for row in read_metrics(tmp_path)] == [1000, 2000]
    second.log(metrics(3000, success_rate=0.9))
    rows = read_metrics(tmp_path)
    assert [row["env_steps"] for row in rows] == [1000, 2000, 3000] and rows[2][
        "success_rate"
    ] == 0.9


def test_a_resumed_offline_run_keeps_its_rows_by_gradient_steps(tmp_path):
    first = CsvLog(tmp_path)
    for updates in (100, 200, 300):
        first.log(metrics(0, gradient_steps=updates))
    CsvLog(tmp_path, steps=200)
    assert [row["gradient_steps"] for row in read_metrics(tmp_path)] == [100, 200]


def test_a_new_run_starts_a_new_file(tmp_path):
    CsvLog(tmp_path).log(metrics(1000))
    CsvLog(tmp_path).log(metrics(500))
    assert [row["env_steps"] for row in read_metrics(tmp_path)] == [500]


@pytest.mark.parametrize(
    "damage",
    [
        "1000,abc\n",
        "1000\n",
        "1000,1,2\n",
        "nan,1\n",
        "inf,1\n",
        "1000,\0\n",
        "1000,\udcff\n",
        "9" * 200_000 + "," * 9 + "\n",
    ],
    ids=lambda damage: damage[:9].strip(),
)
def test_a_damaged_line_is_named_and_nothing_is_lost(tmp_path, damage):
    text = ("env_steps,success_rate\n500,0.5\n" + damage).encode("utf-8", "surrogateescape")
    (tmp_path / "metrics.csv").write_bytes(text)
    for call in (read_metrics, lambda folder: CsvLog(folder, steps=500)):
        with pytest.raises(
            ConfigError, match="^line 3 of '[^\n]*metrics.csv' is not a number for each column"
        ):
            call(tmp_path)
    assert (tmp_path / "metrics.csv").read_bytes() == text


@pytest.mark.parametrize("content", ["env_steps,success_rate\n", "a,b\n1,2\n", "\n1\n", ""])
def test_columns_that_are_missing_are_no_traceback(tmp_path, content):
    (tmp_path / "metrics.csv").write_text(content)
    try:
        assert read_metrics(tmp_path) == []
    except ConfigError as error:
        assert "line 2 of" in str(error)


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_row_that_was_cut_off_is_left_out_and_written_anew(tmp_path, cut):
    """A process that dies while it writes leaves half a row; the run goes on from before it."""
    log = CsvLog(tmp_path)
    log.log(metrics(1000))
    log.log(metrics(2000))
    whole = (tmp_path / "metrics.csv").read_bytes()
    (tmp_path / "metrics.csv").write_bytes(whole[:-cut])
    assert read_metrics(tmp_path) == [metrics(1000)]
    CsvLog(tmp_path, steps=1000).log(metrics(2000))
    assert (tmp_path / "metrics.csv").read_bytes() == whole


def test_killed_while_it_resumes_the_rows_are_those_before_or_after(tmp_path, monkeypatch):
    log = CsvLog(tmp_path)
    for env_steps in (1000, 2000, 3000):
        log.log(metrics(env_steps))
    seen = []

    def replace(new, path):
        seen.append(len(read_metrics(tmp_path)))
        os.rename(new, path)
        seen.append(len(read_metrics(tmp_path)))

    monkeypatch.setattr(os, "replace", replace)
    CsvLog(tmp_path, steps=2000)
    assert seen == [3, 2]


def test_a_metric_that_comes_later_has_a_column_from_then_on(tmp_path):
    """As the success of training episodes does, or what a newer version logs."""
    CsvLog(tmp_path).log({"env_steps": 1, "gradient_steps": 1, "old": 1 / 3})
    log = CsvLog(tmp_path, steps=1)
    log.log({"gradient_steps": 2, "env_steps": 2, "new": 6.0})
    log.log({"env_steps": 3, "gradient_steps": 3, "old": 7.0, "new": 8.0})
    assert [list(map(str, row.values())) for row in read_metrics(tmp_path)] == [
        ["1.0", "1.0", str(1 / 3), "nan"],
        ["2.0", "2.0", "nan", "6.0"],
        ["3.0", "3.0", "7.0", "8.0"],
    ]


# TensorBoard


def scalars(folder) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_tensorboard_shows_every_metric_over_env_steps(tmp_path):
    log = TensorBoardLog(tmp_path)
    log.log(metrics(1000))
    log.log(metrics(2000))
    log.close()
    found = scalars(tmp_path)
    assert found.keys() == metrics(0).keys() - {"env_steps"}
    assert found["success_rate"] == [(1000, pytest.approx(0.001)), (2000, pytest.approx(0.002))]


def test_records_are_those_of_tensorboards_own_writer():
    from tensorboard.summary.writer.record_writer import RecordWriter

    for data in (b"", b"123456789", bytes(range(256)) * 5):
        theirs = io.BytesIO()
        RecordWriter(theirs).write(data)
        assert make_record(data) == theirs.getvalue()


def test_tensorboard_shows_an_offline_run_over_gradient_steps(tmp_path):
    log = TensorBoardLog(tmp_path)
    for updates in (100, 200):
        log.log(metrics(0, gradient_steps=updates))
    log.close()
    assert scalars(tmp_path)["episode_return"] == [(100, -1.5), (200, -1.5)]


@pytest.mark.parametrize("later", [100.0, 0.0, -86_400.0])
def test_tensorboard_shows_a_resumed_run_as_one(tmp_path, monkeypatch, later):
    """Whatever the clock is set to meanwhile [s]."""
    first = TensorBoardLog(tmp_path)
    for env_steps in (1000, 2000, 3000):
        first.log(metrics(env_steps))
    first.close()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + later)
    monkeypatch.setattr(time, "time_ns", lambda: round(1e9 * (now + later)))
    second = TensorBoardLog(tmp_path, steps=2000)
    second.log(metrics(3000, success_rate=0.5))
    second.close()
    assert scalars(tmp_path)["success_rate"] == [
        (1000, pytest.approx(0.001)),
        (2000, pytest.approx(0.002)),
        (3000, pytest.approx(0.5)),
    ]


# The terminal


def shown(*rows: dict[str, float], terminal: bool) -> str:
    """What a display prints; at a terminal the bar is redrawn before it is closed."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=60, color_system=None)
    bars = Bars(console, patience=0.0) if terminal else None
    with contextlib.redirect_stdout(text), show_progress(bars or progress.Display()):
        display = Display(10_000)
        display.on_step(SimpleNamespace(steps=100))
        for row in rows:
            display.log(row)
            display.on_step(SimpleNamespace(steps=int(row["env_steps"])))
        if bars is not None:
            bars._live.refresh()
        display.close()
    return text.getvalue()


def test_where_nobody_watches_there_is_a_heading_and_a_line_an_evaluation():
    lines = shown(
        metrics(1_000), metrics(2_000_000, success_rate=0.987, actor_loss=math.nan), terminal=False
    ).splitlines()
    assert len(lines) == 3
    assert lines[0].split() == (
        "env steps updates success return env steps/s updates/s Q1 loss Q2 loss".split()
        + ["seconds", "left"]
    )
    assert (
        lines[2].split() == "2,000,000 200,000 98.7% -1.50 5,000 80 0.1000 0.2000 400.0 12".split()
    )
    assert len({len(line) for line in lines}) == 1, "the columns do not stand under their headings"


def test_at_a_terminal_the_lines_are_the_same_and_a_bar_moves_below_them():
    text = shown(metrics(1_000), terminal=True)
    assert "training" in text and "\x1b[" in text
    assert shown(metrics(1_000), terminal=False).splitlines()[1].strip() in text


def without_success(env_steps: int, **changed: float) -> dict[str, float]:
    return {
        name: value
        for name, value in metrics(env_steps, **changed).items()
        if name != "success_rate"
    }


def test_where_nobody_knows_success_its_column_is_left_out():
    heading, line = shown(without_success(1_000), terminal=False).splitlines()
    assert "success" not in heading and len(heading) == len(line)
    assert line.split() == "1,000 100 -1.50 5,000 80 0.1000 0.2000 0.2 12".split()


def test_a_column_that_comes_later_has_its_heading():
    """As of success that an environment reports from the first one on."""
    rows = (without_success(1_000), without_success(2_000), metrics(3_000), metrics(4_000))
    first, _, _, then, *_ = lines = shown(*rows, terminal=False).splitlines()
    assert "success" not in first and "success" in then and len(lines) == 6
    assert then == shown(metrics(3_000), terminal=False).splitlines()[0]


@pytest.mark.parametrize(
    "row, score",
    [
        (metrics(1_000, success_rate=0.25), "success 25.0%"),
        (without_success(1_000), "return -1.50"),
    ],
)
def test_the_bar_shows_the_score(row, score):
    assert score in shown(row, terminal=True)


# The picture


def picture_of(folder, rows: list[dict[str, float]]) -> np.ndarray:
    log = CsvLog(folder)
    for row in rows:
        log.log(row)
    plot_learning_curve(folder)
    with Image.open(folder / "learning_curve.png") as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB")).astype(int)


def blue_heights(picture: np.ndarray) -> np.ndarray:
    """Rows in which the blue of the success rate appears, between the axes."""
    red, green, blue = picture[:, 120:-120].transpose(2, 0, 1)
    return np.flatnonzero(((blue - red > 100) & (blue - green > 40)).any(1))


def test_the_curve_stands_where_the_success_rate_is(tmp_path):
    heights = {}
    for name, rate in (("low", 0.1), ("high", 0.9)):
        (tmp_path / name).mkdir()
        rows = [metrics(1000 * k, success_rate=rate) for k in range(1, 5)]
        picture = picture_of(tmp_path / name, rows)
        heights[name] = blue_heights(picture).mean() / len(picture)
    assert heights["low"] > heights["high"] + 0.4  # rows count from the top


@pytest.mark.parametrize(
    "rows",
    [
        [metrics(1000)],
        [metrics(1000), metrics(2000, episode_return=math.nan)],
        [metrics(1000 * k) for k in range(1, 200)],
        [without_success(1000 * k) for k in range(1, 5)],
        [metrics(0, gradient_steps=1000 * k, wall_s=k) for k in range(1, 5)],
    ],
    ids=["one row", "a gap", "many rows", "no success", "offline"],
)
def test_any_run_can_be_drawn(tmp_path, rows, recwarn):
    assert picture_of(tmp_path, rows).std() > 0
    assert not [str(warning.message) for warning in recwarn]


def test_without_success_there_is_no_blue(tmp_path):
    rows = [without_success(1000 * k, episode_return=k) for k in range(1, 5)]
    assert len(blue_heights(picture_of(tmp_path, rows))) == 0


def test_a_picture_that_cannot_be_written_is_one_line_and_leaves_the_old_one(tmp_path):
    CsvLog(tmp_path).log(metrics(1000))
    (tmp_path / "learning_curve.png").mkdir()
    with pytest.raises(ConfigError, match="^cannot write '.*learning_curve.png'"):
        plot_learning_curve(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["learning_curve.png", "metrics.csv"]


def test_a_run_that_was_never_evaluated_has_no_picture(tmp_path):
    CsvLog(tmp_path)
    plot_learning_curve(tmp_path)
    assert not (tmp_path / "learning_curve.png").exists()
