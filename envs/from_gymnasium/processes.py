"""Copies of an environment that step together: one after the other, or each in a process of its
own.
"""

import contextlib
import signal
import time
import warnings
from collections.abc import Callable, Iterable

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.async_vector_env import _async_worker


def vectorized(make_one: Callable[[], gym.Env], num_envs: int, vector: str) -> VectorEnv:
    """B copies that are reset in the step in which their episode ends.

    Args:
        make_one: makes a copy; for "async" also in another process.
        num_envs: B.
        vector: one of VECTORS.
    """
    options = {"copy": False, "autoreset_mode": AutoresetMode.SAME_STEP}
    if vector == "sync":
        return SyncVectorEnv([make_one] * num_envs, **options)
    return Processes([make_one] * num_envs, worker=_work, **options)


class Processes(AsyncVectorEnv):
    """Gymnasium's, but for its end: no process stays, whatever state it is in, and none prints its
    traceback.
    """

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Gymnasium warns of what it is about to raise, with a traceback."""
        if not all(successes):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                super()._raise_if_errors(successes)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Ask the processes to close their environments; end those that have not within `timeout`
        seconds.
        """
        patience = 0.0 if terminate else 3.0 if timeout is None else timeout
        for pipe in self.parent_pipes:
            with contextlib.suppress(
                OSError, AttributeError
            ):  # closed; None after an error in its environment
                pipe.send(("close", None))
        deadline = time.monotonic() + patience
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()


def _work(*arguments) -> None:
    """Gymnasium's loop in a process, which leaves Ctrl-C and SIGTERM, that its whole group may get,
    to the learner.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if number := getattr(signal, name, None):  # Windows has no SIGHUP
            signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # the learner is gone
        _async_worker(*arguments)


def dead(vector_env: VectorEnv) -> str:
    """Which copies' processes are gone, and how they ended; "" where none is."""
    gone = []
    for number, process in enumerate(getattr(vector_env, "processes", ())):
        process.join(0.1)
        if process.exitcode is not None:
            gone.append(f"the process of copy {number} has ended with exit code {process.exitcode}")
    return ", ".join(gone[:3])
