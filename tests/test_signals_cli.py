"""Signals at any moment of a training: an answer within seconds, exit code 130, no traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINE = "--env Pendulum-v1 --num_envs 4 --steps 1000000 --evaluation.episodes 3 --td3.hidden 16 --run swing"


def heeds(process: subprocess.Popen, number: int) -> bool:
    """Whether a process has set a handler for a signal, as Linux tells it."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(status.split("SigCgt:")[1].split()[0], 16)
    return bool(caught >> (number - 1) & 1)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize(
    "number, learns",
    [(signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGHUP, True), (signal.SIGINT, True)],
)
def test_a_signal_ends_a_training_without_a_traceback(tmp_path, number, learns):
    command = [sys.executable, str(ROOT / "train.py"), *LINE.split()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes
    )
    try:
        until = time.monotonic() + 60
        while not heeds(process, number) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)  # Python itself starts
        if learns:
            assert process.stdout.readline().startswith("learning Pendulum-v1")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "")
    assert (tmp_path / "checkpoints/swing/last/trainer_state").exists() == learns
    assert (tmp_path / "checkpoints/swing").exists() == learns
    assert not (tmp_path / "checkpoints/swing/.lock").exists()
