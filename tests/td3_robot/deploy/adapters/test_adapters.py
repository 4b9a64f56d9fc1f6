"""The vendors' adapters, each against a stand-in for the calls that its vendor documents; none has
met hardware.
"""

import importlib
import sys
import types

import numpy as np
import pytest

from td3_robot.deploy import DeployError
from td3_robot.deploy.adapters import connect
from td3_robot.deploy.adapters.udp import Inbox, packed

SIX, SEVEN = tuple("abcdef"), tuple("abcdefg")


def module(name: str, **contents) -> types.ModuleType:
    made = types.ModuleType(name)
    vars(made).update(contents)
    return made


@pytest.fixture
def stand_in(monkeypatch):
    """Put modules in place of vendors' packages, and import the adapter anew."""

    def put(adapter: str, *modules: types.ModuleType) -> None:
        for made in modules:
            monkeypatch.setitem(sys.modules, made.__name__, made)
        monkeypatch.delitem(sys.modules, f"td3_robot.deploy.adapters.{adapter}", raising=False)

    return put


def test_a_ur_is_kept_alive_with_every_velocity(stand_in):
    calls = []

    class Control:
        def __init__(self, hostname, frequency=-1.0):
            calls.append(("control", hostname, frequency))

        def setWatchdog(self, min_frequency=10.0):
            calls.append(("setWatchdog", min_frequency))
            return True

        def kickWatchdog(self):
            calls.append(("kickWatchdog",))
            return True

        def speedJ(self, qd, acceleration=0.5, time=0.0):
            assert isinstance(qd, list) and len(qd) == 6
            calls.append(("speedJ", qd[0], time))
            return True

        def speedStop(self, a=10.0):
            calls.append(("speedStop", a))
            return True

        def stopScript(self):
            calls.append(("stopScript",))

    class Receive:
        stamp = 1.0

        def __init__(self, hostname, frequency=-1.0):
            pass

        def getTimestamp(self):
            return self.stamp

        def getActualQ(self):
            return [0.1] * 6

        def getActualQd(self):
            return [0.0] * 6

        def getActualTCPForce(self):
            return [0.0, 0.0, 12.0, 0.0, 0.0, 0.0]

    control, receive = module("rtde_control", RTDEControlInterface=Control), module("rtde_receive")
    receive.RTDEReceiveInterface = Receive
    stand_in("ur_rtde_arm", control, receive)
    arm = connect("ur_rtde", "192.0.2.1", SIX)
    assert arm.read().q.shape == (6,) and arm.read() is None  # the same state is no new one
    Receive.stamp = 1.002
    assert arm.read().felt["wrench"][2] == 12.0
    # a watchdog that runs already would end it before it begins
    assert [call[0] for call in calls] == ["control"]
    arm.send(np.full(6, 0.2))
    arm.send(np.full(6, 0.2))
    arm.stop()
    once = ["speedJ", "kickWatchdog"]
    assert [call[0] for call in calls] == [
        "control",
        "setWatchdog",
        *once,
        *once,
        "speedStop",
        "stopScript",
    ]
    assert calls[2] == ("speedJ", 0.2, 1 / arm.rate)
    calls.clear()
    connect("ur_rtde", "192.0.2.1", SIX).stop()  # as after a dry run
    assert [call[0] for call in calls] == ["control", "stopScript"]


def test_every_franka_motion_ends_by_itself(stand_in):
    calls = []

    class Robot:
        current_joint_state = types.SimpleNamespace(position=[0.0] * 7, velocity=[0.0] * 7)
        state = types.SimpleNamespace(O_F_ext_hat_K=[3.0] * 6, tau_ext_hat_filtered=[0.5] * 7)

        def __init__(self, host):
            calls.append(("robot", host))

        def recover_from_errors(self):
            calls.append(("recover",))

        def move(self, motion, asynchronous=False):
            calls.append(("move", motion, asynchronous))

        def join_motion(self):
            calls.append(("join",))

    franky = module(
        "franky",
        Robot=Robot,
        Duration=lambda ms: ms,
        JointVelocityMotion=lambda velocity, duration: ("velocity", velocity, duration),
        JointVelocityStopMotion=lambda: ("stop",),
    )
    stand_in("franky_arm", franky)
    arm = connect("franky", "192.0.2.2", SEVEN)
    reading = arm.read()
    assert reading.q.shape == reading.joint_torque.shape == (7,)
    assert reading.subtract({"wrench": np.ones(6)}).felt["wrench"].tolist() == [2.0] * 6
    arm.send(np.full(7, 0.1))
    arm.stop()
    assert calls[2] == ("move", ("velocity", [0.1] * 7, 100), True)
    assert calls[3:] == [("move", ("stop",), True), ("join",)]
    calls.clear()
    connect("franky", "192.0.2.2", SEVEN).stop()  # as after a dry run
    assert not any(call[0] == "move" for call in calls)


