"""Inject faults: `python benchmarks/faults.py --policy policy.onnx --runs 1000 --jobs 4`.

Every run is three processes: the simulated arm, the loop with filter and watchdog, and the policy.
One of eleven things happens to them or to the packets between them. Held to account are the
velocities that were sent (every limit, by their differences), where the arm was (its position
limits), how long it took to come to rest, and that the loop said why it ended, in one line. Times
are counted in the arm's own steps, so that a machine with other things to do does not count.
"""

import argparse
import collections
import json
import multiprocessing
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from pathlib import Path

import numpy as np

from td3_robot.deploy import DeployError, Policy, SafetyFilter, Watchdog
from td3_robot.deploy.adapters.udp import UdpArm
from td3_robot.deploy.adapters.udp_server import PERIOD, Faults, serve
from td3_robot.deploy.runtime.calm_start import wait_for_calm_start
from td3_robot.deploy.runtime.control_loop import run_control_loop
from td3_robot.deploy.runtime.motion_log import Log
from td3_robot.deploy.runtime.policy_worker import PolicyProcess
from td3_robot.errors import ConfigError
from td3_robot.utils.console import exit_code

NETWORK = {
    "nothing": Faults(),
    "dropped": Faults(drop=0.3),
    "late": Faults(delay=0.02, jitter=0.01),
    "reordered": Faults(jitter=0.04),
    "duplicated": Faults(duplicate=0.5),
    "corrupted": Faults(corrupt=0.3),
}
VICTIMS = {  # what is done to whom
    "robot killed": ("robot", signal.SIGKILL),
    "policy killed": ("policy", signal.SIGKILL),
    "policy stopped": ("policy", signal.SIGSTOP),
    "loop killed": ("loop", signal.SIGKILL),
    "loop stopped": ("loop", signal.SIGSTOP),
}
SPEED = 0.1  # of a run, run_policy.py's default
SECONDS = 0.8
CALM = 0.05
REST = 0.2  # [s] within which the arm has to be at rest after the last good message
ROWS = 4000
FORK = multiprocessing.get_context("fork")


@dataclass
class Run:
    """Outcome of a run: fault, what was wrong (or empty), time to rest [s], last line."""

    fault: str
    wrong: str
    rest: float
    line: str


def run_robot(robot, sock: socket.socket, faults: Faults, seed: int, count, rows) -> None:
    """Simulate the arm; write a row of shared memory for every step."""
    from envs.export.simulated_arm import SimulatedArm

    table = np.frombuffer(rows).reshape(ROWS, -1)

    def write_row(now: float, reading: list[float]) -> None:
        row = count.value
        if row < ROWS:
            table[row] = reading[:-1]
            count.value = row + 1

    serve(SimulatedArm(robot, PERIOD), sock, faults, seed, write_row)


def run_loop(path: str, policy: Policy, address, goal: np.ndarray, log: Path, results) -> None:
    """Run the loop of run_policy.py; report the policy's process, and why the loop ended."""
    arm = UdpArm(address, policy.robot.limits.n)
    arm.send(np.zeros(policy.robot.limits.n))
    watch = Watchdog(SafetyFilter(policy.robot, arm.rate, policy.rate, speed=SPEED))
    mind = PolicyProcess(path, "fork")
    try:
        start = wait_for_calm_start(arm, watch, policy.robot.home, 0.4, calm=CALM)
    except DeployError as error:  # on a busy machine silence may come before the fault does
        return results.send(str(error))
    watch.reset(start.q, start.stamp)
    results.send(mind.process.pid)
    lines = Log(log, policy.robot.joints)
    how = {"policy_rate": policy.rate, "speed": SPEED, "seconds": SECONDS}
    results.send(run_control_loop(arm, mind, watch, {"goal": goal}, **how, log=lines))
    lines.close()
    mind.close()


def run_once(path: str, policy: Policy, robot, fault: str, seed: int) -> Run:
    """Run once, with a fault at a random time."""
    chance = random.Random(seed)
    goal = np.array([chance.uniform(0.3, 0.6), chance.uniform(-0.3, 0.3), chance.uniform(0.2, 0.6)])
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    count = FORK.Value("q", 0, lock=False)
    rows = RawArray("d", ROWS * 2 * policy.robot.limits.n)
    here, there = FORK.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.csv"
        faults = NETWORK.get(fault, Faults())
        arm = FORK.Process(target=run_robot, args=(robot, sock, faults, seed, count, rows))
        arm.start()
        loop = FORK.Process(
            target=run_loop, args=(path, policy, sock.getsockname(), goal, log, there)
        )
        loop.start()
        there.close()
        mind = None
        line = ""
        hit = 0
        try:
            if not here.poll(30.0):
                return Run(fault, "the loop did not start", np.inf, "")
            mind = here.recv()
            if isinstance(mind, str):
                return Run(fault, "", 0.0, f"not started: {mind}")
            if fault in VICTIMS:
                time.sleep(chance.uniform(0.1, 0.6 * SECONDS))
                who, what = VICTIMS[fault]
                hit = count.value
                _send_signal({"robot": arm.pid, "policy": mind, "loop": loop.pid}[who], what)
            alive = fault not in ("loop killed", "loop stopped")
            line = _read_line(here) if alive else ""
            time.sleep(0.5)  # for the arm's own brakes
        finally:
            for process in (arm, loop):
                process.kill()
                process.join()
            if isinstance(mind, int):
                _send_signal(mind, signal.SIGKILL)
            here.close()
            sock.close()
        steps = np.frombuffer(rows).reshape(ROWS, 2, -1)[: count.value]
        sent = _read_sent(log)
    return _judge(fault, policy, steps, sent, hit, line)


