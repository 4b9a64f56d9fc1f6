"""Arms of LeRobot, such as the SO-101 follower: positions in degrees out, positions back.

The interface of a `Robot`: https://huggingface.co/docs/lerobot/integrate_hardware. Its arms take
positions alone, so velocities are integrated here, and states are differentiated. Tested against a
stand-in for that interface, not on hardware yet.
"""

# LeRobot wants an environment of its own, see docs/how-to/deploy-real-arm.md
# pyright: reportMissingImports=false
import time
from collections import deque
from typing import Any

import numpy as np

from td3_robot.deploy.arm import Reading
from td3_robot.deploy.errors import DeployError

WINDOW = 0.1  # [s] over which positions are differentiated
STEP = np.deg2rad(360.0 / 4096)  # [rad] resolution of a Feetech STS3215's encoder
PAUSE = 0.1  # [s] that a velocity lasts at most if no other comes


class LeRobotArm:
    """A LeRobot `Robot` whose motors are named as the policy's joints; it is not connected yet.

    Motors that are no joints of the policy, such as the gripper's, are left where they are.

    Args:
        robot: made with `use_degrees=True`.
        joints: names of the policy's joints, in its order.
        rate: of sending, and at most of reading [Hz].

    Raises:
        DeployError: the robot has no motor of that name, or is not calibrated.
    """

    latency = 0.0  # not measured

    def __init__(self, robot: Any, joints: tuple[str, ...], rate: float = 50.0):
        self.rate = rate
        motors = [key.removesuffix(".pos") for key in robot.action_features if ".pos" in key]
        for joint in joints:
            if joint not in motors:
                raise DeployError(
                    f"the robot has no motor {joint!r}; its motors are {', '.join(motors)}"
                )
        self._keys = [f"{joint}.pos" for joint in joints]
        self._robot = robot
        self._places: deque[tuple[float, np.ndarray]] = deque()
        self._target: np.ndarray | None = None
        self._sent_at = 0.0
        self._qd = np.zeros(len(joints))
        robot.connect(calibrate=False)  # calibration asks at the terminal
        if not robot.is_calibrated:
            robot.disconnect()
            raise DeployError("the robot is not calibrated: run lerobot-calibrate first")

    def read(self) -> Reading | None:
        """Return a new state, if the last one is a period old."""
        before = time.monotonic()
        if self._places and before - self._places[-1][0] < 1.0 / self.rate:
            return None
        q = self._read_positions()
        stamp = (before + time.monotonic()) / 2
        self._places.append((stamp, q))
        while len(self._places) > 2 and stamp - self._places[1][0] >= WINDOW:
            self._places.popleft()
        return Reading(q, self._differentiate(), None, stamp)

    def _read_positions(self) -> np.ndarray:
        observation = self._robot.get_observation()
        return np.deg2rad([float(observation[key]) for key in self._keys])

    def _differentiate(self) -> np.ndarray:
        """Return velocities (n,) over `WINDOW`; those of a joint within one step are zero."""
        since, first = self._places[0]
        stamp, last = self._places[-1]
        spread = np.ptp([q for _, q in self._places], axis=0)
        passed = max(stamp - since, 1.0 / self.rate)
        return np.where(spread > 1.5 * STEP, (last - first) / passed, 0.0)

    def send(self, qd: np.ndarray) -> None:
        """Command velocities (n,): the position to which they lead by the next call."""
        now = time.monotonic()
        if self._target is None:
            self._target = self._read_positions()
        else:
            self._target = self._target + self._qd * min(now - self._sent_at, PAUSE)
        self._qd = np.array(qd, float)
        self._sent_at = now
        self._command(self._target + self._qd / self.rate)

    def _command(self, q: np.ndarray) -> None:
        degrees = np.rad2deg(q).tolist()
        self._robot.send_action(dict(zip(self._keys, degrees)))

    def stop(self) -> None:
        """Send an arm that still moves to where it is, and leave it holding its position."""
        try:
            if self._qd.any():
                self._command(self._read_positions())
        finally:
            self._robot.disconnect()


def make_so101(host: str, joints: tuple[str, ...]) -> LeRobotArm:
    """Make an SO-101 follower, whose motors hold their positions after the end.

    Args:
        host: its serial port, or the name of its calibration and the port, as `blue@/dev/ttyACM0`.
        joints: as of `LeRobotArm`.
    """
    try:
        from lerobot.robots.so_follower import SO101Follower, SO101FollowerConfig
    except ModuleNotFoundError as error:
        if error.name != "lerobot.robots.so_follower":
            raise
        from lerobot.robots.so101_follower import SO101Follower, SO101FollowerConfig  # to 0.4
    name, _, port = host.rpartition("@")
    config = SO101FollowerConfig(
        port=port, id=name or None, use_degrees=True, disable_torque_on_disconnect=False
    )
    return LeRobotArm(SO101Follower(config), joints)
