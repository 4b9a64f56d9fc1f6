"""An arm at the other end of UDP, and the protocol both ends speak: small, numbered, with a sum
over every packet.

A packet is a number, a time, and 64-bit floats, behind their CRC-32 (zlib's); one whose sum is
wrong, or whose number is not above all before, is not there.
"""

import socket
import struct
import time
import zlib
from collections.abc import Callable

import numpy as np

from td3_robot.deploy.arm import ArmClock, Reading
from td3_robot.deploy.errors import DeployError

HEAD = struct.Struct("<IQd")  # sum, number, stamp [s]
SUM = struct.Struct("<I")


def pack(number: int, stamp: float, values: np.ndarray) -> bytes:
    """Return a packet of float64 values."""
    body = HEAD.pack(0, number, stamp)[SUM.size :] + np.asarray(values, "<f8").tobytes()
    return SUM.pack(zlib.crc32(body)) + body


class Inbox:
    """A filter for packets that are damaged, old, duplicate, or of another number of values."""

    def __init__(self, count: int):
        self.count = count
        self.number = 0

    def take(self, packet: bytes) -> tuple[float, np.ndarray] | None:
        """Return stamp and values of a good packet, else None."""
        if len(packet) != HEAD.size + 8 * self.count:
            return None
        total, number, stamp = HEAD.unpack_from(packet)
        if total != zlib.crc32(packet[SUM.size :]) or number <= self.number:
            return None
        self.number = number
        return stamp, np.frombuffer(packet, "<f8", offset=HEAD.size)


def receive_all(sock: socket.socket) -> list[tuple[bytes, tuple]]:
    """Return all packets at a socket that does not block, with their senders."""
    packets = []
    while True:
        try:
            packets.append(sock.recvfrom(2048))
        except (BlockingIOError, ConnectionError):
            return packets  # nothing more; or told that nobody listens there


class UdpArm:
    """An arm at (host, port) that reports q, qd and its gripper, and takes velocities.

    Both ends share one clock: this is for loopback.

    Args:
        address: host and port.
        joints: number of joints (n).
        latency: of the way there and back [s].
        is_alive: whether the other end may still send a first state; None: it may.
    """

    RATE = 250.0  # [Hz]

    def __init__(
        self,
        address: tuple[str, int],
        joints: int,
        latency: float = 0.0,
        is_alive: Callable[[], bool] | None = None,
    ):
        self.rate = self.RATE
        self.latency = latency
        self._n = joints
        self._is_alive = is_alive
        self._inbox = Inbox(2 * joints + 1)
        self._number = 0
        self._clock = ArmClock()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(address)
        self._socket.setblocking(False)

    def read(self) -> Reading | None:
        """Return the newest state, or None.

        Raises:
            DeployError: the other end has ended without a state.
        """
        newest = None
        for packet, _ in receive_all(self._socket):
            newest = self._inbox.take(packet) or newest
        if newest is None:
            if self._is_alive is not None and not self._is_alive():
                raise DeployError("the arm's process has ended before it sent a state")
            return None
        self._is_alive = None  # from now on its silence tells
        stamp, values = newest
        if not self._clock.is_new(stamp):
            return None
        return Reading(values[: self._n], values[self._n : -1], float(values[-1]), stamp)

    def send(self, qd: np.ndarray) -> None:
        """Command velocities (n,)."""
        self._number += 1
        try:
            self._socket.send(pack(self._number, time.monotonic(), qd))
        except (BlockingIOError, ConnectionError):  # the other end is gone: its silence tells
            pass

    def stop(self) -> None:
        """End the motion and give control back."""
        self.send(np.zeros(self._n))
        self._socket.close()
