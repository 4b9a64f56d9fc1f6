"""Arms through their makers' own clients: final error, latency, and how soon they rest.

`chrt -r 5 python benchmarks/clients.py --panda policy.onnx --ur5e policy.onnx`. Each arm is a
process of this computer (tests/franky_server.py, rtde_server.py, ros2_node.py), whose own log says
when it moved. Writes results/clients.csv.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks import rows
from td3_robot.deploy import Robot

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "clients.csv"
COLUMNS = ("arm", "speed", "goals", "error_mm_max", "latency_ms")
COLUMNS += ("ctrl_c_s", "loop_killed_s", "loop_stopped_s", "both_killed_s", "arm_stopped_s")
GOALS = {
    "panda": ("0.45,0.1,0.45", "0.5,-0.2,0.3", "0.4,0.3,0.5", "0.3,-0.3,0.6"),
    "ur5e": ("0.45,0.15,0.4", "0.35,-0.2,0.5", "0.5,0.1,0.3", "0.3,0.3,0.4"),
}
ARMS = {
    "franky": ("panda", "tests.franky_server", "127.0.9.1", ("--realtime", "false")),
    "ur_rtde": ("ur5e", "tests.rtde_server", "127.0.9.2", ()),
    "ros2_control": ("panda", "tests.ros2_node", "velocity_controller", ()),
}
REST = 0.005  # [rad/s]
MOVING = 0.7  # [s] after the start, in the middle of the motion
SECONDS = 12


class Bench:
    """An arm's server and the runs against it."""

    def __init__(self, arm: str, policy: Path, folder: Path):
        self.arm = arm
        self.policy = policy
        self.robot, self.module, self.host, self.flags = ARMS[arm]
        self.log = folder / f"{arm}.log"

    def __enter__(self) -> "Bench":
        place = [self.host]
        if self.arm == "ros2_control":
            place = [",".join(Robot.load(self.robot).joints), "1"]
        self.server = subprocess.Popen(
            [sys.executable, "-m", self.module, *place, str(self.log)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        assert self.server.stdout is not None
        self.server.stdout.readline()
        return self

    def __exit__(self, *_) -> None:
        self.server.kill()
        self.server.wait()

    def start(self, goal: str, speed: float, seconds: float) -> subprocess.Popen:
        """Start a motion; the arm begins to move now."""
        words = ("--policy", str(self.policy), "--goal", goal, "--speed", str(speed))
        words += ("--arm", self.arm, "--host", self.host, "--seconds", str(seconds), *self.flags)
        process = subprocess.Popen(
            [sys.executable, "run_policy.py", *words],
            cwd=ROOT,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        if "moves at" not in process.stdout.readline():
            raise SystemExit(f"{self.arm} did not start")
        return process

    def reach(self, goal: str, speed: float) -> tuple[float, float]:
        """Return the distance to the goal at the end [mm], and the latency found [ms]."""
        printed = self.start(goal, speed, SECONDS / (10 * speed) ** 0.5).communicate()[0]
        distance = re.search(r"([\d.]+) (mm|m) from the goal", printed)
        latency = re.search(r"latency of (\d+) ms", printed)
        if not distance or not latency:
            raise SystemExit(f"{self.arm}: {printed}")
        return float(distance[1]) * (1.0 if distance[2] == "mm" else 1e3), float(latency[1])

    def measure_rest(self, fault: str) -> float:
        """Return the seconds from a fault in the middle of a motion until the arm rests."""
        process = self.start(GOALS[self.robot][0], 0.1, SECONDS)
        time.sleep(MOVING)
        found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True)
        begun = time.monotonic()
        if fault == "both_killed_s":
            for child in found.stdout.split():
                os.kill(int(child), signal.SIGKILL)
        name = {"ctrl_c_s": "SIGINT", "loop_stopped_s": "SIGSTOP"}.get(fault, "SIGKILL")
        who = self.server.pid if fault == "arm_stopped_s" else process.pid
        os.kill(who, signal.SIGSTOP if fault == "arm_stopped_s" else getattr(signal, name))
        if fault == "arm_stopped_s":  # the time until the command has ended
            process.communicate()
            return time.monotonic() - begun
        time.sleep(1.5)
        process.kill()
        process.wait()
        lines = [line for line in self.log.read_text().splitlines() if line.endswith("]")]
        steps = [json.loads(line) for line in lines]
        after = [step[0] for step in steps if step[0] > begun and max(map(abs, step[2])) > REST]
        return after[-1] - begun


def measure(arm: str, policy: Path, speeds: Sequence[float]) -> list[rows.Row]:
    """Return the rows of an arm; each run has an arm of its own, at the policy's start."""
    made: list[rows.Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for speed in speeds:
            reached = []
            for goal in GOALS[ARMS[arm][0]]:
                with Bench(arm, policy, Path(folder)) as bench:
                    reached.append(bench.reach(goal, speed))
            errors = [error for error, _ in reached]
            row: rows.Row = {"arm": arm, "speed": speed, "goals": len(reached)}
            row["error_mm_max"] = max(errors)
            row["latency_ms"] = median(latency for _, latency in reached)
            print(arm, speed, reached, flush=True)
            made.append(row)
        for fault in COLUMNS[5:]:
            with Bench(arm, policy, Path(folder)) as bench:
                made[0][fault] = round(bench.measure_rest(fault), 3)
                print(arm, fault, made[0][fault], flush=True)
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--panda", type=Path, required=True, help="policy of reach for a Panda")
    parser.add_argument("--ur5e", type=Path, required=True, help="policy of reach for a UR5e")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    asked = parser.parse_args()
    for name in asked.arms:
        given = measure(name, getattr(asked, ARMS[name][0]), (0.1, 1.0))
        rows.write_rows(RESULTS, COLUMNS, ("arm", "speed"), given)
