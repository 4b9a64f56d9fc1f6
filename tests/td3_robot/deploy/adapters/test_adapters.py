"""The vendors' adapters, each against a stand-in for the calls that its vendor documents, so that
what they do is known to the call; tests/td3_robot/deploy/adapters/test_clients.py has the clients.
"""

import sys
import types

import numpy as np
import pytest

from td3_robot.deploy import DeployError
from td3_robot.deploy.adapters import connect
from td3_robot.deploy.arm import ArmClock

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
            return self.running

        def speedStop(self, a=10.0):
            calls.append(("speedStop", a))
            return True

        def stopScript(self):
            calls.append(("stopScript",))

        def isProgramRunning(self):
            return self.running

        def reuploadScript(self):
            calls.append(("reuploadScript",))
            Control.running = True
            return True

        running = True

    class Receive:
        stamp = 1.0

        def __init__(self, hostname, frequency=-1.0):
            pass

        connected = True

        def getTimestamp(self):
            return self.stamp

        def isConnected(self):
            return self.connected

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
    arm = connect("ur_rtde", "192.0.2.1", SIX)
    arm.stop()  # as after a dry run
    assert [call[0] for call in calls] == ["control", "stopScript"]
    arm.send(np.full(6, 0.1))
    calls.clear()
    arm.read()
    assert calls == []  # while it moves, velocities alone are signs of life
    arm.send(np.zeros(6))
    arm.read()
    assert calls[-1] == ("kickWatchdog",) and len(calls) == 3  # at rest, reading is one
    Control.running = False  # nobody has read for a while
    with pytest.raises(DeployError, match="takes no velocity: it has ended"):
        arm.send(np.zeros(6))
    calls.clear()
    arm.read()
    assert [call[0] for call in calls] == ["reuploadScript", "setWatchdog", "kickWatchdog"]
    Receive.connected = False
    with pytest.raises(DeployError, match="closed the connection"):
        arm.read()


def test_every_franka_motion_ends_by_itself(stand_in):
    calls = []

    class Robot:
        state = types.SimpleNamespace(
            q=[0.0] * 7,
            dq=[0.0] * 7,
            time=types.SimpleNamespace(to_msec=lambda: 1000),
            O_F_ext_hat_K=[3.0] * 6,
            tau_ext_hat_filtered=[0.5] * 7,
        )

        def __init__(self, host, realtime_config):
            calls.append(("robot", host, realtime_config))
            if realtime_config == "enforce" and host == "192.0.2.9":
                raise RuntimeError("Running kernel does not have realtime capabilities.")

        def recover_from_errors(self):
            calls.append(("recover",))

        def move(self, motion, asynchronous=False):
            calls.append(("move", motion, asynchronous))

        def join_motion(self, timeout):
            calls.append(("join",))
            return not calls[0][1] == "192.0.2.9"

    franky = module(
        "franky",
        Robot=Robot,
        RealtimeConfig=types.SimpleNamespace(Enforce="enforce", Ignore="ignore"),
        Duration=lambda ms: ms,
        JointVelocityMotion=lambda velocity, duration: ("velocity", velocity, duration),
        JointVelocityStopMotion=lambda: ("stop",),
    )
    stand_in("franky_arm", franky)
    arm = connect("franky", "192.0.2.2", SEVEN)
    reading = arm.read()
    assert reading.q.shape == reading.joint_torque.shape == (7,)
    assert reading.subtract({"wrench": np.ones(6)}).felt["wrench"].tolist() == [2.0] * 6
    assert arm.read() is None  # the robot's clock stands still: the state is an old one
    arm.send(np.full(7, 0.1))
    arm.stop()
    assert calls[2] == ("move", ("velocity", [0.1] * 7, 100), True)
    assert calls[3:] == [("move", ("stop",), True), ("join",)]
    calls.clear()
    connect("franky", "192.0.2.2", SEVEN).stop()  # as after a dry run
    assert not any(call[0] == "move" for call in calls)
    with pytest.raises(DeployError, match="--realtime false connects all the same"):
        connect("franky", "192.0.2.9", SEVEN)
    calls.clear()
    arm = connect("franky", "192.0.2.9", SEVEN, realtime=False)
    arm.stop()
    arm.send(np.zeros(7))
    with pytest.raises(DeployError, match="the motion has not ended within 0.8 s"):
        arm.stop()


