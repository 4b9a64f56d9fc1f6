"""Vector environments of copies that step one after the other, or each in its own process."""

import contextlib
import functools
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.async_vector_env import _async_worker

from td3_robot.utils.seeding import (
    get_global_generators,
    seed_global_generators,
    set_global_generators,
)

_SIGNALS = [  # that a whole group of processes receives; Windows has no SIGHUP
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


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

    def __init__(self, *arguments: Any, **options: Any):
        with postpone_signal() as self._handle_signal:
            super().__init__(*arguments, **options)

    def _check_spaces(self) -> None:
        """Wait until the processes have made their environments, which Ctrl-C may end."""
        self._handle_signal()
        super()._check_spaces()

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


@contextlib.contextmanager
def postpone_signal() -> Iterator[Callable[[], None]]:
    """Handle the first signal of the block after it, or in the call of what is yielded.

    While a process is forked, Python calls hooks of modules, and ignores whatever they raise: a
    KeyboardInterrupt is lost there. Further signals are handled as they come.
    """
    handlers: dict[int, Any] = {}
    postponed: list[int] = []

    def postpone(number: int, frame: Any) -> None:
        if postponed:
            handlers[number](number, frame)
        else:
            postponed.append(number)

    def handle() -> None:
        for number, handler in handlers.items():
            if signal.getsignal(number) is postpone:
                signal.signal(number, handler)
        if postponed:
            signal.raise_signal(postponed.pop())

    if threading.current_thread() is threading.main_thread():  # no other one may set handlers
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):  # it is neither ignored nor left to the system
                handlers[number] = handler
                signal.signal(number, postpone)
    try:
        yield handle
    finally:
        handle()


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
    for number in _SIGNALS:
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
