"""An arm whose vendor's client has a process of its own: no call of it can hold up the loop.

A vendor's call may block for minutes, with Python's lock held, or end the process that made it. In
a process of its own it does so without stopping the loop, its watchdog or its signals. The
other way round, that process brakes the arm when the loop's process has died or hangs. Messages
are pickled tuples over a socket pair, each end of which was made by this module.
"""

import contextlib
import multiprocessing
import pickle
import select
import signal
import socket
import time
from typing import Any

import numpy as np

from td3_robot.deploy.adapters.vendors import ARMS, connect
from td3_robot.deploy.arm import Arm, Reading
from td3_robot.deploy.errors import DeployError, summarize

PATIENCE = 30.0  # [s] that connecting may take
SILENCE = 0.1  # [s] without a velocity after which a moving arm is stopped
POLL = 0.002  # [s] between readings of the arm
STOP = 1.0  # [s] that stopping may take, of an arm that has braked already
LEAVE = 0.5  # [s] for the client to disconnect after that
GRACE = 2.0  # [s] in which the loop brakes the arm after a SIGTERM, which both processes may get
_LONGEST = 65536  # [bytes] of a message
# sent to all processes of a terminal: the loop heeds them, and brakes
_IGNORED = [name for name in ("SIGINT", "SIGHUP") if hasattr(signal, name)]


class ArmProcess:
    """An `Arm` by the name of its adapter, none of whose methods waits for the vendor's client.

    A client that hangs is an arm without states: the watchdog sees to that. Call `stop()` whatever
    happens. In a script of your own, make it below `if __name__ == "__main__":`.

    Args:
        name, host, joints, realtime: as in `connect`.
        patience: how long connecting may take [s].

    Raises:
        DeployError: no such adapter, its package is missing, the arm cannot be reached in time, or
            this is not Linux.
    """

    def __init__(
        self,
        name: str,
        host: str,
        joints: tuple[str, ...],
        realtime: bool = True,
        patience: float = PATIENCE,
    ):
        if name not in ARMS:
            raise DeployError(f"no arm {name!r}; valid choices: {', '.join(sorted(ARMS))}")
        try:
            self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except (AttributeError, OSError) as error:  # macOS and Windows have no such pairs
            raise DeployError(f"arms are driven from Linux; this system reports: {error}") from None
        self._socket.setblocking(False)
        self._failure = ""
        self._said: dict[str, Any] = {}  # what came last with each word
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(
            target=serve_arm, args=(other, name, host, joints, realtime), daemon=True
        )
        try:
            self.process.start()
            other.close()
            answer = self._wait_for("connected", patience)
            if answer is None:
                raise DeployError(
                    self._failure or f"arm {name!r} at {host!r} has not answered in {patience:g} s"
                )
        except BaseException:
            self._end(0.0)
            raise
        self.rate, self.latency = answer

    def read(self) -> Reading | None:
        """Return the newest state, or None.

        Raises:
            DeployError: the client has failed, in its own words.
        """
        self._receive()
        if self._failure:
            raise DeployError(self._failure)
        return self._said.pop("state", None)

    def send(self, qd: np.ndarray) -> None:
        """Command velocities (n,) [rad/s or m/s]. A client that takes none gets none."""
        with contextlib.suppress(OSError):
            _post(self._socket, "send", np.array(qd, float))

    def stop(self) -> None:
        """End the motion and give control back, within `STOP` and `LEAVE`.

        Raises:
            DeployError: that has failed, or was not done in time; the client's process is ended.
        """
        patience = 0.0
        try:
            with contextlib.suppress(OSError):
                _post(self._socket, "stop", None)
            why = self._wait_for("stopped", STOP)
            if why is None:
                late = f"the arm's client has not stopped it within {STOP:g} s and was ended"
                raise DeployError(self._said.get("gone", late))
            patience = LEAVE
            if why:
                raise DeployError(why)
        finally:
            self._end(patience)

    def _wait_for(self, word: str, patience: float) -> Any:
        """Return what comes with a word, or None if it does not come in time or never will."""
        until = time.monotonic() + patience
        self._receive()
        while (left := until - time.monotonic()) > 0 and not {word, "gone"} & set(self._said):
            select.select([self._socket], [], [], left)
            self._receive()
        return self._said.get(word)

    def _receive(self) -> None:
        """Take the messages that have come; the first failure stays."""
        while "gone" not in self._said:
            try:
                packet = self._socket.recv(_LONGEST)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            word, what = pickle.loads(packet) if packet else ("gone", "the arm's client has ended")
            self._said[word] = what
            if word in ("failed", "gone"):
                self._failure = self._failure or what

    def _end(self, patience: float) -> None:
        self._socket.close()
        if self.process.pid is not None:
            self.process.join(patience)
            self.process.kill()
            self.process.join()


