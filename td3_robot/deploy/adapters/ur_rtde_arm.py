"""Universal Robots by ur_rtde: speedJ, and a watchdog on the robot that stops it where this process
dies.

The calls and their defaults: https://sdurobotics.gitlab.io/ur_rtde/api/api.html. Not tried on
    hardware yet.
"""

# the vendor's package is on the computer beside the arm
# pyright: reportMissingImports=false
import time

import numpy as np
from rtde_control import RTDEControlInterface
from rtde_receive import RTDEReceiveInterface

from td3_robot.deploy.arm import Reading

LEAST_RATE = 10.0  # [Hz] with fewer signs of life the robot's program stops
ACCELERATION = 40.0  # [rad/s2] up to which speedj may follow; what is sent is smooth already
DECELERATION = 10.0  # [rad/s2] of speedStop


class UrRtdeArm:
    """A UR of the e-series at 500 Hz, of the CB-series at 125 Hz. It knows nothing of a gripper.

    Args:
        host: the robot's address.
        rate: of the robot's real-time interface [Hz].
    """

    latency = 0.0  # not measured

    def __init__(self, host: str, rate: float = 500.0):
        self.rate = rate
        self._receive = RTDEReceiveInterface(host, rate)
        self._control = RTDEControlInterface(host, rate)
        self._newest = None
        self._sending = False

    def read(self) -> Reading | None:
        """Return the newest state. The robot's own clock only says whether a state is a new one."""
        stamp = self._receive.getTimestamp()
        if stamp == self._newest:
            return None
        self._newest = stamp
        q = self._receive.getActualQ()
        qd = self._receive.getActualQd()
        wrench = np.array(self._receive.getActualTCPForce())
        return Reading(np.array(q), np.array(qd), None, time.monotonic(), wrench)

    def send(self, qd: np.ndarray) -> None:
        """Command velocities. The robot waits for signs of life from the first on, not while the
        policy is still thinking.
        """
        if not self._sending:
            self._control.setWatchdog(LEAST_RATE)
            self._sending = True
        self._control.speedJ(qd.tolist(), ACCELERATION, 1.0 / self.rate)
        self._control.kickWatchdog()

    def stop(self) -> None:
        """End the motion and give control back."""
        if self._sending:
            self._control.speedStop(DECELERATION)
        self._control.stopScript()
