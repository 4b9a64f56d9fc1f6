"""Gradient updates a second, this package and Stable-Baselines3 in turns, at the size of HalfCheetah.

    python benchmarks/update_speed.py [--pairs 40] [--threads 1 2]

Both draw batches of 256 from 100,000 random transitions (17 numbers an observation, 6 an action) and update TD3 with
2x256 networks and the settings of the authors' code. The two take turns in one process, some updates each, so that a
busy machine slows both; the ratio is taken pair by pair. Writes benchmarks/results/update_speed.csv and its table
in docs/benchmarks.md.
"""

import argparse
import csv
import os
import statistics
import time
from collections.abc import Callable

import benchmark_pages
import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.logger import Logger

from td3_robot.agent import TD3
from td3_robot.replay import ReplayBuffer

O_DIM, A_DIM, TRANSITIONS, BATCH = 17, 6, 100_000, 256
RESULT = benchmark_pages.RESULTS / "update_speed.csv"


def transitions() -> dict[str, np.ndarray]:
    """Random transitions, one in a hundred terminated; float32."""
    rng = np.random.default_rng(0)
    return {
        "state": rng.standard_normal((TRANSITIONS, O_DIM), np.float32),
        "action": rng.uniform(-1, 1, (TRANSITIONS, A_DIM)).astype(np.float32),
        "reward": rng.standard_normal(TRANSITIONS, np.float32),
        "next_state": rng.standard_normal((TRANSITIONS, O_DIM), np.float32),
        "terminated": rng.random(TRANSITIONS) < 0.01,
    }


def our_updates(data: dict[str, np.ndarray]) -> Callable[[int], None]:
    """A function that does so many updates with this package."""
    agent = TD3(O_DIM, A_DIM)
    # all transitions in one step of as many environments
    replay = ReplayBuffer(TRANSITIONS, TRANSITIONS, O_DIM, A_DIM, "cpu", torch.Generator().manual_seed(0))
    tensors = {name: torch.from_numpy(array) for name, array in data.items()}
    replay.add(*tensors.values(), torch.zeros(TRANSITIONS, dtype=torch.bool))

    def updates(count: int) -> None:
        for _ in range(count):
            agent.update(replay.sample(BATCH))

    return updates


class _Spaces(gymnasium.Env):
    """What SB3 wants to know of an environment."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (O_DIM,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (A_DIM,), np.float32)


def sb3_updates(data: dict[str, np.ndarray]) -> Callable[[int], None]:
    """The same with Stable-Baselines3."""
    settings = {"learning_rate": 3e-4, "buffer_size": TRANSITIONS, "policy_kwargs": {"net_arch": [256, 256]}}
    model = stable_baselines3.TD3("MlpPolicy", _Spaces(), **settings, seed=0, device="cpu")
    model.set_logger(Logger(None, []))
    names = {"observations": "state", "actions": "action", "rewards": "reward", "dones": "terminated"}
    for theirs, ours in (names | {"next_observations": "next_state"}).items():
        array = getattr(model.replay_buffer, theirs)
        array[:] = data[ours].reshape(array.shape)
    model.replay_buffer.full = True
    return lambda count: model.train(gradient_steps=count, batch_size=BATCH)


def rate(updates: Callable[[int], None], count: int) -> float:
    """Updates a second."""
    start = time.perf_counter()
    updates(count)
    return count / (time.perf_counter() - start)


def compare(ours: Callable[[int], None], theirs: Callable[[int], None], pairs: int, count: int) -> dict[str, float]:
    """Medians over the pairs, and the quarter of the pairs below and above for the ratio."""
    rate(ours, 20), rate(theirs, 20)  # warm up
    both = [(rate(ours, count), rate(theirs, count)) for _ in range(pairs)]
    low, median, high = statistics.quantiles([our / their for our, their in both], n=4)
    td3_robot, sb3 = (statistics.median(rates) for rates in zip(*both))
    return {"td3_robot_per_s": td3_robot, "sb3_per_s": sb3, "ratio": median, "ratio_q1": low, "ratio_q3": high}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--updates", type=int, default=25, help="updates of each turn")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    data = transitions()
    ours, theirs = our_updates(data), sb3_updates(data)
    rows = []
    for threads in options.threads:
        torch.set_num_threads(threads)
        figures = compare(ours, theirs, options.pairs, options.updates)
        rows.append({"threads": threads, "pairs": options.pairs, "updates": options.updates, **figures})
        rows[-1]["load"] = os.getloadavg()[0]
        print(", ".join(f"{name} {value:,.4g}" for name, value in rows[-1].items()), flush=True)
    with RESULT.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    benchmark_pages.write_speed()


if __name__ == "__main__":
    main()
