"""Packets over UDP, and the arm at their other end."""

import socket

import numpy as np
import pytest

from td3_robot.deploy.adapters.udp import Inbox, UdpArm, pack
from td3_robot.deploy.adapters.udp_server import Faults, Lossy
from td3_robot.deploy.errors import DeployError


def test_only_whole_new_packets_count():
    inbox = Inbox(3)
    values = np.array([1.0, 2.0, 3.0])
    packet = pack(2, 5.0, values)
    for place in range(len(packet)):
        assert inbox.take(packet[:place] + bytes([packet[place] ^ 4]) + packet[place + 1 :]) is None
    assert inbox.take(packet[:-1]) is None
    stamp, taken = inbox.take(packet)
    assert stamp == 5.0 and taken.tolist() == [1.0, 2.0, 3.0]
    # twice, and too late
    assert inbox.take(packet) is None and inbox.take(pack(1, 4.0, values)) is None
    assert inbox.take(pack(3, 6.0, values)) is not None


def test_of_a_duplicated_packet_each_copy_is_damaged_by_itself():
    """As often as `Faults` says, and the first copy's damage is not in the second."""
    network = Lossy(Faults(duplicate=1.0, corrupt=0.3), seed=0)
    packet = bytes(40)
    for _ in range(2000):
        network.put(packet, 0.0)
    arrived = network.pop_due(0.0)
    damaged = sum(copy != packet for copy in arrived)
    assert len(arrived) == 4000
    assert abs(damaged / len(arrived) - 0.3) < 0.03
    assert max(sum(byte.bit_count() for byte in copy) for copy in arrived) == 1


def test_a_udp_arm_whose_clock_stands_still_is_silent():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        arm = UdpArm(server.getsockname(), 2)
        arm.send(np.zeros(2))
        peer = server.recvfrom(2048)[1]
        stamps = (5.0, 5.0, 4.0, 5.5)
        states = []
        for number, stamp in enumerate(stamps, 1):
            server.sendto(pack(number, stamp, np.zeros(5)), peer)
            states.append(arm.read())
        assert [state and state.stamp for state in states] == [5.0, None, None, 5.5]
        arm.stop()


def test_an_arm_that_ended_before_its_first_state_is_not_waited_for():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        alive = UdpArm(server.getsockname(), 2, is_alive=lambda: True)
        assert alive.read() is None
        ended = UdpArm(server.getsockname(), 2, is_alive=lambda: False)
        with pytest.raises(DeployError, match="ended before it sent a state"):
            ended.read()
        for arm in (alive, ended):
            arm.stop()
