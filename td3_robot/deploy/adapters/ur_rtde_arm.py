"""Universal Robots by ur_rtde: speedJ, and a watchdog on the robot that stops it where this process
dies.

The calls and their defaults: https://sdurobotics.gitlab.io/ur_rtde/api/api.html. Driven against a
server of its protocols (tests/rtde_server.py), not on hardware yet.
"""

# the vendor's package is on the computer beside the arm
# pyright: reportMissingImports=false
import time

import numpy as np
from rtde_control import RTDEControlInterface
from rtde_receive import RTDEReceiveInterface

from td3_robot.deploy.arm import ArmClock, Reading
from td3_robot.deploy.errors import DeployError

LEAST_RATE = 10.0  # [Hz] with fewer signs of life the robot's program stops
ACCELERATION = 40.0  # [rad/s2] up to which speedj may follow; what is sent is smooth already
DECELERATION = 10.0  # [rad/s2] of speedStop
# From the controller's base frame, of forces (3,) and moments (3,), to `base_link` of the maker's
# own descriptions, the base frame of policies: half a turn about z.
FROM_CONTROLLER = np.array([-1.0, -1.0, 1.0, -1.0, -1.0, 1.0])
RESTART = 5.0  # [s] that the robot may take to start a program, as ur_rtde itself allows it


class UrRtdeArm:
    """A UR of the e-series at 500 Hz, of the CB-series at 125 Hz. It knows nothing of a gripper.

    Args:
        host: the robot's address.
        rate: of the robot's real-time interface [Hz].
    """

    latency = 0.0  # not measured

    def __init__(self, host: str, rate: float = 500.0):
        self.rate = rate
        self._clock = ArmClock()
        self._sending = False
        self._moving = False
        self._receive = RTDEReceiveInterface(host, rate)
        self._control = RTDEControlInterface(host, rate)

    def read(self) -> Reading | None:
        """Return the newest state. The robot's own clock shows whether it is new.

        Raises:
            DeployError: the robot has closed the connection.
        """
        if self._sending and not self._moving:
            self._keep_alive()
        if not self._clock.is_new(self._receive.getTimestamp()):
            if not self._receive.isConnected():
                raise DeployError("the robot has closed the connection")
            return None
        q = self._receive.getActualQ()
        qd = self._receive.getActualQd()
        wrench = FROM_CONTROLLER * self._receive.getActualTCPForce()
        return Reading(np.array(q), np.array(qd), None, time.monotonic(), wrench)

    def _keep_alive(self) -> None:
        """Between two motions reading is the sign of life. A program that the watchdog has ended,
        while nobody read, is started again: the arm was last sent to stand still.
        """
        if not self._control.isProgramRunning():
            self._control.reuploadScript()  # returns before the program runs
            until = time.monotonic() + RESTART
            while not self._control.isProgramRunning() and time.monotonic() < until:
                time.sleep(0.005)
            self._start_watchdog()
        self._control.kickWatchdog()

    def _start_watchdog(self) -> None:
        if not self._control.setWatchdog(LEAST_RATE):
            raise DeployError("the robot's watchdog cannot be set")

    def send(self, qd: np.ndarray) -> None:
        """Command velocities. The robot waits for signs of life from the first on, not while the
        policy is still thinking.

        Raises:
            DeployError: the robot's program takes none, as after a protective stop.
        """
        if not self._sending:
            self._start_watchdog()
            self._sending = True
        self._moving = bool(qd.any())
        if not self._control.speedJ(qd.tolist(), ACCELERATION, 1.0 / self.rate):
            raise DeployError("the robot's program takes no velocity: it has ended")
        self._control.kickWatchdog()

    def stop(self) -> None:
        """End the motion and give control back.

        Raises:
            DeployError: the robot has not confirmed that it stopped.
        """
        stopped = True
        if self._sending:  # a program that has ended at rest has nothing to confirm
            stopped = self._control.speedStop(DECELERATION) or not self._moving
        self._control.stopScript()
        if not stopped:
            raise DeployError("the robot has not confirmed that it stopped")
