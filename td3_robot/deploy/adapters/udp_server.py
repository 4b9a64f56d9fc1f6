"""The robot's end of UDP: an arm that is stepped in real time, behind a network with faults."""

import heapq
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from td3_robot.deploy.adapters.udp import Inbox, pack, receive_all

PERIOD = 0.005  # [s] of a step
SILENCE = 0.1  # [s] without a command after which the arm brakes by itself, as MoveIt Servo does
CATCH_UP = 0.05  # [s] by which it may be late before the time lost is given up


class Steppable(Protocol):
    """An arm that moves one `PERIOD` at a time."""

    n: int

    def step(self, qd: np.ndarray | None) -> None:
        """Move on by one period with velocities (n,) [rad/s or m/s]; None: no command for too
        long.
        """

    def reading(self) -> list[float]:
        """Return positions, velocities and the gripper's driver coordinate, 2 n + 1 numbers."""
        ...


@dataclass(frozen=True)
class Faults:
    """Faults of packets, each direction; shares are in [0, 1].

    Attributes:
        delay, jitter: every packet is late by the first and up to the second on top [s]; so they
            overtake each other.
        drop, duplicate, corrupt: the share of packets to which that happens.
    """

    delay: float = 0.0
    jitter: float = 0.0
    drop: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0

    @property
    def latency(self) -> float:
        """Time from sending a velocity to a state that shows its effect, on average [s]: there, a
        step, and back.
        """
        return 2.0 * self.delay + self.jitter + PERIOD


class Lossy:
    """A lossy direction of a network."""

    def __init__(self, faults: Faults, seed: int):
        self.faults = faults
        self._random = random.Random(seed)
        self._queue = []
        self._count = 0

    def put(self, packet: bytes, now: float) -> None:
        """Send a packet; of one that is sent twice, each copy may be damaged."""
        faults = self.faults
        draw = self._random
        if draw.random() < faults.drop:
            return
        for _ in range(1 + (draw.random() < faults.duplicate)):
            copy = packet
            if draw.random() < faults.corrupt:
                place = draw.randrange(len(packet))
                copy = (
                    packet[:place]
                    + bytes([packet[place] ^ (1 << draw.randrange(8))])
                    + packet[place + 1 :]
                )
            self._count += 1  # so that equal times need no comparison of packets
            late = faults.delay + faults.jitter * draw.random()
            heapq.heappush(self._queue, (now + late, self._count, copy))

    def pop_due(self, now: float) -> list[bytes]:
        """Return the packets that have arrived."""
        arrived = []
        while self._queue and self._queue[0][0] <= now:
            arrived.append(heapq.heappop(self._queue)[2])
        return arrived


def serve(
    arm: Steppable,
    sock: socket.socket,
    faults: Faults,
    seed: int = 0,
    on_step: Callable[[float, list[float]], None] = lambda now, reading: None,
) -> None:
    """Step an arm in real time without end, and send its states to whoever sent the last packet.

    Args:
        sock: bound UDP socket.
        on_step: called after every step with the time [s] and the arm's reading.
    """
    sock.setblocking(False)
    inbox = Inbox(arm.n)
    to_arm = Lossy(faults, seed)
    to_peer = Lossy(faults, seed + 1)
    peer = None
    command = None
    received_at = -np.inf
    number = 0
    next_step = time.monotonic()
    while True:
        now = time.monotonic()
        for packet, sender in receive_all(sock):
            peer = sender
            to_arm.put(packet, now)
        for packet in to_arm.pop_due(now):
            if received := inbox.take(packet):
                command = received[1]
                received_at = now
        if now - next_step > CATCH_UP:
            next_step = now
        while next_step <= now:
            arm.step(command if next_step - received_at < SILENCE else None)
            next_step += PERIOD
            number += 1
            reading = arm.reading()
            on_step(now, reading)
            to_peer.put(pack(number, now, np.array(reading)), now)
        for packet in to_peer.pop_due(now):
            if peer is not None:
                try:
                    sock.sendto(packet, peer)
                except OSError:  # gone, or no room: lost, as packets are
                    pass
        time.sleep(max(0.0, min(next_step - time.monotonic(), 0.001)))