def test_ros2_joints_are_found_by_name(stand_in):
    sent, subscribed = [], {}

    class Node:
        def create_subscription(self, kind, topic, callback, depth):
            subscribed[topic] = callback

        def create_publisher(self, kind, topic, depth):
            return types.SimpleNamespace(
                publish=lambda message: sent.append((topic, list(message.data)))
            )

        def destroy_node(self):
            sent.append("destroyed")

    def state(a):
        return types.SimpleNamespace(
            name=["b", "x", "a"], position=[2.0, 9.0, a], velocity=[0.2, 0.9, 0.1]
        )

    hand = types.SimpleNamespace(name=["finger"], position=[0.0], velocity=[0.0])
    # as a message may be
    cut = types.SimpleNamespace(name=["b", "x", "a"], position=[2.0, 9.0, 5.0], velocity=[])
    signals = []  # rclpy's own handlers would shut it down before the arm is braked
    waiting = [state(1.0)]
    rclpy = module(
        "rclpy",
        init=lambda signal_handler_options: signals.append(signal_handler_options),
        create_node=lambda name: Node(),
        shutdown=lambda: sent.append("shut"),
    )
    rclpy.spin_once = lambda node, timeout_sec: (
        waiting and subscribed["/joint_states"](waiting.pop(0))
    )
    sensor, std = module("sensor_msgs.msg", JointState=object), module("std_msgs.msg")
    std.Float64MultiArray = lambda data: types.SimpleNamespace(data=data)
    options = module(
        "rclpy.signals", SignalHandlerOptions=types.SimpleNamespace(NO="no", ALL="all")
    )
    stand_in("ros2_arm", rclpy, options, module("sensor_msgs"), sensor, module("std_msgs"), std)
    arm = connect("ros2_control", "velocity_controller", ("a", "b"))
    assert arm.read().q.tolist() == [1.0, 2.0] and arm.read() is None
    assert signals == ["no"]
    waiting += [state(3.0), hand, state(4.0), cut, hand]  # what came while the loop was held up
    assert arm.read().q.tolist() == [4.0, 2.0] and arm.read() is None
    arm.send(np.array([0.1, 0.2]))
    arm.stop()
    assert sent == [
        ("/velocity_controller/commands", [0.1, 0.2]),
        ("/velocity_controller/commands", [0.0, 0.0]),
    ] + ["destroyed", "shut"]
    sent.clear()
    connect("ros2_control", "velocity_controller", ("a", "b")).stop()  # as after a dry run
    assert sent == ["destroyed", "shut"]


@pytest.mark.parametrize(
    ("name", "package"), [("ur_rtde", "ur_rtde"), ("franky", "franky-control")]
)
def test_a_missing_package_is_named(name, package, stand_in, monkeypatch):
    if any(importlib.util.find_spec(known) for known in ("rtde_control", "franky")):
        pytest.skip("it is installed here")
    stand_in(f"{name}_arm")
    with pytest.raises(DeployError, match=package):
        connect(name, "192.0.2.1", SIX)


def test_an_unknown_arm_is_answered_with_those_there_are():
    with pytest.raises(DeployError, match="franky, ros2_control, ur_rtde"):
        connect("abb", "192.0.2.1", SIX)


def test_only_whole_new_packets_count():
    inbox, values = Inbox(3), np.array([1.0, 2.0, 3.0])
    packet = packed(2, 5.0, values)
    for place in range(len(packet)):
        assert (
            inbox.taken(packet[:place] + bytes([packet[place] ^ 4]) + packet[place + 1 :]) is None
        )
    assert inbox.taken(packet[:-1]) is None
    stamp, taken = inbox.taken(packet)
    assert stamp == 5.0 and taken.tolist() == [1.0, 2.0, 3.0]
    # twice, and too late
    assert inbox.taken(packet) is None and inbox.taken(packed(1, 4.0, values)) is None
    assert inbox.taken(packed(3, 6.0, values)) is not None
