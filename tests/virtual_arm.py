"""run_policy.py in virtual time: its control loop, safety filter and policy in this process, against
the simulated arm, without waiting and the same on every machine.
"""

from collections.abc import Callable

import numpy as np

from envs.export.simulated_arm import SimulatedArm
from envs.robots import Robot, make_robot
from td3_robot.deploy import Policy
from td3_robot.deploy.adapters.udp_server import PERIOD
from td3_robot.deploy.arm import Reading


class Clock:
    """Stands in for the module `time`: time passes where something sleeps, or asks for it."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self) -> float:
        self.now += 1e-6
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class VirtualArm:
    """The simulated arm, stepped whenever it is read; `report` changes the positions it reports."""

    rate = 1.0 / PERIOD
    latency = 0.0

    def __init__(self, clock: Clock, simulated: SimulatedArm, report: Callable):
        self._clock = clock
        self._arm = simulated
        self._report = report
        self._due = clock.now
        self._sent = np.zeros(simulated.n)
        self.passed: list[np.ndarray] = []  # (n,) true positions at every step

    def read(self) -> Reading | None:
        if self._clock.now < self._due:
            return None
        while self._due <= self._clock.now:
            self._arm.step(self._sent)
            self._due += PERIOD
        n = self._arm.n
        values = np.array(self._arm.reading())
        self.passed.append(values[:n])
        return Reading(self._report(values[:n]), values[n:-1], values[-1], self._clock.now)

    def send(self, qd: np.ndarray) -> None:
        self._sent = qd.copy()

    def stop(self) -> None:
        self._sent = np.zeros(self._arm.n)


class VirtualPolicy:
    """`PolicyProcess` in this process: it answers when it is next looked at.

    Attributes:
        clock: whose time it stamps its answers with.
        policy: that it asks.
    """

    failure = ""

    def __init__(self, clock: Clock, path: str):
        self.clock = clock
        self.policy = Policy.load(path)
        self._answer: tuple[float, np.ndarray] | None = None

    def ask(self, reading: Reading, scene) -> None:
        qd = self.policy(reading.q, reading.qd, reading.gripper or 0.0, **scene)
        self._answer = (self.clock.monotonic(), qd)

    def prepare(self, reading: Reading, scene) -> None:
        self.ask(reading, scene)
        self._answer = None

    def answer(self) -> tuple[float, np.ndarray] | None:
        answer = self._answer
        self._answer = None
        return answer

    def close(self) -> None:
        pass


def replace_by_virtual(monkeypatch, robot: str | Robot, report=lambda q: q) -> list[VirtualArm]:
    """Let run_policy.py drive a `VirtualArm`, which is in the returned list once it is connected.

    Args:
        robot: the arm, by its name or made; it stands at its home.
        report: (n,) positions -> those that the arm reports [rad or m].
    """
    clock = Clock()
    made: list[VirtualArm] = []
    run = "td3_robot.commands.run"

    def connect(*_) -> VirtualArm:
        arm = robot if isinstance(robot, Robot) else make_robot(robot)
        made.append(VirtualArm(clock, SimulatedArm(arm, PERIOD), report))
        return made[-1]

    monkeypatch.setattr(f"{run}._connect", connect)
    monkeypatch.setattr(f"{run}.PolicyProcess", lambda path: VirtualPolicy(clock, path))
    monkeypatch.setattr(f"{run}.make_stop_poll", lambda: lambda: False)
    for module in ("calm_start", "control_loop"):
        monkeypatch.setattr(f"td3_robot.deploy.runtime.{module}.time", clock)
    return made
