"""An arm behind ROS 2: /joint_states out, as a best-effort publisher sends them, and commands in.

`python -m tests.ros2_node JOINTS VELOCITIES [LOG]`: joint names with commas between; VELOCITIES 0 leaves
them out of the states. LOG gets a line of JSON each 4 ms: time, q, qd. Like ros2_control's
velocity controller it repeats the last command for ever.
"""

import json
import sys
import time

import numpy as np
import rclpy
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

PERIOD = 0.004  # [s]


def serve(joints: list[str], home: np.ndarray, velocities: bool, log=None) -> None:
    """Serve for ever."""
    rclpy.init()
    node = rclpy.create_node("arm")
    states = node.create_publisher(JointState, "/joint_states", qos_profile_sensor_data)
    command = np.zeros(len(joints))

    def take(message) -> None:
        command[:] = message.data

    node.create_subscription(Float64MultiArray, "/velocity_controller/commands", take, 10)
    q = home.copy()
    print("ready", flush=True)
    due = time.monotonic()
    while True:
        rclpy.spin_once(node, timeout_sec=max(0.0, due - time.monotonic()))
        while time.monotonic() >= due:
            due += PERIOD
            q = q + PERIOD * command
            message = JointState(name=joints, position=q.tolist())
            message.header.stamp = node.get_clock().now().to_msg()
            if velocities:
                message.velocity = command.tolist()
            states.publish(message)
            if log:
                log.write(json.dumps([time.monotonic(), q.tolist(), command.tolist()]) + "\n")


if __name__ == "__main__":
    from td3_robot.deploy import Robot

    names = sys.argv[1].split(",")
    place = Robot.load("panda").home[: len(names)]
    lines = open(sys.argv[3], "w", buffering=1) if len(sys.argv) > 3 else None
    serve(names, place, sys.argv[2] == "1", lines)
