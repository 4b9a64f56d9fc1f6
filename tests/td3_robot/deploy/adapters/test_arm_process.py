"""A vendor's client in a process of its own: whatever its calls do, nobody waits for them.

The client is a module of franky's name whose calls hang, with Python's lock held, or raise.
"""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from td3_robot.deploy import DeployError
from td3_robot.deploy.adapters import ArmProcess
from td3_robot.deploy.adapters.arm_process import LEAVE, SILENCE, STOP
from tests.support import ROOT, wait_for

SEVEN = tuple("abcdefg")
CLIENT = '''
import ctypes, os, time, types

def do(what, *values):
    """Note a call, and do what the test wants of it."""
    with open(os.environ["CALLS"], "a") as file:
        print(time.monotonic(), what, *values, file=file)
    wanted = os.environ.get(what)
    if wanted == "hang": ctypes.PyDLL(None).sleep(100)  # with Python's lock held
    if wanted == "raise": raise RuntimeError(what + " has failed")
    if wanted == "die": os.abort()

class Duration(int):
    def to_msec(self): return int(self)

class RealtimeConfig: Enforce, Ignore = "enforce", "ignore"

class Robot:
    def __init__(self, host, realtime_config): do("connect", realtime_config)
    def recover_from_errors(self): pass
    @property
    def state(self):
        return types.SimpleNamespace(q=[0.0] * 7, dq=[0.0] * 7, time=Duration(1e3 * time.monotonic()),
            O_F_ext_hat_K=[0.0] * 6, tau_ext_hat_filtered=[0.0] * 7)
    def move(self, motion, asynchronous): do(*motion)
    def join_motion(self, timeout): do("join"); return True

def JointVelocityMotion(velocity, duration): return "move", velocity[0]
def JointVelocityStopMotion(): return ("brake",)
'''


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Make a client: `client(move="hang")`; the calls that it got are in `client.calls()`."""
    (tmp_path / "franky.py").write_text(CLIENT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CALLS", str(tmp_path / "calls.txt"))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")

    def want(**calls):
        for name, what in calls.items():
            monkeypatch.setenv(name, what)

    def calls() -> list[tuple[float, str]]:
        lines = (tmp_path / "calls.txt").read_text().splitlines()
        return [(float(line.split()[0]), line.split()[1]) for line in lines]

    want.calls = calls
    return want


def test_an_arm_of_its_own_process_is_read_moved_and_stopped(client):
    arm = ArmProcess("franky", "192.0.2.2", SEVEN, realtime=False)
    assert (arm.rate, arm.latency) == (100.0, 0.0)
    first = wait_for(arm.read)
    second = wait_for(arm.read)
    assert first.q.shape == (7,) and first.stamp < second.stamp <= time.monotonic()
    arm.send(np.full(7, 0.25))
    wait_for(lambda: "move" in [name for _, name in client.calls()])
    arm.stop()
    assert [name for _, name in client.calls()] == ["connect", "move", "brake", "join"]
    assert not arm.process.is_alive()


def test_a_host_that_never_answers_is_given_up(client):
    client(connect="hang")
    begun = time.monotonic()
    with pytest.raises(DeployError, match="has not answered in 2 s"):
        ArmProcess("franky", "192.0.2.2", SEVEN, patience=2.0)
    assert time.monotonic() - begun < 4.0


@pytest.mark.parametrize(("what", "why"), [("raise", "connect has failed"), ("die", "has ended")])
def test_a_client_that_cannot_connect_says_so(client, what, why):
    client(connect=what)
    with pytest.raises(DeployError, match=why):
        ArmProcess("franky", "192.0.2.2", SEVEN)


@pytest.mark.parametrize("error", (OSError(43, "Protocol not supported"), AttributeError("none")))
def test_a_system_without_packets_between_processes_is_told_of(monkeypatch, error):
    """As macOS, for the first of them."""

    def refuse(*_):
        raise error

    monkeypatch.setattr("socket.socketpair", refuse)
    with pytest.raises(DeployError, match=f"^arms are driven from Linux; .*{error.args[-1]}"):
        ArmProcess("franky", "nowhere", SEVEN)


def test_a_call_that_hangs_is_silence_and_ends_in_bounded_time(client):
    client(move="hang")
    arm = ArmProcess("franky", "192.0.2.2", SEVEN)
    wait_for(arm.read)
    arm.send(np.full(7, 0.25))
    wait_for(lambda: "move" in [name for _, name in client.calls()])
    arm.read()
    begun = time.monotonic()
    for _ in range(5000):  # more than fit between the two processes
        arm.send(np.full(7, 0.25))
    assert time.monotonic() - begun < 2.0 and arm.read() is None
    begun = time.monotonic()
    with pytest.raises(DeployError, match=f"not stopped it within {STOP:g} s"):
        arm.stop()
    assert time.monotonic() - begun < STOP + LEAVE + 1.0 and not arm.process.is_alive()


@pytest.mark.parametrize(
    ("call", "what", "why"),
    [
        ("move", "raise", "the arm cannot take a velocity: move has failed"),
        ("move", "die", "the arm's client has ended"),
        ("brake", "raise", "the arm cannot be stopped: brake has failed"),
    ],
)
def test_a_call_that_fails_is_told_in_one_line(client, call, what, why):
    client(**{call: what})
    arm = ArmProcess("franky", "192.0.2.2", SEVEN)
    arm.send(np.full(7, 0.25))
    wait_for(lambda: "move" in [name for _, name in client.calls()])
    with pytest.raises(DeployError, match=why):
        if call == "move":
            while True:
                arm.read()
        arm.stop()
    if what == "raise" and call == "move":
        arm.stop()
    elif call == "move":
        with pytest.raises(DeployError, match="has ended"):
            arm.stop()
    assert not arm.process.is_alive()


MOVE = """
import sys, time, numpy as np
from td3_robot.deploy.adapters import ArmProcess
if __name__ == "__main__":
    arm = ArmProcess("franky", "192.0.2.2", tuple("abcdefg"))
    while True:
        arm.send(np.full(7, 0.25))
        time.sleep(0.01)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_loop_that_dies_or_hangs_leaves_an_arm_that_brakes(client, tmp_path, how):
    script = tmp_path / "move.py"
    script.write_text(MOVE)
    process = subprocess.Popen([sys.executable, str(script)], cwd=ROOT, env=os.environ)
    try:
        wait_for(lambda: (tmp_path / "calls.txt").exists() and len(client.calls()) > 20)
        begun = time.monotonic()
        process.send_signal(how)
        braked = wait_for(lambda: [when for when, name in client.calls() if name == "brake"])
    finally:
        process.kill()
        process.wait()
    assert braked[0] - begun < SILENCE + 0.5  # on a busy machine
    assert client.calls()[-1][1] == "join"


def run_policy(path, *flags):
    words = ("--policy", str(path), "--goal", "0.5,0.1,0.5", "--arm", "franky", *flags)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(
        [sys.executable, "run_policy.py", *words], cwd=ROOT, text=True, env=os.environ, **pipes
    )


@pytest.mark.parametrize("name", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.slow)])
def test_signals_end_a_run_whose_host_is_silent(client, straight_policy, tmp_path, name):
    client(connect="hang")
    process = run_policy(straight_policy)
    wait_for(lambda: (tmp_path / "calls.txt").exists(), 60.0)
    begun = time.monotonic()
    process.send_signal(getattr(signal, name))
    error = process.communicate(timeout=20)[1]
    assert time.monotonic() - begun < 2.0 and process.returncode == 130
    assert "Traceback" not in error
