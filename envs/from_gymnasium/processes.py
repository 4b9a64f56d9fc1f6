"""Vector environments of copies that step one after the other, or each in its own process."""

import contextlib
import functools
import signal
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.async_vector_env import _async_worker

from td3_robot.utils.seeding import (
    get_global_generators,
    seed_global_generators,
    set_global_generators,
)


def make_vector_env(
    make_one: Callable[[], gym.Env],
    num_envs: int,
    vector: str,
    seed: int = 0,
    autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
) -> VectorEnv:
    """Make B copies, by default reset in the step in which their episode ends.

    Args:
        make_one: makes a copy; for "async" also in another process.
        num_envs: B.
        vector: one of VECTORS.
        seed: of the global generators of the processes of "async".
        autoreset: when a copy is reset whose episode has ended.
    """
    options = {"copy": False, "autoreset_mode": autoreset}
    if vector == "sync":
        return SyncVectorEnv([make_one] * num_envs, **options)
    worker = functools.partial(_run_worker, seed)
    return Processes([make_one] * num_envs, worker=worker, **options)


class Processes(AsyncVectorEnv):
    """Gymnasium's AsyncVectorEnv whose processes always end and print no traceback."""

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Raise without Gymnasium's warning, which has a traceback."""
        if not all(successes):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                super()._raise_if_errors(successes)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Close the environments; kill the processes that have not ended in `timeout` [s]."""
        patience = 3.0 if timeout is None else timeout
        if terminate:
            patience = 0.0
        for pipe in self.parent_pipes:
            # a pipe may be closed, or None after an error in its environment
            with contextlib.suppress(OSError, AttributeError):
                pipe.send(("close", None))
        deadline = time.monotonic() + patience
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()


class GlobalGenerators(gym.Wrapper):
    """Wrapper of an environment that has the global generators of its process for itself."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Reset the environment; a seed is that of the global generators, too."""
        if seed is not None:
            seed_global_generators(seed, "environments")
        return self.env.reset(seed=seed, options=options)

    @property
    def global_generators(self) -> dict[str, Any]:
        """States of the global generators, see `get_global_generators`."""
        return get_global_generators()

    @global_generators.setter
    def global_generators(self, states: dict[str, Any]) -> None:
        """Restore the states of the global generators."""
        set_global_generators(states)


def _run_worker(seed: int, index: int, make_one: Callable[[], gym.Env], *arguments: Any) -> None:
    """Run Gymnasium's worker; signals that the whole group receives are left to the learner."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if number := getattr(signal, name, None):  # Windows has no SIGHUP
            signal.signal(number, signal.SIG_IGN)
    seed_global_generators(seed, f"environment {index}")
    with contextlib.suppress(OSError):  # the learner is gone
        _async_worker(index, lambda: GlobalGenerators(make_one()), *arguments)


def describe_dead_processes(vector_env: VectorEnv) -> str:
    """Describe which copies' processes have ended, and how; "" if none has."""
    gone = []
    for number, process in enumerate(getattr(vector_env, "processes", ())):
        process.join(0.1)
        if process.exitcode is not None:
            gone.append(f"the process of copy {number} has ended with exit code {process.exitcode}")
    return ", ".join(gone[:3])
