"""A Franka arm at an address of loopback: franky-sim, at the start of a Panda's policies.

`python -m tests.franky_server HOST [LOG]`; LOG gets a line of JSON each 2 ms: time, q, qd. Its own
damping lets joint 7 drift, so that one is damped less here.
"""

import contextlib
import json
import os
import sys
import time

from td3_robot.deploy import Robot

DAMPING = (450.0, 450.0, 350.0, 350.0, 200.0, 200.0, 60.0)  # [Nms/rad]
PERIOD = 0.001  # [s]


def serve(host: str, log=None) -> None:
    """Serve for ever, in real time where the machine can."""
    from franky_sim import SimulationServer
    from franky_sim.mujoco_simulator import MujocoSimulator

    with contextlib.suppress(PermissionError):  # without, it is slower than time on a busy machine
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    with MujocoSimulator(enable_visualization=False) as simulator:
        robot = simulator.add_robot(initial_q=Robot.load("panda").home, kv=DAMPING)
        with SimulationServer(simulator, hostname_candidates=[host]) as server:
            print("ready", flush=True)
            due = time.monotonic()
            step = 0
            while True:
                server.run_once(realtime=False)
                now = time.monotonic()
                step += 1
                if log and step % 2 == 0:
                    state = robot._get_state()
                    log.write(json.dumps([now, state.q, state.dq]) + "\n")
                due = max(due + PERIOD, now - 0.05)
                time.sleep(max(0.0, due - now))


if __name__ == "__main__":
    serve(sys.argv[1], open(sys.argv[2], "w", buffering=1) if len(sys.argv) > 2 else None)
