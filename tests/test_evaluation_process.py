"""Evaluations in a process of their own, as a user meets them: the same run, whatever becomes of
that process.
"""

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from td3_robot import checkpoint
from td3_robot.evaluation import process as evaluation_process
from td3_robot.evaluation.process import EvaluationProcess
from td3_robot.loggers.csv import CsvLog, read_metrics

ROOT = Path(__file__).resolve().parent.parent
CLOCKS = {"wall_s", "env_steps_per_s", "updates_per_s", "left_s"}
LINE = """--threads 1 --num_envs 16 --steps 1600 --updates_per_step 1 --evaluation.every 320 --evaluation.episodes 20
    --exploration.start_steps 160 --replay.batch_size 16 --td3.hidden 16 --td3.normalize_observations"""
GIVEN_UP = "warning: the process that plays the evaluations is given up ({}); the training plays them itself\n"
MAKES_NONE = functools.partial(time.sleep, 0)
STARTS = """if True:
    import functools, signal, time
    from td3_robot.evaluation.process import EvaluationProcess
    beside = EvaluationProcess(functools.partial(time.sleep, 0), 0, 1)
    for name in ("SIGINT", "SIGHUP"):
        signal.signal(getattr(signal, name), lambda *_: None)
    print(beside._process.pid, flush=True)
    input()
    print(beside._process.is_alive(), flush=True)
    time.sleep(1000)
"""


def test_a_run_is_the_same_with_a_process_and_when_that_dies(tmp_path, in_process, monkeypatch):
    log, played = CsvLog.log, []

    def kill_at_the_third(self, metrics):
        log(self, metrics)
        played.append(len(multiprocessing.active_children()))
        if len(played) == 3:
            multiprocessing.active_children()[0].kill()

    assert in_process(tmp_path, "train", *LINE.split(), "--run", "in_line")[::2] == (0, "")
    monkeypatch.setattr(
        EvaluationProcess, "ready", lambda self, ready=EvaluationProcess.ready: ready(self, 60.0)
    )
    monkeypatch.setattr(CsvLog, "log", kill_at_the_third)
    code, out, err = in_process(
        tmp_path, "train", *LINE.split(), "--run", "beside", "--evaluation.process", "true"
    )
    assert (code, err) == (0, GIVEN_UP.format("it has ended"))
    assert played == [1, 1, 1, 0, 0] and multiprocessing.active_children() == []
    runs = [tmp_path / "checkpoints" / name for name in ("in_line", "beside")]
    rows = [
        [{name: row[name] for name in row if name not in CLOCKS} for row in read_metrics(run)]
        for run in runs
    ]
    assert [row["env_steps"] for row in rows[0]] == [320, 640, 960, 1280, 1600]
    assert repr(rows[0]) == repr(rows[1])
    for folder in ("", "last"):
        expected, found = (
            checkpoint.read(run / folder, ("actor", "Q1", "Q2", "normalizer")) for run in runs
        )
        assert all(
            torch.equal(value, found[n][key])
            for n in expected
            for key, value in expected[n].items()
        )


def test_a_process_that_hangs_is_given_up(monkeypatch, capsys):
    monkeypatch.setattr(evaluation_process, "PATIENCE", 0.2)
    beside = EvaluationProcess(MAKES_NONE, seed=0, threads=1)
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGSTOP)
    answer = beside.begin(torch.nn.Linear(1000, 1000))  # more than a pipe holds
    assert beside.scores(answer, heed=lambda: None) is None
    assert beside.lost and multiprocessing.active_children() == []
    assert capsys.readouterr().err == GIVEN_UP.format("it has not answered for 0.2 s")


def test_a_process_that_cannot_be_started_is_given_up(monkeypatch, capsys):
    def fails(*_):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(multiprocessing.get_context("spawn").Process, "start", fails)
    beside = EvaluationProcess(MAKES_NONE, seed=0, threads=1)
    assert beside.lost and capsys.readouterr().err == GIVEN_UP.format(
        "Resource temporarily unavailable"
    )
    beside.close()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs groups of processes")
def test_no_process_outlives_its_training_nor_takes_what_the_terminal_sends_to_both():
    pipes = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    training = subprocess.Popen(
        [sys.executable, "-c", STARTS], env=environment, start_new_session=True, **pipes
    )
    try:
        beside = int(training.stdout.readline())
        for number in (signal.SIGINT, signal.SIGHUP):
            os.killpg(training.pid, number)
        training.stdin.write("\n")
        training.stdin.flush()
        assert training.stdout.readline() == "True\n"
        os.kill(training.pid, signal.SIGKILL)
        out, err = training.communicate(timeout=60)  # both have closed their ends
    finally:
        training.kill()
    assert (out, err) == ("", "")
    until = time.monotonic() + 60  # a process that ends closes its pipes first
    while not _ended(beside):
        assert time.monotonic() < until
        time.sleep(0.01)


def _ended(process: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
