"""torchrun train.py as its user meets it: a real job that loses a machine, goes on, and then loses
a process.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch.distributed as dist

from td3_robot import checkpoint

ROOT = Path(__file__).resolve().parent.parent
SMALL = (
    *(
        "--env",
        "Pendulum-v1",
        "--num_envs",
        "4",
        "--steps",
        "1_600",
        "--evaluation.every",
        "800",
        "--save_every",
        "0.2",
    ),
    *("--evaluation.episodes", "2", "--exploration.start_steps", "100", "--td3.hidden", "8"),
    *("--replay.batch_size", "8", "--run", "two"),
)


def children(process: int) -> list[int]:
    """The processes that one has started, as Linux tells it."""
    return [
        int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]


@pytest.fixture
def torchrun(tmp_path):
    """torchrun with such flags, and train.py with such words, in a folder of its own."""
    with contextlib.ExitStack() as cleanup:

        def start(flags: str, *words: str) -> subprocess.Popen:
            command = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                *flags.split(),
                "--",
                str(ROOT / "train.py"),
            ]
            process = subprocess.Popen(
                [*command, *words],
                cwd=tmp_path,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            cleanup.callback(process.terminate)  # and with it those that it has started
            return process

        yield start


def wait_for(happened: Callable[[], bool], *processes: subprocess.Popen) -> None:
    until = time.monotonic() + 500
    while not happened():
        for process in processes:
            assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.01)


def told(err: str) -> str:
    """The one line of ours."""
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")
def test_a_job_that_loses_a_machine_or_a_process_goes_on(torchrun, tmp_path):
    """Two machines on loopback become one; then torchrun itself starts anew what it has lost. One
    line each.
    """
    run = tmp_path / "checkpoints/two"
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"--rdzv_backend c10d --rdzv_endpoint 127.0.0.1:{free.getsockname()[1]}"
    machine = f"--nnodes 2 --nproc_per_node 1 {place} --rdzv_conf is_host="
    stays = torchrun(f"{machine}1", *SMALL)
    lost = torchrun(f"{machine}0", *SMALL)
    wait_for((run / "last").exists, stays, lost)
    for process in (*children(lost.pid), lost.pid):
        os.kill(process, signal.SIGKILL)
    _, err = stays.communicate(timeout=500)
    again = "torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint HOST:PORT --nproc_per_node 1 -- train.py"
    assert stays.returncode == 1, err
    assert re.fullmatch(
        f"error: process . of 2 has lost another one .*; continue with: {again} --resume two",
        told(err),
    )

    state = run / "last/trainer_state"
    before = state.stat().st_mtime_ns
    job = torchrun("--nproc_per_node 2 --max-restarts 1", "--resume", "two")
    wait_for(lambda: state.exists() and state.stat().st_mtime_ns > before, job)
    os.kill(children(job.pid)[1], signal.SIGKILL)
    out, err = job.communicate(timeout=500)
    assert job.returncode == 0, err
    again = "continue with: torchrun --nproc_per_node 2 -- train.py --resume two"
    assert re.fullmatch(f"error: process 0 of 2 has lost another one .*; {again}", told(err))
    learning = (
        r"learning Pendulum-v1 \(seed 0\) in checkpoints/two, from [\d,]+ env steps on, 2 processes"
    )
    assert len(re.findall(learning, out)) == 2
    summary = json.loads((run / "summary.json").read_text())
    assert summary["finished"] and summary["env_steps"] == 1_600
    states = checkpoint.read(run / "last", names=("trainer_state",))
    assert len(states["trainer_state"]["source"]["ranks"]) == 2


@pytest.mark.slow
def test_a_resume_that_process_0_refuses_is_told_with_its_reason(torchrun, tmp_path, in_process):
    """The other process learns of it first, and would say only that process 0 has failed."""
    in_process(tmp_path, "train", *SMALL)
    _, err = torchrun("--nproc_per_node 2", "--resume", "two").communicate(timeout=500)
    assert told(err).startswith("error: run 'two' is trained by one process, not 2; continue with ")


def test_a_place_to_meet_that_is_lost_is_told_in_one_line(tmp_path):
    """The process that the others find each other at dies: PyTorch's own pages of it are left
    out.
    """
    stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)]
    told = {
        "RANK": 1,
        "WORLD_SIZE": 2,
        "LOCAL_WORLD_SIZE": 2,
        "GROUP_WORLD_SIZE": 1,
        "TORCHELASTIC_RUN_ID": "a",
    }
    told |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": stores[0].port,
        "OMP_NUM_THREADS": 1,
        "LOCAL_RANK": 1,
    }
    environment = os.environ | {name: str(value) for name, value in told.items()}
    command = [sys.executable, ROOT / "train.py", *SMALL]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        keys = stores[0].num_keys()
        wait_for(lambda: stores[0].num_keys() > keys, process)
        stores.clear()
        _, err = process.communicate(timeout=500)
    finally:
        process.kill()
    assert process.returncode == 1
    assert re.fullmatch(r"error: process 1 of 2 has lost another one \(.*\)\n", err)
