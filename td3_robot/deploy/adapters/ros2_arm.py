"""An example for ros2_control: a JointGroupVelocityController's topic out, /joint_states in.

https://control.ros.org/rolling/doc/ros2_controllers/velocity_controllers/doc/userdoc.html: the
controller repeats its last command for ever. What makes the arm stop is that somebody sends zeros.
`ArmProcess` does where the loop dies or hangs; for a computer or network that fails, a hardware
interface that stops by itself has to be there. Driven against a node, not on hardware yet.
"""

# ROS 2 is on the computer beside the arm
# pyright: reportMissingImports=false
import time
from collections import deque

import numpy as np
import rclpy
from rclpy.duration import Duration
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from td3_robot.deploy.arm import ArmClock, Reading
from td3_robot.deploy.errors import DeployError

QUEUE = 10  # messages that may wait
WINDOW = 0.02  # [s] over which positions are differentiated, of an arm that reports no velocities
ACKNOWLEDGED = 0.3  # [s] for the controller to receive the last velocity, which is zero
NAMED = 2.0  # [s] within which a state with all joints has to come, while others do
PAUSE = 0.5  # [s] between two states, after which no difference is taken


class Ros2Arm:
    """An arm whose joints are known by name.

    States without velocities are differentiated over `WINDOW`, which makes them half of it later.

    Args:
        controller: name of the velocity controller.
        joints: in the controller's order, which has to be the policy's.
        rate: of sending [Hz].
    """

    latency = 0.0  # not measured

    def __init__(self, controller: str, joints: tuple[str, ...], rate: float = 100.0):
        self.rate = rate
        self._joints = joints
        self._newest = None
        self._came = 0
        self._sending = False
        self._lacking = np.inf  # [s] since when no message has all joints
        self._clock = ArmClock()
        self._places: deque[tuple[float, np.ndarray]] = deque()
        # Its own handlers would shut ROS down under Ctrl-C and SIGTERM, and with it the way to
        # brake the arm.
        rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node("td3_robot")
        # states of reliable and of best-effort publishers; a state that is lost is not sent again
        newest = QoSProfile(
            history=HistoryPolicy.KEEP_LAST, depth=QUEUE, reliability=ReliabilityPolicy.BEST_EFFORT
        )
        self._node.create_subscription(JointState, "/joint_states", self._take_message, newest)
        self._publisher = self._node.create_publisher(
            Float64MultiArray, f"/{controller}/commands", QUEUE
        )

    def _take_message(self, message) -> None:
        """Keep a new message that has all the joints, in whatever order, with their positions.

        Raises:
            DeployError: its publisher gives it no time, so that nobody knows whether it is new; or
                it lacks joints, as all others for `NAMED`.
        """
        self._came += 1
        place = {name: index for index, name in enumerate(message.name)}
        if missing := [name for name in self._joints if name not in place]:
            self._lacking = min(self._lacking, time.monotonic())
            if time.monotonic() - self._lacking > NAMED:
                raise DeployError(
                    f"/joint_states lack {', '.join(missing)}; they have {', '.join(place)}"
                )
            return
        self._lacking = np.inf
        if len(message.position) != len(place):
            return
        order = [place[name] for name in self._joints]
        stamp = message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec
        if not stamp:
            raise DeployError("/joint_states have no time in their header")
        if not self._clock.is_new(stamp):
            return
        q = np.array(message.position)[order]
        qd = self._differentiate(q, stamp)
        if len(message.velocity) == len(place):
            reported = np.array(message.velocity)[order]
            # joint_state_broadcaster sends NaN for hardware without velocities
            qd = qd if np.isnan(reported).all() else reported
        if qd is not None:
            self._newest = Reading(q, qd, None, time.monotonic())

    def _differentiate(self, q: np.ndarray, stamp: float) -> np.ndarray | None:
        """Return velocities (n,) from positions over `WINDOW`; None while none are old enough."""
        places = self._places
        if places and stamp - places[-1][0] > PAUSE:
            places.clear()
        places.append((stamp, q))
        while len(places) > 2 and stamp - places[1][0] >= WINDOW:
            places.popleft()
        then, before = places[0]
        return (q - before) / (stamp - then) if stamp - then >= WINDOW else None

    def read(self) -> Reading | None:
        """Return the newest state. All that has come is taken: what is left waiting would be old
        when it is read, and look new.
        """
        for _ in range(QUEUE):
            came = self._came
            rclpy.spin_once(self._node, timeout_sec=0.0)
            if self._came == came:
                break
        newest = self._newest
        self._newest = None
        return newest

    def send(self, qd: np.ndarray) -> None:
        """Command velocities (n,)."""
        self._sending = True
        self._publisher.publish(Float64MultiArray(data=qd.tolist()))

    def stop(self) -> None:
        """End the motion and give control back."""
        if self._sending:
            self.send(np.zeros(len(self._joints)))
            self._publisher.wait_for_all_acked(Duration(seconds=ACKNOWLEDGED))
        self._node.destroy_node()
        rclpy.shutdown()
