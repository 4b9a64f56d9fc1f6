"""An example for ros2_control: a JointGroupVelocityController's topic out, /joint_states in.

https://control.ros.org/rolling/doc/ros2_controllers/velocity_controllers/doc/userdoc.html: the
controller repeats its last command for ever. What makes the arm stop is that this process sends
zeros; where it may die, its command_timeout or a hardware interface that stops by itself has to be
there. Not tried on hardware yet.
"""

# ROS 2 is on the computer beside the arm
# pyright: reportMissingImports=false
import time

import numpy as np
import rclpy
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from td3_robot.deploy.arm import Reading

QUEUE = 10  # messages that may wait


class Ros2Arm:
    """An arm whose joints are known by name.

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
        # Its own handlers would shut ROS down under Ctrl-C and SIGTERM, and with it the way to
        # brake the arm.
        rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node("td3_robot")
        self._node.create_subscription(JointState, "/joint_states", self._seen, QUEUE)
        self._publisher = self._node.create_publisher(
            Float64MultiArray, f"/{controller}/commands", QUEUE
        )

    def _seen(self, message) -> None:
        """Keep a message that has all the joints, in whatever order, with their positions and
        velocities.
        """
        self._came += 1
        place = {name: index for index, name in enumerate(message.name)}
        whole = len(message.position) == len(message.velocity) == len(place)
        if whole and all(name in place for name in self._joints):
            order = [place[name] for name in self._joints]
            q = np.array(message.position)[order]
            qd = np.array(message.velocity)[order]
            self._newest = Reading(q, qd, None, time.monotonic())

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
        self._node.destroy_node()
        rclpy.shutdown()
