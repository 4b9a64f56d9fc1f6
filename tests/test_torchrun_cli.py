"""torchrun train.py as its user meets it: two real processes, of which one is killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from td3_robot import checkpoint

ROOT = Path(__file__).resolve().parent.parent
SMALL = (
    *("--env", "Pendulum-v1", "--envs", "4", "--steps", "2_000", "--evaluation.every", "1_000", "--save_every", "0.2"),
    *("--evaluation.episodes", "3", "--exploration.start_steps", "100", "--td3.hidden", "8"),
    *("--replay.batch_size", "8", "--run", "two"),
)


def children(process: int) -> list[int]:
    """The processes that one has started, as Linux tells it."""
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")
def test_a_job_that_loses_a_process_goes_on(tmp_path):
    """torchrun starts it again, and it goes on with its run; what was lost is said in one line."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--max-restarts", "1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [*torchrun, "--", str(ROOT / "train.py"), *SMALL]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes)
    run = tmp_path / "checkpoints/two"
    try:
        until = time.monotonic() + 500
        while not (run / "last").exists():
            assert process.poll() is None and time.monotonic() < until, process.communicate()
            time.sleep(0.01)
        os.kill(children(process.pid)[1], signal.SIGKILL)
        out, err = process.communicate(timeout=500)
    finally:
        process.terminate()  # and with it those that it has started
    assert process.returncode == 0, err
    lost = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(lost) == 1 and re.match("error: process 0 of 2 has lost another one .*; go on with: torchrun", lost[0])
    assert out.count("learning Pendulum-v1 (seed 0) in checkpoints/two, 2 processes") == 2
    summary = json.loads((run / "summary.json").read_text())
    assert summary["finished"] and summary["env_steps"] == 2_000
    states = checkpoint.read(run / "last", names=("trainer_state",))
    assert len(states["trainer_state"]["source"]["ranks"]) == 2
