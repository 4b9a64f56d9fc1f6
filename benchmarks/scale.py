"""Predict the time of a training by N processes from measured parts.

benchmarks/notes/process-scaling.md keeps the figures.

`python benchmarks/scale.py --task reach`: the parts of a step are timed at two sizes each, an
all-reduce over loopback at as many ranks as there are cores; a straight line through each gives the
table. Times are the mean of the fastest tenth, so that other programs on the machine count little.
"""

import argparse
import dataclasses
import datetime
import os
import sys
import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import envs
from envs.command_line import TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot import TD3
from td3_robot.cli.arguments import parse_train
from td3_robot.config.run import Config
from td3_robot.data.collector import Collector
from td3_robot.networks.residual import resolve_residual_column
from td3_robot.utils.console import exit_code

RANKS = (1, 2, 4, 8, 64, 1000)
LINKS = {
    "one machine (loopback, measured)": None,
    "25 Gb/s, 20 us between machines (assumed)": (20e-6, 25e9 / 8),
}


def time_fastest(call: Callable[[], object], count: int = 60) -> float:
    """Return the seconds of a call: the mean of the fastest tenth."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return sum(sorted(times)[: count // 10]) / (count // 10)


def fit_line(small: float, large: float, at_small: float, at_large: float) -> tuple[float, float]:
    """Return (a, b) of a + b x through two points."""
    slope = max(0.0, (at_large - at_small) / (large - small))
    return max(0.0, at_large - slope * large), slope


def measure_parts(config: Config, options: EnvOptions) -> dict:
    """Fit the times of a step of the environments and of an update, and count the bytes."""
    times: dict[str, list[float]] = {"collect": [], "update": []}
    for share in (8, 1):
        replay = dataclasses.replace(config.replay, batch_size=config.replay.batch_size // share)
        part = dataclasses.replace(config, num_envs=config.num_envs // share, replay=replay)
        env = envs.make_from_config(options, part.num_envs, device="cpu", seed=0, training=True)
        agent = TD3(env.o_dim, env.a_dim, config=resolve_residual_column(config.td3, env))
        source = Collector(agent, env, part)
        times["collect"].append(time_fastest(lambda source=source: source.collect(0.0)))
        times["update"].append(
            time_fastest(lambda source=source, agent=agent: agent.update(source.sample(0.0)))
        )
    weights = [
        sum(p.numel() for p in net.parameters()) for net in (agent.Q1, agent.Q2, agent.actor)
    ]
    rows = source.replay.state_dict()["rows"]
    return {
        "collect": fit_line(config.num_envs // 8, config.num_envs, *times["collect"]),
        "update": fit_line(
            config.replay.batch_size // 8, config.replay.batch_size, *times["update"]
        ),
        "gradients": 4 * (weights[0] + weights[1] + weights[2] / config.td3.policy_delay),
        "transition": rows.element_size() * rows.shape[-1],
    }


def time_all_reduce(count: int, size: float) -> float:
    """Time an all-reduce of so many bytes over loopback; ranks are threads."""
    store = dist.HashStore()
    results = []

    def work(rank: int) -> None:
        group = dist.ProcessGroupGloo(store, rank, count, datetime.timedelta(seconds=120))
        tensor = torch.zeros(int(size) // 4)
        results.append(time_fastest(lambda: group.allreduce([tensor]).wait(), 100))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(results)


def estimate_ring(count: int, size: float, latency: float, rate: float) -> float:
    """Estimate the time of a ring all-reduce: 2 (N - 1) messages of an N-th, one by one."""
    return 2 * (count - 1) * (latency + size / count / rate)


def main(argv: list[str]) -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="reach")
    arguments = parse_train(["--task", parser.parse_args(argv).task], EnvOptions, TrainFlags)
    config = arguments.config
    options = arguments.environment
    torch.set_num_threads(1)
    found = measure_parts(config, options)
    size = found["gradients"]
    batch = config.replay.batch_size
    arms = config.num_envs
    updates = config.updates_per_step

    def predict_time(name, x):
        return found[name][0] + found[name][1] * x

    print(f"{options.task}: {arms} arms, batch {batch}, {updates} updates a step")
    for name, whole in (("collect", arms), ("update", batch)):
        print(
            f"{name}: {1e3 * predict_time(name, whole):.2f} ms, "
            f"of which {1e3 * found[name][0]:.2f} ms for any size"
        )
    print(f"gradients {1e-3 * size:.0f} kB an update, a transition {found['transition']} B")
    # more would wait for a core
    here = [count for count in RANKS[1:] if count <= max(2, os.cpu_count() or 1)]
    measured = {count: time_all_reduce(count, size) for count in here}
    tiny = {count: time_all_reduce(count, 16) for count in here}
    for count in measured:
        print(
            f"all-reduce, {count} ranks: {1e3 * measured[count]:.2f} ms, "
            f"of 16 bytes {1e3 * tiny[count]:.2f} ms"
        )
    for name, link in LINKS.items():
        print(
            f"\n{name}\n| processes | divided: env steps/s | gain | all-reduce "
            "| each as one: env steps/s |"
        )
        print("|---|---|---|---|---|")
        one = predict_time("collect", arms) + updates * predict_time("update", batch)
        for count in RANKS if link else here:
            large, small = (
                estimate_ring(count, x, *link) if link else known[count]
                for x, known in ((size, measured), (16, tiny))
            )
            talk = updates * large + small  # gradients, and the wishes of each step
            part = (
                predict_time("collect", arms / count)
                + updates * predict_time("update", batch / count)
                + talk
            )
            divided = (
                f"{arms / part:,.0f} | {one / part:.2f} | {talk / part:.0%}"
                if count <= arms
                else "- | - | -"
            )
            print(f"| {count} | {divided} | {count * arms / (one + talk):,.0f} |")


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
