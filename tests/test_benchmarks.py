"""`make bench`: what it measures, and what it says of it."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

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
    assert bench.benchmark_pages.gflop_of_update(1, 1, 1, 1) == pytest.approx(
        2 * (critics + actor / 2) / 1e9
    )


def test_slower_is_less_than_nine_tenths_of_the_older_commit(bench):
    row = {"part": "p", "other": "abc", "ratio": 0.89}
    assert bench.is_slower(row) and not bench.is_slower(row | {"ratio": 0.91})
    assert not bench.is_slower(row | {"other": bench.SB3}) and not bench.is_slower({"part": "p"})


def test_rows_of_other_tasks_stay_and_those_of_the_same_are_replaced(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    rows, path, key = __import__("rows"), tmp_path / "results.csv", ("task", "seed")

    def row(task, seed, success):
        return {"task": task, "seed": seed, "success": success}

    rows.store(path, (*key, "success"), key, [row("reach", 0, 0.9), row("track", 0, 0.8)])
    rows.store(path, (*key, "success"), key, [row("reach", 1, 0.7)])
    rows.store(path, (*key, "success", "newer"), key, [row("track", 0, 0.6) | {"newer": 1}])
    assert path.read_text().split() == [
        "task,seed,success,newer",
        "reach,0,0.9,",
        "reach,1,0.7,",
        "track,0,0.6,1",
    ]


def test_a_task_that_is_measured_alone_leaves_those_of_others(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    robustness, path = __import__("robustness"), tmp_path / "results.csv"
    path.write_text(
        "task,disturbances,episodes,policy,classical\nreach,none,9,0,0\ntrack,none,9,0.5,0.5\n"
    )
    monkeypatch.setattr(robustness, "CONDITIONS", {"none": {}})
    measured = SimpleNamespace(
        add_baseline=print, measure_success=lambda *_: {"policy": 1.0, "rrmc": 0.75}
    )
    monkeypatch.setattr(robustness, "evaluation_of", lambda *_: measured)
    monkeypatch.setattr(robustness.torch, "set_num_threads", print)
    monkeypatch.setattr(
        sys, "argv", ["robustness.py", "--tasks", "reach", "--episodes", "2", "--out", str(path)]
    )
    robustness.main()
    assert path.read_text().split()[1:] == ["reach,none,2,1.0,0.75", "track,none,9,0.5,0.5"]
