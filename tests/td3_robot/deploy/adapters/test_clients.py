"""The makers' own clients, through the adapters: franky against franky-sim, ur_rtde against a server
of its protocols, rclpy against a node. `pytest -m clients` runs these alone.
"""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from td3_robot.deploy import DeployError, Robot, measure_latency
from td3_robot.deploy.adapters import ArmProcess
from tests.support import ROOT, wait_for

pytestmark = pytest.mark.clients
INSTALL = "pip install 'td3-robot[franka-sim,ur,ros2]'"
SERVERS = {
    "franky": "tests.franky_server",
    "ur_rtde": "tests.rtde_server",
    "ros2_control": "tests.ros2_node",
}
ROBOTS = {"franky": "panda", "ur_rtde": "ur5e", "ros2_control": "panda"}
PACKAGES = {
    "franky": ("franky", "franky_sim"),
    "ur_rtde": ("rtde_control",),
    "ros2_control": ("rclpy", "sensor_msgs", "std_msgs"),
}
REST = 0.005  # [rad/s] below which an arm is at rest


def need(*packages: str) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: {INSTALL}")


class Server:
    """A robot in a process of its own, at an address of its own, with a log of its motion."""

    def __init__(self, name: str, folder):
        self.name = name
        self.host = (
            f"127.{os.getpid() % 250 + 2}.{(os.getpid() // 250) % 250}.{time.time_ns() % 250 + 2}"
        )
        self.log = folder / "motion.log"
        self.joints = Robot.load(ROBOTS[name]).joints
        place = [self.host]
        if name == "ros2_control":
            place = [",".join(self.joints), "1"]
            self.host = "velocity_controller"
        command = [sys.executable, "-m", SERVERS[name], *place, str(self.log)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def connect(self) -> ArmProcess:
        return ArmProcess(self.name, self.host, self.joints, realtime=False)

    def motion(self) -> tuple[np.ndarray, np.ndarray]:
        """Times, and the fastest joint at each."""
        lines = [line for line in self.log.read_text().splitlines() if line.endswith("]")]
        rows = [json.loads(line) for line in lines]
        return np.array([row[0] for row in rows]), np.array([max(map(abs, row[2])) for row in rows])

    def rest_after(self, begun: float) -> float:
        """Seconds from a time until the arm did not move any more."""
        times, speeds = self.motion()
        moving = times[(speeds > REST) & (times > begun)]
        return moving[-1] - begun if len(moving) else 0.0


@pytest.fixture(params=sorted(SERVERS))
def server(request, tmp_path, monkeypatch):
    monkeypatch.setenv("ROS_DOMAIN_ID", str(os.getpid() % 100))  # others' nodes are not heard
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    need(*PACKAGES[request.param])
    made = Server(request.param, tmp_path)
    yield made
    made.process.kill()
    made.process.wait()


def test_latency_is_measured_again_and_again(server):
    """Between two motions nobody reads for longer than the robot's watchdog waits."""
    arm = server.connect()
    try:
        robot = Robot.load(ROBOTS[server.name])
        for _ in range(2):
            assert 0.0 <= measure_latency(arm, robot, joint=0, speed=0.05, seconds=0.5) < 0.2
            time.sleep(0.3)
        place = wait_for(arm.read).q[0]
        assert 0.03 < place - robot.home[0] < 0.08
    finally:
        arm.stop()
    assert server.motion()[1][-1] < REST


def test_states_of_ros_2_without_velocities_are_differentiated(tmp_path, monkeypatch):
    need(*PACKAGES["ros2_control"])
    monkeypatch.setenv("ROS_DOMAIN_ID", str(os.getpid() % 100 + 100))
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    command = [sys.executable, "-m", SERVERS["ros2_control"], "a,b", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as node:
        arm = ArmProcess("ros2_control", "velocity_controller", ("b", "a"))
        try:
            assert not wait_for(arm.read).qd.any()

            def moves() -> bool:
                arm.send(np.array([0.2, -0.1]))
                state = arm.read()
                return state is not None and np.allclose(state.qd, [-0.1, 0.2], atol=0.02)

            wait_for(moves)
        finally:
            arm.stop()
            node.kill()


MOVE = """
import sys, time, numpy as np
from td3_robot.deploy.adapters import ArmProcess
if __name__ == "__main__":
    name, host, joints = sys.argv[1:]
    arm = ArmProcess(name, host, tuple(joints.split(",")), realtime=False)
    for step in range(10**6):
        arm.send(np.full(joints.count(",") + 1, min(0.001 * step, 0.05)))
        time.sleep(0.01)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_an_arm_whose_loop_dies_or_hangs_comes_to_rest(server, tmp_path, how):
    script = tmp_path / "move.py"
    script.write_text(MOVE)
    command = [sys.executable, str(script), server.name, server.host, ",".join(server.joints)]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        wait_for(lambda: len(server.motion()[1]) and server.motion()[1][-1] > 0.03)
        begun = time.monotonic()
        process.send_signal(how)
        time.sleep(1.5)
        times, speeds = server.motion()
        assert speeds[times <= begun][-1] > 0.03 and server.rest_after(begun) < 1.0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_robot_that_dies_or_hangs_in_motion_is_told_in_bounded_time(server, how):
    """States cease, and `stop()` returns, though calls of the client may hang."""
    arm = server.connect()
    wait_for(arm.read)  # nodes of ROS 2 find each other within 2 s
    joints = len(server.joints)
    for step in range(50):
        arm.send(np.full(joints, min(0.001 * step, 0.03)))
        time.sleep(0.01)
    assert arm.read() is not None
    server.process.send_signal(how)
    time.sleep(0.1)
    came = 0
    begun = time.monotonic()
    while time.monotonic() < begun + 0.5:
        try:
            came += arm.read() is not None
        except DeployError:
            break
        arm.send(np.zeros(joints))
        time.sleep(0.01)
    assert came <= 5  # what had come before
    begun = time.monotonic()
    try:
        arm.stop()
    except DeployError as error:
        assert len(str(error)) > 10 and "\n" not in str(error)
    assert time.monotonic() - begun < 2.5 and not arm.process.is_alive()


@pytest.mark.parametrize(
    ("name", "port", "flags"), [("franky", 1337, ("--realtime", "false")), ("ur_rtde", 30004, ())]
)
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_host_that_accepts_and_says_nothing_can_be_left(straight_policy, name, port, flags, sent):
    need(PACKAGES[name][0])
    host = f"127.{os.getpid() % 250 + 2}.251.{time.time_ns() % 250 + 2}"
    with socket.create_server((host, port)) as silent:
        words = ("--policy", str(straight_policy), "--goal", "0.5,0.1,0.5", "--arm", name, *flags)
        process = subprocess.Popen(
            [sys.executable, "run_policy.py", *words, "--host", host],
            cwd=ROOT,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        silent.settimeout(60.0)
        taken = silent.accept()[0]
        time.sleep(0.3)  # the client waits for a word
        begun = time.monotonic()
        process.send_signal(sent)
        error = process.communicate(timeout=30)[1]
        assert time.monotonic() - begun < 2.0 and process.returncode == 130
        assert "Traceback" not in error
        taken.close()
