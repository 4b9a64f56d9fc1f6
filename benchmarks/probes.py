"""Do the work that benchmarks/bench.py times: `python benchmarks/probes.py`.

A line of standard input is the name of one of PROBES, which is made ready, or a count; the line
that answers that has the seconds which so many repetitions took. Where there is nothing to be made
ready, the answer says why. The package is the one on PYTHONPATH, so that an older commit is timed
by these same functions. One thread.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

Work = Callable[[], object]  # one repetition

O_DIM = 17  # HalfCheetah's
A_DIM = 6
TRANSITIONS = 100_000
BATCH = 256
ARMS = 4096


def _draw_transitions() -> dict[str, np.ndarray]:
    """Draw random transitions, one in a hundred terminated; float32."""
    rng = np.random.default_rng(0)
    return {
        "state": rng.standard_normal((TRANSITIONS, O_DIM), np.float32),
        "action": rng.uniform(-1, 1, (TRANSITIONS, A_DIM)).astype(np.float32),
        "reward": rng.standard_normal(TRANSITIONS, np.float32),
        "next_state": rng.standard_normal((TRANSITIONS, O_DIM), np.float32),
        "terminated": rng.random(TRANSITIONS) < 0.01,
    }


def prepare_update(width: int) -> Work:
    """Prepare sampling and one update by this package, with networks of two layers."""
    return _prepare_update(hidden=(width, width))


def prepare_crossq_update(precision: str) -> Work:
    """Prepare the same with the networks of configs/gymnasium/crossq.yaml."""
    networks = {"hidden": (256, 256), "critic_hidden": (512, 512), "norm": "renorm"}
    step = _prepare_update(critic="crossq", actor_min_q=True, policy_delay=3, **networks)

    def work() -> None:
        torch.set_float32_matmul_precision(precision)
        step()
        torch.set_float32_matmul_precision("highest")  # as the other probes have it

    return work


def _prepare_update(**options: Any) -> Work:
    from td3_robot.replay import ReplayBuffer
    from td3_robot.td3.agent import TD3

    agent = TD3(O_DIM, A_DIM, **options)
    # all transitions in one step of as many environments
    replay = ReplayBuffer(
        TRANSITIONS, TRANSITIONS, O_DIM, A_DIM, "cpu", torch.Generator().manual_seed(0)
    )
    tensors = {name: torch.from_numpy(array) for name, array in _draw_transitions().items()}
    replay.add(*tensors.values(), torch.zeros(TRANSITIONS, dtype=torch.bool))
    return lambda: agent.update(replay.sample(BATCH))


def prepare_sb3_update(width: int) -> Work:
    """Prepare the same by Stable-Baselines3."""
    import gymnasium
    import stable_baselines3
    from stable_baselines3.common.logger import Logger

    class Spaces(gymnasium.Env):  # what it wants to know of an environment
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (O_DIM,), np.float32)
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (A_DIM,), np.float32)

    settings = {
        "learning_rate": 3e-4,
        "buffer_size": TRANSITIONS,
        "policy_kwargs": {"net_arch": [width, width]},
    }
    model = stable_baselines3.TD3("MlpPolicy", Spaces(), **settings, seed=0, device="cpu")
    model.set_logger(Logger(None, []))
    data = _draw_transitions()
    names = {
        "observations": "state",
        "actions": "action",
        "rewards": "reward",
        "dones": "terminated",
    }
    for theirs, ours in (names | {"next_observations": "next_state"}).items():
        array = getattr(model.replay_buffer, theirs)
        array[:] = data[ours].reshape(array.shape)
    model.replay_buffer.full = True
    return lambda: model.train(gradient_steps=1, batch_size=BATCH)


def prepare_simulator(task: str) -> Work:
    """Prepare a control step of many Pandas, with rewards, observations and resets."""
    import envs

    env = envs.make("panda", task, ARMS)
    generator = torch.Generator().manual_seed(0)
    actions = torch.rand(64, ARMS, env.a_dim, generator=generator) * 2 - 1
    turn = iter(range(sys.maxsize))
    return lambda: env.step(actions[next(turn) % len(actions)])


def prepare_collision() -> Work:
    """Prepare self-collision queries of random configurations of a Panda."""
    from envs.collision import compile_collision, self_distance
    from envs.robots import make_robot

    robot = make_robot("panda")
    model = compile_collision(robot)
    lower, upper = torch.tensor(robot.qlim, dtype=torch.float32)
    q = lower + (upper - lower) * torch.rand(
        ARMS, robot.n, generator=torch.Generator().manual_seed(0)
    )
    return lambda: self_distance(model, q)


def prepare_product() -> Work:
    """Prepare a matrix product of 2 GFLOP, by the faster library."""
    from td3_robot.networks.linear import matmul

    a = torch.rand(1024, 1024)
    b = torch.rand(1024, 1024)
    return lambda: matmul(a, b)


TASKS = ("reach", "reach_pose", "reach_avoid", "track", "pick_place", "push")
PROBES: dict[str, Callable[[], Work]] = {
    **{f"update 2x{width}": partial(prepare_update, width) for width in (128, 256)},
    "update CrossQ": partial(prepare_crossq_update, "highest"),
    "update CrossQ medium": partial(prepare_crossq_update, "medium"),
    **{f"sb3 update 2x{width}": partial(prepare_sb3_update, width) for width in (128, 256)},
    **{f"simulator {task}": partial(prepare_simulator, task) for task in TASKS},
    "collision": prepare_collision,
    "product": prepare_product,
}


def main() -> None:
    """Answer lines until there are none."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    from td3_robot.utils.memory import keep_freed_memory

    keep_freed_memory()  # as train.py does
    torch.set_num_threads(1)
    work: Work | None = None
    for line in map(str.strip, sys.stdin):
        if line in PROBES:
            work = None  # its memory is given back before another one is made
            work, answer = _prepare_probe(line)
        else:
            answer = _time_work(work, int(line))
        print(answer, flush=True)


def _prepare_probe(name: str) -> tuple[Work | None, str]:
    try:
        return PROBES[name](), "ready"
    except Exception as error:  # of an older package anything may be missing
        return None, f"{type(error).__name__}: {' '.join(str(error).split())}"


def _time_work(work: Work, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
