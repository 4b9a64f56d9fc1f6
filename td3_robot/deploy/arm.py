"""The interface of an arm to the control loop; one adapter a vendor in adapters/."""

from typing import NamedTuple, Protocol

import numpy as np

from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.numbers import UNREADABLE, read_number

FELT = ("wrench", "joint_torque")  # what an arm may feel, inputs of policies


class Reading(NamedTuple):
    """A state of an arm.

    Attributes:
        q, qd: (n,) joint positions [rad or m] and velocities [rad/s or m/s], in the policy's order.
        gripper: its driver coordinate [rad or m], or None where the arm does not know.
        stamp: when it was measured, in seconds of `time.monotonic` on this machine; where the arm
            has a clock of its own, when the first state of that time came.
        wrench: (6,) external force [N] and moment [Nm] on the gripper at the TCP, in the base
            frame: pressed down on a table, its third number is positive. None where the arm does
            not measure it.
        joint_torque: (n,) external torques on the joints [Nm or N], of the same sign, or None.
    """

    q: np.ndarray
    qd: np.ndarray
    gripper: float | None
    stamp: float
    wrench: np.ndarray | None = None
    joint_torque: np.ndarray | None = None

    @property
    def felt(self) -> dict[str, np.ndarray]:
        """The forces and torques that were measured, each by its name in `FELT`."""
        named = {name: getattr(self, name) for name in FELT}
        return {name: value for name, value in named.items() if value is not None}

    def subtract(self, zero: dict[str, np.ndarray]) -> "Reading":
        """Return the reading with what was felt at rest, `zero`, taken off."""
        felt = self.felt
        return self._replace(**{name: felt[name] - zero[name] for name in felt if name in zero})


class ArmClock:
    """The arm's own clock, which separates a new state from an old one that is read again.

    One that stands still, runs backwards or is no number has no new states: an arm that was
    started again is one that is silent.
    """

    def __init__(self):
        self._newest = -np.inf

    def is_new(self, time: float) -> bool:
        """Return whether a state of this time [s] is newer than all before, and remember it."""
        if not (np.isfinite(time) and time > self._newest):
            return False
        self._newest = time
        return True


class Arm(Protocol):
    """Read, send, stop; none of them waits.

    `rate` is how often velocities are to be sent [Hz], `latency` what passes from sending one to a
    state that shows its effect [s]; 0 where nobody has measured it.
    """

    rate: float
    latency: float

    def read(self) -> Reading | None:
        """Return the newest state, or None if none has come since the last call.

        A state whose time on the arm's own clock has not changed is no new one.
        """

    def send(self, qd: np.ndarray) -> None:
        """Command velocities (n,) [rad/s or m/s], from now until the next."""

    def stop(self) -> None:
        """End the motion, if anything was sent, by the arm's own means, and give control back;
        called once.
        """


def read_state(arm: Arm) -> Reading | None:
    """Return what `read` of an arm returns, with arrays instead of lists, as many drivers have.

    Raises:
        DeployError: it is neither a `Reading` nor None, or a reading that holds no numbers.
    """
    reading = arm.read()
    if reading is None:
        return None
    if not isinstance(reading, Reading):
        raise DeployError(
            f"{type(arm).__name__}.read() must return a td3_robot.deploy.Reading or None, "
            f"got {type(reading).__name__}"
        )
    measured = {"q": reading.q, "qd": reading.qd, **reading.felt}
    gripper = reading.gripper
    reading = reading._replace(
        stamp=read_number("stamp of the arm's state", reading.stamp),
        gripper=None if gripper is None else read_number("gripper of the arm's state", gripper),
    )
    try:
        return reading._replace(**{name: np.asarray(x, float) for name, x in measured.items()})
    except UNREADABLE:
        raise DeployError(f"the arm reports what are no numbers: {measured}") from None
