"""Measure the time of a training, part by part.

    python benchmarks/where_time_goes.py [FLAGS OF train.py]

Trains as `python train.py FLAGS` does (by default `--robot panda`), in this process, and counts the
seconds that are spent in each part and not in a part inside it: by the clock, and of the processor
alone, which a busy machine leaves nearly as they are. What is left over is the loop itself, and
Python's own start.
"""

import time

WALL = time.perf_counter()
CPU = time.process_time()

import builtins  # noqa: E402
import functools  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from importlib import import_module  # noqa: E402
from pathlib import Path  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
PARTS = (  # what it is, and whose functions do it
    ("making robot and environments", "envs", None, ("make_from_config",)),
    ("making the agent", "td3_robot.td3.agent", "TD3", ("__init__",)),
    ("collecting: the simulator", "envs.arm_env.arm_env", "ArmEnv", ("reset", "step")),
    ("collecting: the rest", "td3_robot.data.collector", "Collector", ("collect",)),
    ("drawing batches", "td3_robot.data.collector", "Collector", ("sample",)),
    ("updating", "td3_robot.td3.agent", "TD3", ("update", "scale_learning_rates")),
    ("evaluating", "td3_robot.training.periodic_evaluation", "PeriodicEvaluation", ("evaluate",)),
    ("saving", "td3_robot.checkpoint", None, ("write",)),
    ("CSV", "td3_robot.loggers.csv", "CsvLog", ("log",)),
    ("TensorBoard", "td3_robot.loggers.tensorboard", "TensorBoardLog", ("__init__", "log")),
    (
        "the picture of the curve",
        "td3_robot.loggers.learning_curve",
        None,
        ("plot_learning_curve",),
    ),
)


class Clock:
    """Clock of seconds by part, without those of inner parts."""

    def __init__(self):
        self.spent: dict[str, list[float]] = {}  # wall, processor, calls
        self._inner: list[
            list[float]
        ] = []  # of the parts that are open: what parts inside them took

    def wrap(self, part: str, function: Callable) -> Callable:
        """Wrap a function whose time counts as that of `part`."""

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            self._inner.append([0.0, 0.0])
            wall = time.perf_counter()
            cpu = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                took = (time.perf_counter() - wall, time.process_time() - cpu)
                inner = self._inner.pop()
                total = self.spent.setdefault(part, [0.0, 0.0, 0])
                for i in range(2):
                    total[i] += took[i] - inner[i]
                    if self._inner:
                        self._inner[-1][i] += took[i]
                total[2] += 1

        return wrapper

    def format_table(self) -> str:
        """Return a line for each part, the longest first, and the sum."""
        whole = (time.perf_counter() - WALL, time.process_time() - CPU)
        rest = [whole[i] - sum(spent[i] for spent in self.spent.values()) for i in range(2)]
        rows = sorted([*self.spent.items(), ("the rest", [*rest, 1])], key=lambda row: -row[1][1])
        lines = [f"{'':32}{'wall [s]':>10}{'CPU [s]':>10}{'share':>8}{'calls':>9}"]
        for part, (wall, cpu, calls) in rows:
            lines.append(f"{part:32}{wall:10.2f}{cpu:10.2f}{cpu / whole[1]:8.1%}{calls:9,.0f}")
        return "\n".join([*lines, f"{'in all':32}{whole[0]:10.2f}{whole[1]:10.2f}"])


def main(argv: list[str]) -> int:
    """Train and print the table."""
    clock = Clock()
    builtins.__import__ = clock.wrap("importing", builtins.__import__)
    for part, module, owner, names in PARTS:
        found = import_module(module)
        place = found if owner is None else getattr(found, owner)
        for name in names:
            setattr(place, name, clock.wrap(part, getattr(place, name)))
    from td3_robot.commands import train

    code = train.main(argv or ["--robot", "panda"])
    print(clock.format_table())
    return code


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from td3_robot.utils.console import exit_code

    sys.exit(exit_code(main, sys.argv[1:]))
