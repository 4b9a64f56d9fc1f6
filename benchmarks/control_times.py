"""Time exported policies and the safety filter: median and 99th percentile of 10,000 calls.

    python benchmarks/control_times.py policy.onnx ...          # as root, before it: chrt -r 5

Wall time on one core; `chrt` keeps the machine's other programs out of it. The filter is the one of
the first policy's robot at 1 kHz, its commands random at full speed and new 20 times a second.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from td3_robot.deploy import DeployError, Obstacles, Policy, Robot, SafetyFilter
from td3_robot.errors import ConfigError
from td3_robot.utils.console import exit_code

COUNT = 10_000
WARM = 200
BOX = np.array([[0.5, 0.0, 0.15, 0.1, 0.1, 0.15, 1.0, 0.0, 0.0, 0.0]])
GROUND = Obstacles(ground=0.0)
AROUND = Obstacles(ground=0.0, boxes=BOX)
FILTERS = {
    "itself and the ground": {"obstacles": GROUND},
    "and a box, 0.8 m/s": {"obstacles": AROUND, "tcp_speed": 0.8},
}


def print_times(name: str, calls: Iterator[Callable[[], object]]) -> None:
    """Time each call, and print."""
    spent = []
    for call in calls:
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    median, late = 1e6 * np.percentile(spent[WARM:], (50, 99))
    print(f"{name:34} median {median:4.0f} us, 99% in {late:4.0f} us", flush=True)


def iter_steps(policy: Policy) -> Iterator[Callable[[], object]]:
    """Yield calls of the policy, near its test vectors."""
    chance = np.random.default_rng(0)
    vectors = policy.metadata["test_vectors"]
    for number in range(COUNT + WARM):
        moment = vectors[number % len(vectors)]
        q, qd = (np.array(moment[name]) for name in ("q", "qd"))
        q = np.clip(
            q + chance.normal(0.0, 0.01, len(q)),
            policy.robot.limits.lower,
            policy.robot.limits.upper,
        )
        scene = {name: np.array(value) for name, value in moment["scene"].items()}
        yield lambda q=q, qd=qd, moment=moment, scene=scene: policy(
            q, qd, moment["gripper"], **scene
        )


def iter_ticks(robot: Robot, **options) -> Iterator[Callable[[], object]]:
    """Yield calls of the filter, with a new command every 50 ticks."""
    chance = np.random.default_rng(0)
    safe = SafetyFilter(robot, 1000.0, **options)
    safe.reset(robot.home)
    for tick in range(COUNT + WARM):
        if tick % 50 == 0:
            command = chance.uniform(-1.0, 1.0, robot.limits.n) * robot.limits.velocity
        yield lambda command=command: safe(command)


def main(argv: list[str]) -> None:
    """Time all policies that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policies", nargs="+", help="exported policies or run folders")
    try:
        policies = [Policy.load(path) for path in parser.parse_args(argv).policies]
    except DeployError as error:
        raise ConfigError(str(error)) from None
    for policy in policies:
        print_times(f"a step of {policy.metadata['task']['name']}", iter_steps(policy))
    for name, options in FILTERS.items():
        print_times(f"a tick: {name}", iter_ticks(policies[0].robot, **options))


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
