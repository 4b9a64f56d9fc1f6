"""Environments in processes of their own: the same experience, and nothing left behind however it
ends.
"""

import contextlib
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from envs.from_gymnasium import GymnasiumEnv, make_gymnasium
from td3_robot.errors import ConfigError, EnvError
from tests.support import needs_fetch

ROOT = Path(__file__).resolve().parents[3]


def play(env, steps: int = 450) -> list[torch.Tensor]:
    """Two episodes of Pendulum and more: all that a learner sees."""
    generator = torch.Generator().manual_seed(0)
    seen = [env.reset(4)]
    for _ in range(steps):
        action = torch.rand(env.num_envs, env.a_dim, generator=generator) * 2 - 1
        step = env.step(action)
        seen += [step.observation, step.reward, step.truncated, step.next_observation]
    return seen


def test_it_is_the_same_experience_as_one_after_the_other():
    one, other = (
        make_gymnasium("Pendulum-v1", 2, seed=1, vector=vector) for vector in ("sync", "async")
    )
    processes = other._gym.processes
    assert all(torch.equal(a, b) for a, b in zip(play(one), play(other), strict=True))
    other.close()
    assert [process.exitcode for process in processes] == [0, 0]


@needs_fetch
def test_goals_are_told_as_well():
    one, other = (
        make_gymnasium("FetchReach-v4", 2, seed=1, vector=vector) for vector in ("sync", "async")
    )
    assert all(torch.equal(a, b) for a, b in zip(play(one, 60), play(other, 60), strict=True))
    other.close()


def test_an_unknown_way_is_refused():
    with pytest.raises(ConfigError, match="unknown vector 'asinc'; did you mean 'async'"):
        make_gymnasium("Pendulum-v1", 2, vector="asinc")


class Counting(gym.Env):
    """Observes its step; episodes of 3 steps. At its fifth step the second copy does what `ends`
    says.
    """

    observation_space = spaces.Box(-9, 9, (1,))
    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, ends=None):
        self.ends = ends
        self.total = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time = self.time + 1
        self.total = self.total + 1
        if self.ends and self.total == 5 and multiprocessing.current_process().name.endswith("-1"):
            self.ends()
        return np.full(1, self.time, np.float32), 1.0, self.time == 3, False, {}


gym.register("toys/Counting-v0", Counting)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_autoreset_mode_works_in_processes(mode):
    env = GymnasiumEnv(AsyncVectorEnv([Counting] * 2, autoreset_mode=mode))
    env.reset(0)
    steps = [env.step(torch.zeros(2, 1)) for _ in range(8)]
    learnt = [step for step in steps if step.valid is None or step.valid.all()]
    assert [step.next_observation[0].item() for step in learnt][:6] == [1, 2, 3, 1, 2, 3]
    assert [step.observation[0].item() for step in learnt if not step.terminated.any()][:4] == [
        1,
        2,
        1,
        2,
    ]
    env.close()


def fail():
    raise RuntimeError("the motor is hot")


@pytest.mark.parametrize(
    "ends, message",
    [
        (functools.partial(os._exit, 7), "the process of copy 1 has ended with exit code 7"),
        (
            lambda: os.kill(os.getpid(), signal.SIGKILL),
            "the process of copy 1 has ended with exit code -9",
        ),
        (fail, "step raised RuntimeError: the motor is hot"),
    ],
)
def test_what_fails_in_its_process_is_one_line_and_all_processes_end(
    monkeypatch, capfd, ends, message
):
    monkeypatch.setattr(gym.registry["toys/Counting-v0"], "kwargs", {"ends": ends})
    env = make_gymnasium("toys/Counting-v0", 2, vector="async")
    processes = env._gym.processes
    with pytest.raises(EnvError) as caught:
        for _ in range(10):
            env.step(torch.zeros(2, 1))
    text = str(caught.value)
    assert text.startswith("env 'toys/Counting-v0', step ") and "\n" not in text
    assert message in text
    env.close()
    assert not any(process.is_alive() for process in processes)
    assert "Traceback" not in capfd.readouterr().err


def test_closing_in_the_middle_of_a_step_ends_all_processes():
    env = make_gymnasium("Pendulum-v1", 2, vector="async")
    processes = env._gym.processes
    env._gym.step_async(np.zeros((2, 1), np.float32))
    env.close()
    env.close()
    assert not any(process.is_alive() for process in processes)


# As their user meets it (Linux: processes are found in /proc)

TRAIN = """--env Pendulum-v1 --vector async --num_envs 2 --steps 100000
    --exploration.start_steps 100 --td3.hidden 16 --replay.batch_size 16 --evaluation.every 400
    --evaluation.episodes 1 --run r"""


def parents() -> dict[int, int]:
    """The parent of every process that runs."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            found |= {} if state == "Z" else {int(path.parent.name): int(parent)}
    return found


def gone(workers: list[int]) -> bool:
    """Whether all of them end within five seconds."""
    deadline = time.monotonic() + 5
    while parents().keys() & set(workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not parents().keys() & set(workers)


def start(cwd: Path, *words: str) -> subprocess.Popen:
    """Python in a process group of its own, as a terminal starts it."""
    pipes = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.Popen(
        [sys.executable, *words], cwd=cwd, env=environment, start_new_session=True, **pipes
    )


def workers_of(process: subprocess.Popen, count: int) -> list[int]:
    """Its processes, when it has said its first words in numbers."""
    said = []
    for line in process.stdout:
        said.append(line)
        if line.split()[0].replace(",", "").isdigit():
            break
    workers = [number for number, parent in parents().items() if parent == process.pid]
    assert len(workers) == count, said
    return workers


def test_ctrl_c_saves_and_a_process_that_dies_ends_the_resumed_run_with_one_line(tmp_path):
    process = start(tmp_path, str(ROOT / "train.py"), *TRAIN.split())
    workers = workers_of(process, 3)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and err == "" and gone(workers)

    process = start(tmp_path, str(ROOT / "train.py"), "--resume", "r")
    line = process.stdout.readline()
    assert line == "the environments cannot be restored: new episodes begin\n", (
        process.communicate()
    )
    workers = workers_of(process, 3)
    os.kill(workers[0], signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2 and err.count("\n") == 1, err
    assert (
        err.startswith("error: env 'Pendulum-v1', step ")
        and "has ended with exit code -9" in err
        and gone(workers)
    )


ALONE = """
from envs.from_gymnasium import make_gymnasium
env = make_gymnasium("Pendulum-v1", 2, vector="async")
print(1)
input()
"""


def test_ctrl_c_while_processes_are_made_is_not_lost():
    """Python ignores what is raised in the hooks that it calls around a fork."""
    code = """
import os, signal, sys
from envs.from_gymnasium import make_gymnasium
from td3_robot.utils.console import run_script
def main(argv):
    hook = lambda: signal.raise_signal(signal.%s)
    os.register_at_fork(after_in_parent=hook)
    make_gymnasium("Pendulum-v1", 1, vector="async")
    print("it went on")
run_script(main)
"""
    for name in ("SIGINT", "SIGTERM"):
        command = [sys.executable, "-c", code % name]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_processes_end_with_a_killed_learner_and_ignore_signals_to_its_group(tmp_path):
    process = start(tmp_path, "-c", ALONE)
    workers = workers_of(process, 2)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for worker in workers:
            os.kill(worker, number)
    time.sleep(0.1)
    assert parents().keys() >= set(workers)
    process.kill()
    assert gone(workers)
    assert process.communicate()[1] == ""
