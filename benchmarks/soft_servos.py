"""Sweep joint servos, latency compensation and what the policy reads, at full speed.

    python export.py --checkpoint run1 --onnx run1.onnx
    python benchmarks/soft_servos.py run1.onnx

The control loop, safety filter and policy of run_policy.py run in virtual time against an arm whose
joints have a proportional servo on the integral of the velocities sent, as position-controlled arms
have it. Goals of `reach`, seed 12345; 6 s each. A limit cycle is a motion of the TCP by more than 2
mm around its mean, faster than 1 Hz, in the last 1.6 s. The rows go to soft_servos.csv in
benchmarks/results.
"""

import argparse
import sys
from collections import deque
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import rows
import torch

import envs
from envs.kinematics import fkine
from td3_robot.deploy import SafetyFilter, Watchdog
from td3_robot.deploy.arm import Reading
from td3_robot.deploy.runtime import control_loop
from td3_robot.deploy.runtime.motion_log import Log
from td3_robot.utils.console import exit_code
from tests.virtual_arm import Clock, VirtualPolicy

RESULTS = Path(__file__).resolve().parent / "results" / "soft_servos.csv"
KEY = ("servo", "reads", "compensated")
STEP = 0.001  # [s] of the servo
PERIOD = 0.01  # [s] of the control loop
DELAY = 0.01  # [s] from sending to the servo
SECONDS = 6.0
TAIL = 1.6  # [s]
CYCLE = 0.002  # [m]
SLOWEST = 1.0  # [Hz]
# [kg m2] what a Panda's joints move at home, with the rotors; and the stiffness of each, as a share
INERTIA = np.array([1.2, 1.5, 0.8, 0.8, 0.15, 0.15, 0.1])
SHARE = np.array([1.0, 1.0, 1.0, 1.0, 0.4, 0.4, 0.2])
FAR = 1.0  # [rad] between arm and reference that the watchdog allows: what is asked is the loop


class Servo(NamedTuple):
    """Servo of the first joint: stiffness [Nm/rad], damping [Nms/rad], and if it damps the error of
    the velocity or the velocity itself.
    """

    stiffness: float
    damping: float
    damps_error: bool


SERVOS = {
    "600/50, damps the error": Servo(600.0, 50.0, True),
    "600/25, damps the error": Servo(600.0, 25.0, True),
    "600/10, damps the error": Servo(600.0, 10.0, True),
    "600/50, damps the velocity": Servo(600.0, 50.0, False),
    "none": None,
}
COMPENSATED = {"no": 0.0, "estimated": None, "80 ms": 0.08}
COMBINATIONS = [(servo, "measured", how) for servo in SERVOS for how in COMPENSATED]
# with the reference alone the loop does not see the servo: one stands for all
COMBINATIONS += [("600/25, damps the error", "reference", how) for how in COMPENSATED]


class ServoArm:
    """An arm of uncoupled joints behind an `Arm`'s interface, in virtual time."""

    rate = 1.0 / PERIOD
    latency = 0.0

    def __init__(self, clock: Clock, home: np.ndarray, servo: Servo | None, reads: str):
        self._clock = clock
        self._servo = servo
        self._reads = reads
        self._q = home.copy()
        self._qd = np.zeros_like(home)
        self._reference = home.copy()
        self._due = clock.now
        self._sent = np.zeros_like(home)
        self._way = deque([self._sent] * round(DELAY / STEP))
        self.passed: list[np.ndarray] = []

    def _advance(self) -> None:
        self._way.append(self._sent)
        wanted = self._way.popleft()
        self._reference = self._reference + STEP * wanted
        if self._servo is None:
            self._q = self._reference
            self._qd = wanted
            return
        damping = self._servo.damping * SHARE
        torque = self._servo.stiffness * SHARE * (self._reference - self._q)
        torque += damping * wanted if self._servo.damps_error else 0.0
        self._qd = (self._qd + STEP * torque / INERTIA) / (1.0 + STEP * damping / INERTIA)
        self._q = self._q + STEP * self._qd

    def read(self) -> Reading | None:
        """Return the state, once a period."""
        if self._clock.now < self._due:
            return None
        while self._due <= self._clock.now:
            for _ in range(round(PERIOD / STEP)):
                self._advance()
            self._due += PERIOD
        self.passed.append(self._q)
        measured = self._reads == "measured"
        q, qd = (self._q, self._qd) if measured else (self._reference, self._sent)
        return Reading(q.copy(), qd.copy(), None, self._clock.now)

    def send(self, qd: np.ndarray) -> None:
        """Take velocities (n,) [rad/s]."""
        self._sent = qd.copy()

    def stop(self) -> None:
        """Send none."""
        self._sent = np.zeros_like(self._q)


