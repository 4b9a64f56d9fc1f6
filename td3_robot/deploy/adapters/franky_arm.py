"""Franka arms by franky: joint-velocity motions, each replacing the one before.

The calls: https://github.com/timschneider42/franky, "Joint Velocity Control". Every motion ends by
itself after `HOLD`, so that an arm whose process dies stops; franky keeps to the robot's limits as
well. Driven against franky-sim, not on hardware yet.
"""

# the vendor's package is on the computer beside the arm
# pyright: reportMissingImports=false
import time

import numpy as np
from franky import Duration, JointVelocityMotion, JointVelocityStopMotion, RealtimeConfig, Robot

from td3_robot.deploy.arm import ArmClock, Reading
from td3_robot.deploy.errors import DeployError

HOLD = 100  # [ms]
STOP = 0.8  # [s] that braking may take


class FrankyArm:
    """A Panda or FR3. It knows nothing of a gripper, which franky drives by another class.

    Args:
        host: the robot's address.
        rate: at which motions are replaced [Hz]; franky goes from one to the next at 1 kHz itself.
        realtime: whether a kernel without real time is refused. On such a kernel answers to the
            robot come late now and then: it then stops at once, in the middle of a motion.
    """

    latency = 0.0  # not measured

    def __init__(self, host: str, rate: float = 100.0, realtime: bool = True):
        self.rate = rate
        self._sending = False
        self._clock = ArmClock()
        config = RealtimeConfig.Enforce if realtime else RealtimeConfig.Ignore
        try:
            self._robot = Robot(host, realtime_config=config)
        except Exception as error:
            if realtime and "realtime" in str(error).lower().replace("-", ""):
                raise DeployError(
                    f"{error}; --realtime false connects all the same, and the arm may stop in the "
                    "middle of a motion"
                ) from None
            raise
        self._robot.recover_from_errors()

    def read(self) -> Reading | None:
        """Return the newest state, or None. The robot's own clock shows whether it is new."""
        state = self._robot.state
        if not self._clock.is_new(state.time.to_msec() / 1e3):
            return None
        # libfranka's robot_state.h: what the robot applies to its surroundings is positive
        felt = (-np.array(state.O_F_ext_hat_K), -np.array(state.tau_ext_hat_filtered))
        return Reading(np.array(state.q), np.array(state.dq), None, time.monotonic(), *felt)

    def send(self, qd: np.ndarray) -> None:
        """Command velocities (n,)."""
        self._sending = True
        self._robot.move(
            JointVelocityMotion(qd.tolist(), duration=Duration(HOLD)), asynchronous=True
        )

    def stop(self) -> None:
        """End the motion and give control back.

        Raises:
            DeployError: the arm has not braked in time; what was sent still ends after `HOLD`.
        """
        if self._sending:
            self._robot.move(JointVelocityStopMotion(), asynchronous=True)
            if not self._robot.join_motion(timeout=STOP):
                raise DeployError(f"the motion has not ended within {STOP:g} s")