def serve_arm(
    sock: socket.socket, name: str, host: str, joints: tuple[str, ...], realtime: bool
) -> None:
    """Serve an arm to an `ArmProcess` until it asks to stop or is silent: the process's main."""
    terminated: list[float] = []
    for ignored in _IGNORED:
        signal.signal(getattr(signal, ignored), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: terminated.append(time.monotonic()))
    sock.setblocking(False)
    with contextlib.suppress(OSError):  # nobody listens any more
        try:
            arm = connect(name, host, joints, realtime)
        except DeployError as error:
            _post(sock, "failed", str(error))
            return
        client = _Client(arm, sock)
        client.post("connected", (arm.rate, arm.latency))
        why = client.serve(terminated)
        if why:
            client.post("failed", why)
        try:
            arm.stop()
        except Exception as error:  # a maker's own code
            client.post("stopped", f"the arm cannot be stopped: {summarize(error)}")
        else:
            client.post("stopped", "")


class _Client:
    """The vendor's client, and the loop at the other end of a socket."""

    def __init__(self, arm: Arm, sock: socket.socket):
        self._arm = arm
        self._socket = sock
        self._told: set[str] = set()

    def post(self, word: str, what: Any) -> None:
        """Send a message; one for which there is no room is lost."""
        with contextlib.suppress(OSError):
            _post(self._socket, word, what)

    def serve(self, terminated: list[float]) -> str:
        """Serve until the arm is to be stopped; return why if that is a failure."""
        moving = False
        heard = time.monotonic()
        while True:
            command, ended = self._take()
            if ended:
                return ""
            now = time.monotonic()
            if command is not None:
                self._try("take a velocity", self._arm.send, command)
                moving = bool(command.any())
                heard = now
            elif moving and now - heard > SILENCE:
                return f"no velocity has come for {1e3 * SILENCE:.0f} ms: the arm was stopped"
            if terminated and now - terminated[0] > GRACE:
                return "the arm's client was asked to end"
            reading = self._try("be read", self._arm.read)
            if reading is not None:
                self.post("state", reading)
            select.select([self._socket], [], [], POLL)

    def _take(self) -> tuple[np.ndarray | None, bool]:
        """Return the newest velocities (n,) that have come, and whether to stop the arm."""
        newest = None
        while True:
            try:
                packet = self._socket.recv(_LONGEST)
            except BlockingIOError:
                return newest, False
            except OSError:
                packet = b""
            if not packet:  # the loop's process has died
                return newest, True
            word, what = pickle.loads(packet)
            if word == "stop":
                return newest, True
            newest = what

    def _try(self, to: str, call, *values):
        """Call the vendor; the loop hears of each failure once, and brakes."""
        try:
            return call(*values)
        except Exception as error:  # a maker's own code
            why = f"the arm cannot {to}: {summarize(error)}"
            if why not in self._told:
                self._told.add(why)
                self.post("failed", why)
            return None


def _post(sock: socket.socket, word: str, what: Any) -> None:
    sock.send(pickle.dumps((word, what)))
