"""Live view of a training: one simulated arm in a process of its own.

The learner copies its weights into shared memory now and then and never waits for the viewer.
The viewer's process loads the newest weights, steps its arm in real time and draws it. It ends when
its tab is closed and when the learner's process ends.
"""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.multiprocessing
from torch import Tensor, nn

from envs.robots import Robot
from envs.view.browser import find_browser
from envs.view.scene import Frame
from envs.view.swift import SwiftViewer
from td3_robot.errors import Td3RobotError, ViewerError, not_none

_NICENESS = 10  # the learner comes first where there are fewer cores than processes
_PUBLISH_PERIOD = 0.2  # [s] more often is not visible
_PATIENCE = 3.0  # [s] for the viewer to close its browser


class SharedWeights:
    """Parameters and buffers of a module in memory shared by two processes.

    Args:
        module: the first to publish; later ones have the same names, shapes and types.
    """

    def __init__(self, module: nn.Module):
        state = module.state_dict()
        self._tensors = {
            name: value.detach().cpu().clone().share_memory_() for name, value in state.items()
        }
        self._version = torch.zeros((), dtype=torch.int64).share_memory_()
        self._lock = torch.multiprocessing.get_context("spawn").Lock()

    def publish(self, module: nn.Module) -> bool:
        """Copy the module's state; if a reader holds the lock, return False without waiting."""
        if not self._lock.acquire(block=False):  # for good if a reader was killed with it
            return False
        try:
            for name, value in module.state_dict().items():
                self._tensors[name].copy_(value)
            self._version += 1
        finally:
            self._lock.release()
        return True

    @property
    def version(self) -> int:
        """Number of times the state was published."""
        return int(self._version)

    def copy_state(self) -> dict[str, Tensor]:
        """Copy the newest state, for `load_state_dict`."""
        with self._lock:
            return {name: value.clone() for name, value in self._tensors.items()}


class LiveView:
    """The learner's side of the live view; a context manager.

    The constructor returns once the page shows the robot, so errors come before training starts.

    Args:
        make_robot: builds the robot to show, in the viewer's process; picklable like `rollout`.
        rollout: called in the viewer's process with the shared weights; yields the frames to show,
            one a control step, without end, and loads newer weights when it likes (`version`,
            `copy_state`). Must be picklable: a module-level function, or functools.partial of one.
        policy: the first to show; `publish` takes later ones.
        open_browser: open the page and wait for it. If False, `on_url` is called with the address
            to open, now or later; the learner does not wait for that.
        on_url: takes the page's address as soon as it is known.
        port: to serve the page on; 0 takes a free one.

    Raises:
        ViewerError: the page cannot be shown on this machine.
    """

    def __init__(
        self,
        make_robot: Callable[[], Robot],
        rollout: Callable[[SharedWeights], Iterator[Frame]],
        policy: nn.Module,
        open_browser: bool = True,
        on_url: Callable[[str], None] = lambda url: None,
        port: int = 0,
    ):
        if open_browser:
            find_browser()  # here too: the viewer's process takes seconds to start
        self._weights: SharedWeights | None = SharedWeights(policy)
        self._published_at = time.monotonic()
        spawn = torch.multiprocessing.get_context("spawn")  # a fork would copy locked threads
        pipe, childs_end = spawn.Pipe()
        self._process = spawn.Process(
            target=_run_viewer,
            args=(make_robot, rollout, self._weights, childs_end, open_browser, port),
            daemon=True,
        )
        with _block_interrupts():
            self._process.start()
        childs_end.close()
        try:
            self._await_messages(pipe, [on_url, lambda shown: None] if open_browser else [on_url])
        except BaseException:
            self.close()
            raise

    def _await_messages(self, pipe, handlers: list[Callable[[str], None]]) -> None:
        """Receive the page's address and, if it was opened, "shown"; raise an error received."""
        for handle in handlers:
            try:
                message = pipe.recv()
            except EOFError:
                raise ViewerError(
                    "the viewer's process ended before it could show anything"
                ) from None
            if isinstance(message, Exception):
                raise message
            handle(message)

    def __enter__(self) -> "LiveView":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """True while the viewer's process is running."""
        return self._process.is_alive()

    def publish(self, policy: nn.Module) -> None:
        """Publish the policy's current weights; call it after every update, at most 5 a second are
        copied.
        """
        now = time.monotonic()
        due = now - self._published_at >= _PUBLISH_PERIOD
        if due and self._weights is not None and self._weights.publish(policy):
            self._published_at = now

    def close(self) -> None:
        """End the viewer's process. Do nothing the second time."""
        self._process.terminate()
        self._process.join(_PATIENCE)
        self._process.kill()  # one that was stopped, or hangs
        self._process.join()
        self._weights = None  # else its lock is reported as leaked at exit


def _run_viewer(*arguments: Any) -> None:
    """Run the viewer's process; arguments as of `_show`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where _block_interrupts does nothing
    with suppress(_ViewEnded):
        signal.signal(signal.SIGTERM, _end)
        _show(*arguments)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stderr.flush()
    os._exit(0)  # Python's own teardown takes seconds, see `td3_robot.utils.console`


def _show(make_robot, rollout, weights: SharedWeights, pipe, open_browser: bool, port: int) -> None:
    """Show frames until the page is closed; send its address, "shown" or an error to the pipe."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    torch.set_num_threads(1)
    patience: dict[str, Any] = {} if open_browser else {"patience": math.inf}
    shown = False
    try:
        with SwiftViewer(make_robot(), open_browser, port=port, **patience) as viewer:
            pipe.send(viewer.url)
            shown = not open_browser  # nobody waits for it
            for frame in rollout(weights):
                if not viewer.show(*frame):
                    break
                if not shown:
                    pipe.send("shown")
                    shown = True
    except Td3RobotError as error:
        if shown:  # nobody reads the pipe any more
            print(f"the live view ended: {error}", file=sys.stderr)
        else:
            pipe.send(error)


@contextmanager
def _block_interrupts():
    """Keep Ctrl-C from a process started in this context, even while it is importing.

    Ctrl-C in a terminal goes to every process of the group; it is for the learner, which then
    closes the viewer. The blocked signals of a process are what its children start with.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _ViewEnded(BaseException):
    """The learner ended the view; only `_run_viewer` catches it."""


def _end(signum: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _ViewEnded


def _end_with_parent() -> None:
    """End this process when its parent has ended, even if that was killed."""
    not_none(torch.multiprocessing.parent_process()).join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_PATIENCE)
    os._exit(0)
