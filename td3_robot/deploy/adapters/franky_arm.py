"""Franka arms by franky: joint-velocity motions, each replacing the one before.

The calls: https://github.com/timschneider42/franky, "Joint Velocity Control". Every motion ends by
itself after `HOLD`, so that an arm whose process dies stops; franky keeps to the robot's limits as
well. Not tried on hardware yet.
"""

# the vendor's package is on the computer beside the arm
# pyright: reportMissingImports=false
import time

import numpy as np
from franky import Duration, JointVelocityMotion, JointVelocityStopMotion, Robot

from td3_robot.deploy.arm import Reading

HOLD = 100  # [ms]


class FrankyArm:
    """A Panda or FR3. It knows nothing of a gripper, which franky drives by another class.

    Args:
        host: the robot's address.
        rate: at which motions are replaced [Hz]; franky goes from one to the next at 1 kHz itself.
    """

    latency = 0.0  # not measured

    def __init__(self, host: str, rate: float = 100.0):
        self.rate = rate
        self._sending = False
        self._robot = Robot(host)
        self._robot.recover_from_errors()

    def read(self) -> Reading | None:
        """Return the newest state, or None."""
        joints = self._robot.current_joint_state
        state = self._robot.state
        felt = (np.array(state.O_F_ext_hat_K), np.array(state.tau_ext_hat_filtered))
        position = np.array(joints.position)
        return Reading(position, np.array(joints.velocity), None, time.monotonic(), *felt)

    def send(self, qd: np.ndarray) -> None:
        """Command velocities (n,)."""
        self._sending = True
        self._robot.move(
            JointVelocityMotion(qd.tolist(), duration=Duration(HOLD)), asynchronous=True
        )

    def stop(self) -> None:
        """End the motion and give control back."""
        if self._sending:
            self._robot.move(JointVelocityStopMotion(), asynchronous=True)
            self._robot.join_motion()
