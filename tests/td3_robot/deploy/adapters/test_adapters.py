"""The vendors' adapters, each against a stand-in for the calls that its vendor documents, so that
what they do is known to the call; tests/td3_robot/deploy/adapters/test_clients.py has the clients.
"""

import sys
import types

import numpy as np
import pytest

from td3_robot.deploy import DeployError, Robot
from td3_robot.deploy.adapters import connect
from td3_robot.deploy.arm import ArmClock

SIX = tuple("abcdef")
SEVEN = tuple("abcdefg")


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


@pytest.fixture
def ur(stand_in):
    """A UR's two interfaces; `calls` are those of the control interface, by name and arguments."""
    calls = []

    class Control:
        running = True

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

    class Receive:
        stamp = 1.0
        connected = True

        def __init__(self, hostname, frequency=-1.0):
            pass

        def getTimestamp(self):
            return self.stamp

        def isConnected(self):
            return self.connected

        def getActualQ(self):
            return [0.1] * 6

        def getActualQd(self):
            return [0.0] * 6

        def getActualTCPForce(self):
            return [3.0, 5.0, 12.0, 0.1, 0.2, 0.4]

    control = module("rtde_control", RTDEControlInterface=Control)
    receive = module("rtde_receive", RTDEReceiveInterface=Receive)
    stand_in("ur_rtde_arm", control, receive)
    arm = connect("ur_rtde", "192.0.2.1", SIX)
    return types.SimpleNamespace(arm=arm, calls=calls, Control=Control, Receive=Receive)


def names_of(calls: list[tuple]) -> list[str]:
    return [call[0] for call in calls]


def test_a_ur_reports_each_state_once(ur):
    assert ur.arm.read().q.shape == (6,)
    assert ur.arm.read() is None  # the same state is no new one
    ur.Receive.stamp = 1.002
    assert ur.arm.read().felt["wrench"][2] == 12.0


@pytest.mark.parametrize("name", ["ur3e", "ur5e"])
def test_a_ur_s_wrench_is_in_the_base_frame_of_its_description(ur, name):
    """Its own base frame is that of its DH parameters, which joint 1 has at zero."""
    turn = Robot.load(name).chain.constants[0, :3, :3]
    wrench = np.array([[3.0, 5.0, 12.0], [0.1, 0.2, 0.4]]) @ turn.T
    np.testing.assert_allclose(ur.arm.read().wrench, wrench.ravel())


def test_a_ur_is_kept_alive_with_every_velocity(ur):
    ur.arm.read()
    # a watchdog that runs already would end it before it begins
    assert names_of(ur.calls) == ["control"]
    ur.arm.send(np.full(6, 0.2))
    ur.arm.send(np.full(6, 0.2))
    ur.arm.stop()
    once = ["speedJ", "kickWatchdog"]
    assert names_of(ur.calls) == ["control", "setWatchdog", *once, *once, "speedStop", "stopScript"]
    assert ur.calls[2] == ("speedJ", 0.2, 1 / ur.arm.rate)


def test_a_ur_that_was_sent_nothing_is_not_braked(ur):
    ur.arm.stop()  # as after a dry run
    assert names_of(ur.calls) == ["control", "stopScript"]


def test_reading_a_ur_is_a_sign_of_life_at_rest_alone(ur):
    ur.arm.send(np.full(6, 0.1))
    ur.calls.clear()
    ur.arm.read()
    assert ur.calls == []  # while it moves, velocities alone are
    ur.arm.send(np.zeros(6))
    ur.arm.read()
    assert names_of(ur.calls) == ["speedJ", "kickWatchdog", "kickWatchdog"]


def test_a_ur_whose_program_has_ended_is_started_again_by_reading(ur):
    ur.arm.send(np.zeros(6))
    ur.Control.running = False  # nobody has read for a while
    with pytest.raises(DeployError, match="takes no velocity: it has ended"):
        ur.arm.send(np.zeros(6))
    ur.calls.clear()
    ur.arm.read()
    assert names_of(ur.calls) == ["reuploadScript", "setWatchdog", "kickWatchdog"]


def test_a_ur_that_has_closed_the_connection_cannot_be_read(ur):
    ur.arm.read()
    ur.Receive.connected = False  # and its newest state stays the one before
    with pytest.raises(DeployError, match="closed the connection"):
        ur.arm.read()


WITHOUT_REALTIME = "192.0.2.9"  # of the Franka whose machine has no such kernel; it never rests