def play(
    mind: VirtualPolicy, goal: np.ndarray, servo: Servo | None, reads: str, latency: float | None
) -> tuple[np.ndarray | None, float]:
    """Play an episode; return the joint positions (t, n), and the latency that was assumed [s].

    No positions where the watchdog stopped the arm.
    """
    policy = mind.policy
    policy.reset()
    robot = policy.robot
    arm = ServoArm(mind.clock, robot.home, servo, reads)
    watch = Watchdog(SafetyFilter(robot, arm.rate, policy.rate, margin=0.01), following=FAR)
    watch.reset(robot.home, mind.clock.now)
    found: list[float] = []
    reason = control_loop.run_control_loop(
        arm,
        mind,
        watch,
        {"goal": goal},
        policy_rate=policy.rate,
        speed=1.0,
        seconds=SECONDS,
        log=Log(None, robot.joints),
        latency=latency or 0.0,
        estimate=found.append if latency is None else None,
    )
    passed = np.array(arm.passed) if reason == control_loop.TIME_UP else None
    return passed, found[0] if found else latency or 0.0


def measure(
    mind: VirtualPolicy, goals: np.ndarray, name: str, reads: str, compensated: str
) -> rows.Row:
    """Measure one combination; return its row."""
    chain = envs.make_robot("panda").chain
    found = []
    for goal in goals:
        q, latency = play(mind, goal, SERVOS[name], reads, COMPENSATED[compensated])
        if q is None:
            continue
        end = round(SECONDS / PERIOD)
        tail = torch.tensor(q[end - round(TAIL / PERIOD) : end], dtype=torch.float32)
        tcp = fkine(chain, tail)[:, :3, 3].numpy()
        apart = tcp - tcp.mean(0)
        power = (np.abs(np.fft.rfft(apart, axis=0)) ** 2).sum(1)
        frequency = np.fft.rfftfreq(len(tcp), PERIOD)[power[1:].argmax() + 1]
        amplitude = float(np.linalg.norm(apart, axis=1).max())
        error = float(np.linalg.norm(tcp.mean(0) - goal))
        found.append((amplitude, frequency, error, latency))
    cycles = [row for row in found if row[0] > CYCLE and row[1] > SLOWEST]
    row: rows.Row = {"servo": name, "reads": reads, "compensated": compensated}
    row |= {"goals": len(goals), "stopped": len(goals) - len(found), "cycles": len(cycles)}
    row["cycle_hz"] = round(float(median(row[1] for row in cycles)), 1) if cycles else ""
    row["cycle_mm_max"] = round(1e3 * max(row[0] for row in cycles), 1) if cycles else ""
    row["error_mm_median"] = round(1e3 * median(row[2] for row in found), 2) if found else ""
    row["latency_ms"] = round(1e3 * median(row[3] for row in found)) if found else ""
    return row


def main(argv: list[str]) -> None:
    """Parse, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policy", help="exported policy of reach for a Panda")
    parser.add_argument("--goals", type=int, default=50)
    asked = parser.parse_args(argv)
    env = envs.make("panda", "reach", asked.goals, seed=rows.UNSEEN_SEED)
    env.reset(rows.UNSEEN_SEED)
    goals = env.moment.scene["goal"].double().numpy()
    clock = Clock()
    control_loop.time = clock  # type: ignore[assignment]
    mind = VirtualPolicy(clock, asked.policy)
    for combination in COMBINATIONS:
        row = measure(mind, goals, *combination)
        rows.write_rows(RESULTS, tuple(row), KEY, [row])
        print(row, flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
