"""`make bench`: what it measures, and what it says of it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.rows import write_rows

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return __import__("bench")


def asked(*flags: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "benchmarks" / "bench.py"), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_a_part_is_measured_by_a_process_of_its_own():
    done = asked("--only", "product", "--turns", "2")
    assert done.returncode == 0, done.stderr
    name, rate, unit, *_ = done.stdout.split()
    assert (name, unit) == ("product", "GFLOP/s") and 1 < float(rate.replace(",", "")) < 10_000


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--only", "nothing"], "no part nothing; there are update 2x128"),
        (["--against", "no-such"], "no-such"),
    ],
)
def test_what_there_is_not_is_named(flags, words):
    done = asked(*flags, "--turns", "1")
    assert done.returncode and words in done.stderr and "Traceback" not in done.stderr


def test_the_gflop_of_an_update_are_those_of_its_products(bench):
    """One observation, one action, one unit a layer, a batch of one: critics have 4 weights and the
    actor 3.
    """
    forward = {"critic": 2 + 1 + 1, "actor": 1 + 1 + 1}
    # to each weight, and back through all layers but the first
    learning = {"critic": 4 + (1 + 1), "actor": 3 + (1 + 1)}
    critics = (
        forward["actor"] + 2 * forward["critic"] + 2 * (forward["critic"] + learning["critic"])
    )
    # there through Q1, and back to the action
    actor = forward["actor"] + learning["actor"] + 2 * forward["critic"]
    assert bench.benchmark_pages.compute_update_gflop(1, 1, 1, 1) == pytest.approx(
        2 * (critics + actor / 2) / 1e9
    )


def test_slower_is_less_than_nine_tenths_of_the_older_commit(bench):
    row = {"part": "p", "other": "abc", "ratio": 0.89}
    assert bench.is_slower(row) and not bench.is_slower(row | {"ratio": 0.91})
    assert not bench.is_slower(row | {"other": bench.SB3}) and not bench.is_slower({"part": "p"})


def test_rows_of_other_tasks_stay_and_those_of_the_same_are_replaced(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    rows = __import__("rows")
    path = tmp_path / "results.csv"
    key = ("task", "seed")

    def row(task, seed, success):
        return {"task": task, "seed": seed, "success": success}

    rows.write_rows(path, (*key, "success"), key, [row("reach", 0, 0.9), row("track", 0, 0.8)])
    rows.write_rows(path, (*key, "success"), key, [row("reach", 1, 0.7)])
    rows.write_rows(path, (*key, "success", "newer"), key, [row("track", 0, 0.6) | {"newer": 1}])
    assert path.read_text().split() == [
        "task,seed,success,newer",
        "reach,0,0.9,",
        "reach,1,0.7,",
        "track,0,0.6,1",
    ]


def test_a_task_that_is_measured_alone_leaves_those_of_others(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    robustness = __import__("robustness")
    path = tmp_path / "results.csv"
    path.write_text(
        "task,disturbances,episodes,policy,classical\nreach,none,9,0,0\ntrack,none,9,0.5,0.5\n"
    )
    monkeypatch.setattr(robustness, "CONDITIONS", {"none": {}})
    measured = SimpleNamespace(
        add_baseline=print, measure_success=lambda *_: {"policy": 1.0, "rrmc": 0.75}
    )
    monkeypatch.setattr(robustness, "make_evaluation", lambda *_: measured)
    monkeypatch.setattr(robustness.torch, "set_num_threads", print)
    robustness.main(["--tasks", "reach", "--episodes", "2", "--out", str(path)])
    reach, track = path.read_text().splitlines()[1:]
    assert re.fullmatch("reach,none,2,1.0,0.75,[0-9a-f]{7},[0-9a-f]{12}", reach)
    assert track == "track,none,9,0.5,0.5,,"


def test_a_figure_is_what_is_true(monkeypatch):
    """9,999 of 10,000 is not 100%; a row of other inputs, and one that is not there, are refused."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    figures = __import__("figures")
    shown = {(9999, 10_000): "99.99%", (300, 300): "100%", (299, 300): "99.7%", (0, 300): "0%",
             (1, 10_000): "0.01%", (99_999, 100_000): "99.999%", (498, 1000): "49.8%"}  # fmt: skip
    for (count, episodes), text in shown.items():
        assert figures.format_share(count / episodes, episodes) == text
    assert figures.format_cell("policy_time_s", "0.5", 9) == "0.50 s"
    assert figures.format_cell("train_s", "351.2", 9) == "6 min"
    assert figures.format_cell("policy_time_s", "", 9) == "–"
    row = {
        "task": "reach",
        "world": "exact",
        "policy": "1.0",
        "episodes": "300",
        "inputs": "0" * 12,
    }
    monkeypatch.setattr(figures.rows, "read_rows", lambda path: [row])
    with pytest.raises(figures.StaleFigure, match="stale; run `make results`"):
        figures.figure("laboratory", "policy", task="reach")
    row["inputs"] = figures.hash_in_mujoco(row)
    assert figures.figure("laboratory", "policy", task="reach") == "100%"
    with pytest.raises(figures.StaleFigure, match="0 rows"):
        figures.figure("laboratory", "policy", task="track")


def test_a_hash_is_of_the_values_not_of_the_comments(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    figures = __import__("figures")
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    hash_inputs = figures.hash_inputs.__wrapped__
    before = hash_inputs("reach"), hash_inputs("reach", mujoco=True)
    preset = tmp_path / "configs" / "reach.yaml"
    preset.write_text("# a comment\n" + preset.read_text())
    assert (hash_inputs("reach"), hash_inputs("reach", mujoco=True)) == before
    preset.write_text(preset.read_text().replace("1_600_000", "1_600_001"))
    assert hash_inputs("reach") != before[0]
    kinematic = hash_inputs("track")
    mujoco = hash_inputs("track", mujoco=True)
    with (tmp_path / "configs" / "physics" / "contacts.yaml").open("a") as file:
        file.write("\nadded: 1\n")
    assert hash_inputs("track") == kinematic and hash_inputs("track", mujoco=True) != mujoco


def test_pages_have_the_tables_of_today(monkeypatch, tmp_path):
    """Where this fails: `make results`."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    figures = __import__("figures")
    figures.require_filled()
    other = tmp_path / "page.md"
    other.write_text("# A\n\n<!-- table of what ships -->\n| a |\n<!-- end -->\n\nAnd more.\n")
    monkeypatch.setattr(figures, "PAGES", (other,))
    with pytest.raises(figures.StaleFigure, match="page.md has a table of other rows"):
        figures.require_filled()
    filled = figures.fill_page(other.read_text())
    assert filled.count("`reach_pose`") == 1 and filled.endswith("<!-- end -->\n\nAnd more.\n")


def test_rows_that_cannot_be_written_leave_the_file_as_it_was(tmp_path):
    """A run that is stopped while it writes costs none of the measurements before it."""

    class Broken:
        def __str__(self):
            raise KeyboardInterrupt

    path = tmp_path / "rows.csv"
    write_rows(path, ("name", "value"), ("name",), [{"name": "a", "value": 1}])
    before = path.read_text()
    with pytest.raises(KeyboardInterrupt):
        write_rows(path, ("name", "value"), ("name",), [{"name": "a", "value": Broken()}])
    assert path.read_text() == before == "name,value\na,1\n"
    assert [file.name for file in tmp_path.iterdir()] == ["rows.csv"]