@pytest.fixture
def franka_calls(stand_in):
    """The calls of franky, by name and arguments."""
    calls = []

    class Robot:
        state = types.SimpleNamespace(
            q=[0.0] * 7,
            dq=[0.0] * 7,
            time=types.SimpleNamespace(to_msec=lambda: 1000),
            O_F_ext_hat_K=[0.0, 0.0, -3.0, 0.0, 0.0, 0.0],  # it presses down on a table
            tau_ext_hat_filtered=[0.5] * 7,
        )

        def __init__(self, host, realtime_config):
            calls.append(("robot", host, realtime_config))
            self._rests = host != WITHOUT_REALTIME
            if realtime_config == "enforce" and host == WITHOUT_REALTIME:
                raise RuntimeError("Running kernel does not have realtime capabilities.")

        def recover_from_errors(self):
            calls.append(("recover",))

        def move(self, motion, asynchronous=False):
            calls.append(("move", motion, asynchronous))

        def join_motion(self, timeout):
            calls.append(("join",))
            return self._rests

    franky = module(
        "franky",
        Robot=Robot,
        RealtimeConfig=types.SimpleNamespace(Enforce="enforce", Ignore="ignore"),
        Duration=lambda ms: ms,
        JointVelocityMotion=lambda velocity, duration: ("velocity", velocity, duration),
        JointVelocityStopMotion=lambda: ("stop",),
    )
    stand_in("franky_arm", franky)
    return calls


def test_a_franka_reports_each_state_once(franka_calls):
    arm = connect("franky", "192.0.2.2", SEVEN)
    reading = arm.read()
    assert reading.q.shape == reading.joint_torque.shape == (7,)
    assert arm.read() is None  # the robot's clock stands still: the state is an old one


def test_a_franka_reports_what_acts_on_it_and_libfranka_what_it_applies(franka_calls):
    reading = connect("franky", "192.0.2.2", SEVEN).read()
    assert reading.wrench.tolist() == [0.0, 0.0, 3.0, 0.0, 0.0, 0.0]
    assert reading.joint_torque.tolist() == [-0.5] * 7
    assert reading.subtract({"wrench": np.ones(6)}).felt["wrench"][2] == 2.0


def test_every_franka_motion_ends_by_itself(franka_calls):
    arm = connect("franky", "192.0.2.2", SEVEN)
    arm.send(np.full(7, 0.1))
    arm.stop()
    assert franka_calls[2] == ("move", ("velocity", [0.1] * 7, 100), True)
    assert franka_calls[3:] == [("move", ("stop",), True), ("join",)]


def test_a_franka_that_was_sent_nothing_is_not_moved(franka_calls):
    connect("franky", "192.0.2.2", SEVEN).stop()  # as after a dry run
    assert "move" not in names_of(franka_calls)


def test_without_a_kernel_of_real_time_the_way_round_it_is_named(franka_calls):
    with pytest.raises(DeployError, match="--realtime false connects all the same"):
        connect("franky", WITHOUT_REALTIME, SEVEN)


def test_a_franka_that_does_not_come_to_rest_is_told_of(franka_calls):
    arm = connect("franky", WITHOUT_REALTIME, SEVEN, realtime=False)
    arm.stop()
    arm.send(np.zeros(7))
    with pytest.raises(DeployError, match="the motion has not ended within 0.8 s"):
        arm.stop()


class Ros:
    """ROS 2 with one controller of joints a and b.

    Attributes:
        waiting: messages of joint states that have not been delivered yet.
        sent: what was published, by topic, and what was shut down.
        signals: the handlers of signals that rclpy was started with.
    """

    def __init__(self):
        self.waiting = []
        self.sent = []
        self.signals = []
        self._subscribed = {}
        self._count = 0

    def make_state(self, a, at=None, velocity=(0.2, 0.9, 0.1), position=None):
        """A message with joint a at a and joint b at 2; by default later than all before."""
        self._count += 1
        at = 1.0 + 0.01 * self._count if at is None else at
        stamp = types.SimpleNamespace(sec=int(at), nanosec=round(1e9 * (at - int(at))))
        return types.SimpleNamespace(
            header=types.SimpleNamespace(stamp=stamp),
            name=["b", "x", "a"],
            position=[2.0, 9.0, a] if position is None else position,
            velocity=list(velocity),
        )

    def make_modules(self) -> list[types.ModuleType]:
        """The packages, as far as the adapter knows them."""
        rclpy = module(
            "rclpy",
            init=lambda signal_handler_options: self.signals.append(signal_handler_options),
            create_node=lambda name: self,
            shutdown=lambda: self.sent.append("shut"),
            spin_once=lambda node, timeout_sec: (
                self.waiting and self._subscribed["/joint_states"](self.waiting.pop(0))
            ),
        )
        options = types.SimpleNamespace(NO="no", ALL="all")
        qos = module(
            "rclpy.qos",
            HistoryPolicy=types.SimpleNamespace(KEEP_LAST="last"),
            ReliabilityPolicy=types.SimpleNamespace(BEST_EFFORT="best effort"),
            QoSProfile=lambda **given: given,
        )
        array = module(
            "std_msgs.msg", Float64MultiArray=lambda data: types.SimpleNamespace(data=data)
        )
        return [
            rclpy,
            qos,
            array,
            module("rclpy.signals", SignalHandlerOptions=options),
            module("rclpy.duration", Duration=lambda seconds: seconds),
            module("sensor_msgs"),
            module("sensor_msgs.msg", JointState=object),
            module("std_msgs"),
        ]

    def create_subscription(self, kind, topic, callback, depth):
        self._subscribed[topic] = callback

    def create_publisher(self, kind, topic, depth):
        return types.SimpleNamespace(
            publish=lambda message: self.sent.append((topic, list(message.data))),
            wait_for_all_acked=lambda timeout: True,
        )

    def destroy_node(self):
        self.sent.append("destroyed")