def test_ros2_joints_are_found_by_name(stand_in):
    sent, subscribed = [], {}

    class Node:
        def create_subscription(self, kind, topic, callback, depth):
            subscribed[topic] = callback

        def create_publisher(self, kind, topic, depth):
            return types.SimpleNamespace(
                publish=lambda message: sent.append((topic, list(message.data))),
                wait_for_all_acked=lambda timeout: True,
            )

        def destroy_node(self):
            sent.append("destroyed")

    clock = iter(range(1, 100))

    def state(a, at=None, velocity=(0.2, 0.9, 0.1), position=None):
        at = 1.0 + 0.01 * next(clock) if at is None else at
        stamp = types.SimpleNamespace(sec=int(at), nanosec=round(1e9 * (at - int(at))))
        return types.SimpleNamespace(
            header=types.SimpleNamespace(stamp=stamp),
            name=["b", "x", "a"],
            position=[2.0, 9.0, a] if position is None else position,
            velocity=list(velocity),
        )

    hand = types.SimpleNamespace(name=["finger"], position=[0.0], velocity=[0.0])
    cut = state(5.0, position=[2.0, 9.0])  # as a message may be
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
    qos = module(
        "rclpy.qos",
        HistoryPolicy=types.SimpleNamespace(KEEP_LAST="last"),
        ReliabilityPolicy=types.SimpleNamespace(BEST_EFFORT="best effort"),
        QoSProfile=lambda **given: given,
    )
    duration = module("rclpy.duration", Duration=lambda seconds: seconds)
    others = (sensor, std, qos, duration)
    stand_in("ros2_arm", rclpy, options, module("sensor_msgs"), module("std_msgs"), *others)
    arm = connect("ros2_control", "velocity_controller", ("a", "b"))
    assert arm.read().q.tolist() == [1.0, 2.0] and arm.read() is None
    assert signals == ["no"]
    waiting += [state(3.0), hand, state(4.0), cut, hand]  # what came while the loop was held up
    assert arm.read().q.tolist() == [4.0, 2.0] and arm.read() is None
    waiting += [state(6.0, at=2.0), state(6.0, at=2.0), state(7.0, at=1.9)]
    assert arm.read().q[0] == 6.0 and arm.read() is None  # the same time, and an earlier one
    waiting += [state(6.0 + 0.3 * at, 2.0 + at, velocity=()) for at in (0.004, 0.011, 0.03)]
    assert np.allclose(arm.read().qd, [0.3, 0.0])  # differentiated
    waiting += [state(8.0, at=0.0)]
    with pytest.raises(DeployError, match="no time in their header"):
        arm.read()
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
    ("name", "package", "module"),
    [
        ("ur_rtde", "ur_rtde", "rtde_control"),
        ("franky", "franky-control", "franky"),
        ("ros2_control", "ROS 2", "rclpy"),
        ("so101", "lerobot", "lerobot"),
    ],
)
def test_a_missing_package_is_named(name, package, module, stand_in, monkeypatch):
    stand_in({"ros2_control": "ros2_arm", "so101": "lerobot_arm"}.get(name, f"{name}_arm"))
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    with pytest.raises(DeployError, match=f"needs {package}, which is not installed"):
        connect(name, "192.0.2.1", SIX)


@pytest.mark.parametrize("times", [(5.0, 5.0), (5.0, 4.0), (5.0, float("nan"))])
def test_a_clock_that_does_not_go_on_has_no_new_states(times):
    clock = ArmClock()
    assert [clock.is_new(time) for time in times] == [True, False]
    assert clock.is_new(np.nextafter(5.0, 6.0)) and not clock.is_new(5.0)


def test_an_unknown_arm_is_answered_with_those_there_are():
    with pytest.raises(DeployError, match="franky, ros2_control, so101, ur_rtde"):
        connect("abb", "192.0.2.1", SIX)