def _read_line(pipe) -> str:
    """Return the last line that the loop reported."""
    try:
        return pipe.recv() if pipe.poll(30.0) else ""
    except EOFError:
        return ""


def _send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has ended by itself
        pass


def _read_sent(log: Path) -> np.ndarray:
    """Return the velocities (T, n) that left the filter, without a last torn line."""
    if not log.is_file():
        return np.zeros((0, 0))
    lines = [line.split(",") for line in log.read_text().splitlines()[1:]]
    lines = [line for line in lines if len(line) == len(lines[0])]
    n = (len(lines[0]) - 2) // 3 if lines else 1
    return np.array([line[1 + n : 1 + 2 * n] for line in lines[:-1]], float).reshape(-1, n)


def _judge(
    fault: str, policy: Policy, steps: np.ndarray, sent: np.ndarray, hit: int, line: str
) -> Run:
    limits = policy.robot.limits
    wrong = []
    q = steps[:, 0]
    qd = np.abs(steps[:, 1]).max(1)
    if (q < limits.lower).any() or (q > limits.upper).any():
        wrong.append("a position limit was violated")
    h = 1.0 / UdpArm.RATE
    part = 1.0 + 1e-4  # the log has nine digits
    for what, rows, most in (
        ("velocity", sent, SPEED * limits.velocity),
        ("acceleration", np.diff(sent, axis=0) / h, limits.acceleration),
        ("jerk", np.diff(sent, 2, axis=0) / h**2, limits.jerk),
    ):
        if len(rows) and (np.abs(rows) > part * most + 1e-3).any():
            wrong.append(f"{what} limit violated")
    moving = np.nonzero(qd[hit:] > 1e-4)[0]
    rest = 0.0 if fault in NETWORK or not len(moving) else (moving[-1] + 1) * PERIOD
    if len(qd) and qd[-1] > 1e-4 and fault != "robot killed":
        wrong.append("the arm is not at rest")
    if rest > REST and fault != "robot killed":
        wrong.append(f"at rest after {rest:.3f} s")
    if fault not in ("loop killed", "loop stopped") and (not line or "\n" in line):
        wrong.append(f"the loop ended with {line!r}")
    return Run(fault, "; ".join(wrong), rest, line)


def torture(path: str, runs: int, seed: int = 0, jobs: int = 1) -> Iterator[Run]:
    """Run each fault in turn, some at a time.

    They mostly sleep: the processes that are killed are real, and so is the time.
    """
    import envs

    try:
        policy = Policy.load(path)
    except DeployError as error:
        raise ConfigError(str(error)) from None
    given = path, policy, envs.make_robot(policy.robot.name)
    faults = [*NETWORK, *VICTIMS]
    numbers = range(runs)
    with ProcessPoolExecutor(jobs, FORK, _GIVEN.extend, (given,)) as pool:
        yield from pool.map(
            _run_given,
            [faults[number % len(faults)] for number in numbers],
            [seed + n for n in numbers],
        )


_GIVEN: list = []  # to a process of the pool, which cannot be sent it


def _run_given(fault: str, seed: int) -> Run:
    return run_once(*_GIVEN, fault, seed)


def main(argv: list[str]) -> int:
    """Run, print a table, and report whether anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", required=True)
    parser.add_argument("--runs", type=int, default=110)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(argv)
    done = []
    for run in torture(asked.policy, asked.runs, asked.seed, asked.jobs):
        done.append(run)
        if asked.json:
            asked.json.write_text(json.dumps([vars(run) for run in done]))
    for fault in dict.fromkeys(run.fault for run in done):
        of = [run for run in done if run.fault == fault]
        bad = [run.wrong for run in of if run.wrong]
        said = collections.Counter(run.line for run in of).most_common(1)[0][0]
        print(
            f"{fault:16} {len(of):4} runs, {len(bad)} wrong, "
            f"rest within {max(run.rest for run in of):.3f} s: {said}"
        )
        for wrong in dict.fromkeys(bad):
            print(f"{'':16} {wrong}")
    return int(any(run.wrong for run in done))


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
