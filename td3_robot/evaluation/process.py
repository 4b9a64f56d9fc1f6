"""A process of its own for the evaluations of a training, so that they are played on another core
meanwhile.

It is started before the training has imported torch, so that what it imports itself costs nobody
time. It ends when the other end of its pipe closes, however that came about; and whatever becomes
of it, the training plays on by itself.
"""

import contextlib
import multiprocessing
import multiprocessing.resource_tracker
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING

from td3_robot.config.run import Config
from td3_robot.errors import ConfigError
from td3_robot.utils.console import warn
from td3_robot.utils.signals import terminal_held

if TYPE_CHECKING:
    from torch import Tensor, nn

    from td3_robot.evaluation.rollout import Policy
    from td3_robot.vec_env import VecEnv

USE = "evaluation"  # of the run's seed
PATIENCE = 60.0  # [s] that a training waits for scores


def wanted(config: Config, bound: str | None) -> bool:
    """Whether the evaluations of a run are to be played by a process of their own.

    Args:
        config: of the run.
        bound: why its environments cannot be made anew in another process; None where they can.

    Raises:
        ConfigError: they are and cannot.
    """
    reasons = {
        bound: bound is not None,
        "there are no evaluations: evaluation.episodes is 0": not config.evaluation.episodes,
        f"device is {config.device}, where the same sums have other last digits": config.device
        != "cpu",
        "stop_when_solved ends the run at an evaluation, which it has to wait for": config.stop_when_solved,
    }
    why = next((reason for reason, there in reasons.items() if there), None)
    if config.evaluation.process and why:
        raise ConfigError(f"evaluation.process cannot be true, as {why}")
    return config.evaluation.process


class EvaluationProcess:
    """The training's side. Evaluations that are due before the process is ready are not for it:
    nobody waits for that.

    Args:
        make_env: makes the environments of the evaluation, in the process; picklable.
        seed: of the run.
        threads, matmul_precision: of torch, those of the training: other sums and products differ
            in their last digits.

    Attributes:
        lost: whether it was given up, which is said.
    """

    def __init__(
        self,
        make_env: Callable[[], "VecEnv"],
        seed: int,
        threads: int,
        matmul_precision: str = "highest",
    ):
        self._ready = self.lost = False
        self._asking: threading.Thread | None = None
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        setting = (threads, matmul_precision)
        self._process = context.Process(
            target=_evaluate, args=(other, make_env, seed, setting), daemon=True
        )
        multiprocessing.resource_tracker.ensure_running()  # by the way it unblocks SIGINT
        try:
            with terminal_held():
                self._process.start()
        except OSError as error:
            self._lose(str(error.strerror))
        other.close()

    def ready(self, patience: float = 0.0) -> bool:
        """Whether it can play, or can after so many seconds."""
        if not self._ready and not self.lost and self._connection.poll(patience):
            told = self._heard()
            self._ready = told == {}
            if not self._ready:
                self._lose(str(told))
        return self._ready and not self.lost

    def begin(self, policy: "nn.Module") -> Future:
        """Have a policy played as it is now; one at a time."""
        answer: Future = Future()
        asked = (pickle.dumps(policy), answer)
        self._asking = threading.Thread(
            target=self._ask, args=asked, daemon=True
        )  # as a pipe that is full would block
        self._asking.start()
        return answer

    def _ask(self, policy: bytes, answer: Future) -> None:
        with contextlib.suppress(OSError):  # then there is nothing to hear either
            self._connection.send_bytes(policy)
        answer.set_result(self._heard())

    def _heard(self) -> dict[str, float] | str:
        """What the process sends next: scores, none at first, or what went wrong."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            return "it has ended"

    def scores(self, answer: Future, heed: Callable[[], None]) -> dict[str, float] | None:
        """The scores of a policy that was begun, when they are there; None where they will never
        be, which is said.

        Args:
            answer: what `begin` gave.
            heed: called again and again meanwhile; may raise.
        """
        until = time.monotonic() + PATIENCE
        while not answer.done() and time.monotonic() < until:
            heed()
            wait([answer], 0.1)
        told = answer.result() if answer.done() else f"it has not answered for {PATIENCE:g} s"
        if isinstance(told, dict):
            return told
        heed()  # what ends the training may have ended this one first
        self._lose(told)
        return None

    def _lose(self, why: str) -> None:
        if not self.lost:
            warn(
                f"the process that plays the evaluations is given up ({why}); the training plays them itself"
            )
        self.lost = True
        self.close()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()
        if self._asking is not None:
            self._asking.join()
        self._connection.close()


def _evaluate(
    connection, make_env: Callable[[], "VecEnv"], seed: int, setting: tuple[int, str]
) -> None:
    """The process: an empty answer when it is ready, then the scores of every policy that comes, or
    what went wrong.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where the terminal's signals cannot be held
    with contextlib.suppress(EOFError, OSError):
        try:
            _answer(connection, make_env, seed, setting)
        except (EOFError, OSError):
            raise
        except Exception as error:  # the training meets it as well, and in its own words
            connection.send(f"{type(error).__name__}: {error}")
    os._exit(0)


def _answer(
    connection, make_env: Callable[[], "VecEnv"], seed: int, setting: tuple[int, str]
) -> None:
    """Until the other end closes, which raises EOFError."""
    import torch

    from td3_robot.evaluation.rollout import evaluate
    from td3_robot.utils.memory import keep_freed_memory
    from td3_robot.utils.seeding import seed_of

    keep_freed_memory()
    threads, precision = setting
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    env = make_env()
    connection.send({})
    while True:
        policy = pickle.loads(connection.recv_bytes())
        connection.send(evaluate(_heeding(connection, policy), env, seed_of(seed, USE)))


def _heeding(connection, policy: "nn.Module") -> "Policy":
    """The policy, but for where the training is gone meanwhile: nothing else comes before it has
    its answer.
    """

    def act(o: "Tensor") -> "Tensor":
        if connection.poll():
            raise EOFError
        return policy(o)

    return act
