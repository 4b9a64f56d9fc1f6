"""The interface of an arm to the control loop; one adapter a vendor in adapters/."""

from typing import NamedTuple, Protocol

import numpy as np


class Reading(NamedTuple):
    """A state of an arm.

    Attributes:
        q, qd: (n,) joint positions [rad or m] and velocities [rad/s or m/s], in the policy's order.
        gripper: its driver coordinate [rad or m], or None where the arm does not know.
        stamp: when it was measured, in seconds of `time.monotonic` on this machine.
    """

    q: np.ndarray
    qd: np.ndarray
    gripper: float | None
    stamp: float


class Arm(Protocol):
    """Read, send, stop; none of them waits.

    `rate` is how often velocities are to be sent [Hz], `latency` what passes from sending one to a
    state that shows its effect [s]; 0 where nobody has measured it.
    """

    rate: float
    latency: float

    def read(self) -> Reading | None:
        """The newest state, or None where none has come since the last call."""

    def send(self, qd: np.ndarray) -> None:
        """Command velocities (n,) [rad/s or m/s], from now until the next."""

    def stop(self) -> None:
        """End the motion, if anything was sent, by the arm's own means, and give control back;
        called once.
        """
