"""A policy in a process of its own, so that whatever happens to it the arm is still watched.

The loop asks and goes on, and takes answers when they have come. A process that hangs, is stopped
or dies does not answer, and the watchdog stops the arm when the newest command is too old.
"""

import multiprocessing
import signal
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from td3_robot.deploy.arm import Reading
from td3_robot.deploy.errors import DeployError, summarize
from td3_robot.deploy.policy import Policy
from td3_robot.deploy.robot.obstacles import KINDS, Obstacles

# sent to all of a terminal's processes
TERMINAL = [name for name in ("SIGINT", "SIGHUP") if hasattr(signal, name)]
START = 60.0  # [s] that loading may take


def _answer_questions(connection, path: str) -> None:
    """Run the policy's process: answer the newest question until the other end closes."""
    for name in TERMINAL:
        signal.signal(getattr(signal, name), signal.SIG_IGN)  # they are for the loop, which brakes
    try:
        policy = Policy.load(path)
        # the first call is slow
        policy(
            policy.robot.home, np.zeros(policy.robot.limits.n), 0.0, **_make_example_scene(policy)
        )
        connection.send(("ready", None))
        while True:
            question = connection.recv()
            while connection.poll():
                question = connection.recv()
            stamp, q, qd, gripper, scene, felt, at_rest = question
            scene |= {name: value for name, value in felt.items() if name in policy.scene}
            command = policy(q, qd, gripper, **scene, at=stamp)
            if at_rest:
                policy.restart_clock()
            connection.send(("command", (stamp, command)))
    except (EOFError, ConnectionError):  # the loop has ended
        pass
    except Exception as error:  # whatever it is, the loop is told
        connection.send(("failed", f"{type(error).__name__}: {summarize(error)}"))


def _make_example_scene(policy: Policy) -> dict[str, Any]:
    """Make a scene of the shapes that a policy takes: no obstacles, and unit vectors."""
    scene = policy.scene
    around = {"obstacles": Obstacles()} if set(KINDS) & set(scene) else {}
    unit = {
        name: np.eye(1, size[0], min(3, size[0] - 1))[0]
        for name, size in scene.items()
        if name not in KINDS
    }
    return around | unit


class PolicyProcess:
    """A policy in a process of its own, ready when the constructor returns.

    Args:
        path: of the exported policy.
        method: of starting a process, as in multiprocessing; "fork" is faster and wants a process
            without threads.

    Raises:
        DeployError: the policy cannot be loaded, in its own words.
    """

    def __init__(self, path: str, method: str = "spawn"):
        context: Any = multiprocessing.get_context(method)
        self._connection, other = context.Pipe()
        self.process = context.Process(target=_answer_questions, args=(other, path), daemon=True)
        self.process.start()
        other.close()
        if not self._connection.poll(START):
            raise DeployError(f"the policy was not loaded within {START:g} s")
        self.failure = ""
        kind, content = self._receive()
        if kind != "ready":
            raise DeployError(f"the policy cannot be run: {content}")

    def _receive(self) -> tuple:
        """Receive a message: its kind, "ready", "command" or "failed", and its content."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            return "failed", "its process has ended"

    def ask(self, reading: Reading, scene: Mapping[str, np.ndarray]) -> None:
        """Ask for the velocities in a state of the arm."""
        self._send(reading, scene, at_rest=False)

    def _send(self, reading: Reading, scene: Mapping[str, np.ndarray], at_rest: bool) -> None:
        """Send a question; `at_rest`: before the motion has begun."""
        if not self.failure:
            try:
                state = (reading.q, reading.qd, reading.gripper)
                around = (dict(scene), reading.felt)
                self._connection.send((time.monotonic(), *state, *around, at_rest))
            except OSError:
                self.failure = "the policy's process has ended"

    def prepare(self, reading: Reading, scene: Mapping[str, np.ndarray]) -> None:
        """Ask while the arm is at rest, wait for the answer and drop it: the first answer, for
        which a policy may plan, can take longer than a moving arm could wait. The policy's clock
        runs from the next question.

        Raises:
            DeployError: the policy fails, or does not answer.
        """
        asked_at = time.monotonic()
        self._send(reading, scene, at_rest=True)
        answered_for = -np.inf  # [s]; what was asked in an earlier motion may be answered first
        while not self.failure and answered_for < asked_at:
            if not self._connection.poll(max(0.0, asked_at + START - time.monotonic())):
                self.failure = f"the policy has not answered within {START:g} s"
            if answer := self.answer():
                answered_for = answer[0]
        if self.failure:
            raise DeployError(self.failure)

    def answer(self) -> tuple[float, np.ndarray] | None:
        """Return the newest answer, or None: when it was asked for [s], and velocities (n,)."""
        newest = None
        while not self.failure and self._connection.poll():
            kind, content = self._receive()
            if kind == "failed":
                self.failure = f"the policy failed: {content}"
            else:
                newest = content
        return newest

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self.process.kill()
        self.process.join()