@pytest.fixture
def ros(stand_in):
    made = Ros()
    stand_in("ros2_arm", *made.make_modules())
    return made


@pytest.fixture
def ros_arm(ros):
    """The arm, whose first state has been read."""
    ros.waiting = [ros.make_state(1.0)]
    arm = connect("ros2_control", "velocity_controller", ("a", "b"))
    assert arm.read().q.tolist() == [1.0, 2.0]
    assert arm.read() is None
    return arm


def test_ros2_leaves_signals_alone(ros, ros_arm):
    assert ros.signals == ["no"]  # rclpy's own handlers would shut it down before the arm is braked


def test_ros2_joints_are_found_by_name(ros, ros_arm):
    hand = types.SimpleNamespace(name=["finger"], position=[0.0], velocity=[0.0])
    cut = ros.make_state(5.0, position=[2.0, 9.0])  # as a message may be
    # what came while the loop was held up
    ros.waiting += [ros.make_state(3.0), hand, ros.make_state(4.0), cut, hand]
    assert ros_arm.read().q.tolist() == [4.0, 2.0]
    assert ros_arm.read() is None


def test_ros2_joints_that_never_come_are_named(ros, ros_arm, monkeypatch):
    """A hand may report by itself, between the states of the arm."""
    now = [10.0]
    adapter = sys.modules["td3_robot.deploy.adapters.ros2_arm"]
    monkeypatch.setattr(adapter, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    hand = types.SimpleNamespace(name=["finger", "a"], position=[0.0, 0.0], velocity=[])
    for _ in range(10):
        now[0] += 0.9 * adapter.NAMED
        ros.waiting += [hand, ros.make_state(3.0)]
        assert ros_arm.read().q[0] == 3.0
    for waited in (0.0, 0.99 * adapter.NAMED):
        now[0] += waited
        ros.waiting.append(hand)
        assert ros_arm.read() is None
    now[0] += 0.1
    ros.waiting.append(hand)
    with pytest.raises(DeployError, match="^/joint_states lack b; they have finger, a$"):
        ros_arm.read()


def test_a_ros2_state_that_is_no_later_is_no_new_one(ros, ros_arm):
    for at, a in ((2.0, 6.0), (2.0, 6.0), (1.9, 7.0)):
        ros.waiting.append(ros.make_state(a, at))
    assert ros_arm.read().q[0] == 6.0
    assert ros_arm.read() is None


@pytest.mark.parametrize("velocity", [(), [np.nan] * 3], ids=["none", "nan"])
def test_ros2_velocities_that_are_missing_are_differentiated(ros, ros_arm, velocity):
    """As NaN by joint_state_broadcaster, of hardware that has none."""
    for at in (0.0, 0.004, 0.011, 0.03):
        ros.waiting.append(ros.make_state(6.0 + 0.3 * at, 2.0 + at, velocity))
    assert np.allclose(ros_arm.read().qd, [0.3, 0.0])
    ros.waiting.append(ros.make_state(6.0, 2.1, [0.2, np.nan, np.nan]))
    np.testing.assert_array_equal(ros_arm.read().qd, [np.nan, 0.2])  # for the watchdog to refuse


def test_a_ros2_state_without_a_time_is_refused(ros, ros_arm):
    ros.waiting.append(ros.make_state(8.0, at=0.0))
    with pytest.raises(DeployError, match="no time in their header"):
        ros_arm.read()


def test_a_ros2_arm_is_stopped_by_a_velocity_of_zero(ros, ros_arm):
    ros_arm.send(np.array([0.1, 0.2]))
    ros_arm.stop()
    assert ros.sent == [
        ("/velocity_controller/commands", [0.1, 0.2]),
        ("/velocity_controller/commands", [0.0, 0.0]),
        "destroyed",
        "shut",
    ]


def test_a_ros2_arm_that_was_sent_nothing_is_sent_nothing_at_the_end(ros, ros_arm):
    ros_arm.stop()  # as after a dry run
    assert ros.sent == ["destroyed", "shut"]


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
