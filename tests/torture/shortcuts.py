"""What makes hostile_files.py's attempts cheap, and leaves alone what reads what is hostile."""

import copy
import functools
import hashlib
import select
import subprocess
from pathlib import Path

from envs.robots import from_file
from envs.robots.urdf import xacro_files
from td3_robot.checkpoint import store as folder
from td3_robot.checkpoint.state_file import read_state

SERVER = Path(__file__).with_name("xacro_server.py")
# of poses, from which the box and the home of a robot are taken: more of them would only cost time
SAMPLES = 512


def take_shortcuts(good: dict[str, bytes], there: dict[Path, bytes]) -> None:
    """Put them in place.

    Args:
        good: the files of a run that is not spoilt.
        there: what is where at the moment.
    """
    from_file._SAMPLES = SAMPLES
    xacro_files.subprocess = Xacro()  # type: ignore[assignment]
    folder.read_state = functools.partial(_read_state, good, there, {})  # type: ignore[assignment]


def _read_state(
    good: dict, there: dict, known: dict, path: Path, sums: dict[str, str] | None = None
) -> dict:
    """In place of the reader of a state file: it reads what is spoilt, and each good file once."""
    name = next((name for name, content in good.items() if there.get(path) is content), None)
    if name is None or (
        sums is not None and sums.get(path.name) != hashlib.sha256(good[name]).hexdigest()
    ):
        return read_state(path, sums)
    if name not in known:
        known[name] = read_state(path, sums)
    return copy.deepcopy(known[name])


class Xacro:
    """In place of the module subprocess where xacro files are expanded: see xacro_server.py."""

    TimeoutExpired = subprocess.TimeoutExpired
    _server: subprocess.Popen | None = None

    def run(
        self, command: list[str], *, input: str, timeout: float, env: dict[str, str], **_: object
    ):
        """What the child answers to a request."""
        if self._server is None:
            words = [*command[:-1], str(SERVER), command[-1]]
            pipes = {"stdin": subprocess.PIPE, "stdout": -1}
            self._server = subprocess.Popen(words, **pipes, stderr=subprocess.DEVNULL, env=env)
        server = self._server
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(input.encode() + b"\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], timeout)[0]:
            server.kill()
            self._server = None
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, 0, server.stdout.readline().decode(), "")
