"""Side outputs that cannot be written are told once and cost no training."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from td3_robot.loggers.base import Trackers
from td3_robot.loggers.csv import CsvLog, read_metrics
from td3_robot.loggers.tensorboard import TensorBoardLog

ROOT = Path(__file__).resolve().parents[3]
FULL = Path("/dev/full")


class Broken:
    """A tracker with a bug."""

    def log(self, metrics=None):
        raise ZeroDivisionError("my\nbug")

    close = log


@pytest.mark.usefixtures("no_fsync")
def test_a_tracker_that_fails_is_told_once_and_the_run_goes_on(tmp_path, train, capsys):
    trainer = train(tmp_path, steps=240)
    trainer.trackers[:0] = [Broken(), Broken()]
    summary = trainer.run()
    trainer.trackers.close()
    assert summary["finished"] and len(trainer.trackers[2]) == 4 and trainer.trackers.failed
    assert (
        capsys.readouterr().err == "warning: Broken cannot be written (my bug); the run continues\n"
    )


def test_trackers_that_do_not_fail_say_nothing(tmp_path, capsys):
    trackers = Trackers()
    trackers += [CsvLog(tmp_path), TensorBoardLog(tmp_path)]
    trackers.log({"env_steps": 1, "gradient_steps": 1})
    trackers.close()
    assert not trackers.failed and capsys.readouterr().err == ""


def test_what_a_callback_adds_is_read_again_or_told_to_be_left_out(tmp_path, capsys):
    """Any name, and any value that is a number; nothing else reaches a file."""
    added = {"my\nname": 0.5, "my\u2028line": 1, "tensor": torch.tensor([2.5]), "bool": True}
    wrong = {"none": None, "word": "good", "list\nof": [1.0], "two": torch.zeros(2)}
    trackers = Trackers()
    trackers += [CsvLog(tmp_path), TensorBoardLog(tmp_path)]
    for steps in (1, 2):
        trackers.log({"env_steps": steps, "gradient_steps": 0, **added, **wrong})
    CsvLog(tmp_path, steps=1)  # as a resume does
    assert read_metrics(tmp_path) == [
        {"env_steps": 1, "gradient_steps": 0}
        | {"my name": 0.5, "my line": 1, "tensor": 2.5, "bool": 1}
    ]
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" cannot be written (")[0] for line in lines] == [
        f"warning: metric {name!r}" for name in wrong
    ]


def test_what_a_tracker_finds_wrong_itself_counts_too():
    trackers = Trackers()
    trackers.append(type("Silent", (), {"failed": True})())
    assert trackers.failed


def steps_in(folder: Path) -> list[int]:
    return [
        event.step for event in EventAccumulator(str(folder / "tensorboard")).Reload().Scalars("Q1")
    ]


def test_a_deleted_tensorboard_folder_is_made_again(tmp_path):
    log = TensorBoardLog(tmp_path)
    log.log({"env_steps": 1, "gradient_steps": 0, "Q1": 1.0})
    shutil.rmtree(tmp_path / "tensorboard")
    log.log({"env_steps": 2, "gradient_steps": 0, "Q1": 2.0})
    assert steps_in(tmp_path) == [2]


def test_what_tensorboard_could_not_take_is_written_later(tmp_path):
    log = TensorBoardLog(tmp_path)
    (tmp_path / "tensorboard").write_text("in the way")
    with pytest.raises(OSError):
        log.log({"env_steps": 1, "gradient_steps": 0, "Q1": 1.0})
    (tmp_path / "tensorboard").unlink()
    log.log({"env_steps": 2, "gradient_steps": 0, "Q1": 2.0})
    assert steps_in(tmp_path) == [1, 2]


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_a_full_disk_under_side_outputs_ends_in_exit_code_3_with_everything_saved(tmp_path):
    """stdout and the metrics, both on a full device."""
    line = """--env Pendulum-v1 --num_envs 4 --steps 800 --exploration.start_steps 200
        --evaluation.every 200 --run r
        --td3.hidden 16 --replay.batch_size 16 --evaluation.episodes 2"""
    code = f"""
import sys; sys.argv = ["train.py", *{line.split()!r}]; sys.path.insert(0, {str(ROOT)!r})
from td3_robot.loggers import csv as loggers_csv
class Full(loggers_csv.CsvLog):
    def log(self, metrics): open("/dev/full", "w").write("x" * 100_000)
loggers_csv.CsvLog = Full
from td3_robot.commands import train
from td3_robot.utils.console import run_script
run_script(train.main)
"""
    with FULL.open("w") as full:
        command = [sys.executable, "-c", code]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, stdout=full, stderr=subprocess.PIPE, text=True
        )
    lines = done.stderr.splitlines()
    assert done.returncode == 3, done.stderr
    assert [text.split()[:2] for text in lines] == [["warning:", "Full"], ["warning:", "the"]]
    assert (tmp_path / "checkpoints/r/summary.json").exists() and (
        tmp_path / "checkpoints/r/last"
    ).is_dir()
