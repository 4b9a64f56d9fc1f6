"""Files and command lines of strangers: bits flipped, parts cut, doubled and exchanged, words put
in that would run.

Whatever comes, a reader takes it or refuses it in one short line. No code of it runs, no socket is
opened, nothing outside its folder is written, or read unless it is part of the installation; an
attempt takes less than 5 s of CPU and its process less than 1 GB.
"""

import io
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from random import Random

import hostile_kinds
from attempts import ROOT, end_early, read_flags, said
from hostile_kinds import KINDS

from td3_robot.deploy.errors import DeployError
from td3_robot.errors import Td3RobotError

BATCH = 250
SECONDS = 5.0
MEMORY = 1e9
FORBIDDEN = (
    "socket.connect",
    "socket.bind",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "pty.spawn",
    "shutil.rmtree",
)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# what may be read beside the file's folder
OURS = (str(ROOT), sys.prefix, sys.base_prefix, "/proc/", "/sys/", "/usr/")


class Guard:
    """Remembers what Python is asked to do that no file may lead to."""

    def __init__(self, folder: str, may_fork: bool):
        self.seen: list[str] = []
        self._folder = folder
        self._may_fork = may_fork
        self.on = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple) -> None:
        if not self.on:
            return
        if event in FORBIDDEN or (event == "subprocess.Popen" and not self._may_fork):
            self.seen.append(f"{event} {str(arguments)[:100]}")
        elif event == "open" and not isinstance(arguments[0], int):
            writes = isinstance(arguments[2], int) and arguments[2] & WRITES
            path = os.path.abspath(os.fsdecode(arguments[0]))
            # its own
            package = path.endswith("/package.xml") and self._folder.startswith(
                os.path.dirname(path)
            )
            if not path.startswith((self._folder, "/dev/null", *(() if writes else OURS))) and (
                writes or not package
            ):
                self.seen.append(f"{'writes' if writes else 'reads'} {path}")


def outcome(read: Callable[[], object]) -> str | None:
    """What is wrong with how a reader ends, or None."""
    try:
        read()
    except (Td3RobotError, DeployError) as error:
        text = str(error)
        return (
            None
            if text.isprintable() and 0 < len(text) < 300
            else f"not one short line: {text[:400]!r}"
        )
    except SystemExit as end:
        return None if end.code in (0, None) else f"exit {end.code}"
    except BaseException:
        return traceback.format_exc()
    return None


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s of CPU")


def trial(read: Callable[[], object], guard: Guard) -> str | None:
    """What is wrong with what a reader does and how it ends, or None."""
    signal.signal(signal.SIGPROF, _too_long)
    guard.seen.clear()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    guard.on = True
    wrong = outcome(read)
    guard.on = False
    signal.setitimer(signal.ITIMER_PROF, 0)
    sys.stdout = io.StringIO()
    wrong = wrong or (f"did what it must not: {guard.seen[:3]}" if guard.seen else None)
    return wrong or ("code of the file has run" if hostile_kinds.MARK.exists() else None)


def batch(connection, kind: str, seed: int, numbers: range) -> None:
    """The process of some attempts: sends the number of each before it begins, and what is wrong
    after it.
    """
    folder = tempfile.mkdtemp(prefix="hostile")
    os.chdir(folder)
    quiet = sys.stdout
    sys.stdout = io.StringIO()
    guard = Guard(folder, may_fork=kind == "xacro")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in numbers:
        connection.send((number, None))
        read = KINDS[kind](Random(f"{seed} {kind} {number}"), Path(folder))
        wrong = trial(read, guard)
        if wrong:
            connection.send((number, wrong))
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    if grown > MEMORY:
        connection.send((numbers[-1], f"{grown / 1e9:.1f} GB of memory"))
    sys.stdout = quiet
    connection.send((None, None))
    hostile_kinds.remove(folder)


def run(kind: str, seed: int, numbers: range) -> list[tuple[int, str]]:
    """The failures of some attempts, made in a process of their own."""
    here, there = Pipe(duplex=False)
    process = os.fork()
    if not process:
        here.close()
        try:
            batch(there, kind, seed, numbers)
        finally:
            os._exit(0)
    there.close()
    failures = []
    number = numbers[0]
    try:
        while True:
            if not here.poll(300):
                os.kill(process, signal.SIGKILL)
                failures.append((number, "hangs"))
                break
            at, wrong = here.recv()
            if at is None:
                number = None
                break
            number = at
            if wrong:
                failures.append((at, wrong))
    except EOFError:
        pass
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if number is not None and not (failures and failures[-1][1] == "hangs"):
        failures.append((number, f"the process ended with {status}"))
        if number + 1 < numbers.stop:
            failures += run(kind, seed, range(number + 1, numbers.stop))
    return failures


def main() -> int:
    """Returns the exit code."""
    flags = read_flags(__doc__ or "", tuple(KINDS))
    hostile_kinds.prepare(flags.kind)
    failed = 0
    for kind in flags.kind:
        began = time.monotonic()
        failures = []
        made = 0
        while made < flags.count and not end_early():
            numbers = range(made, min(made + BATCH, flags.count))
            failures += run(kind, flags.seed, numbers)
            made = numbers.stop
        for number, wrong in failures:
            print(f"hostile {kind} {number} of seed {flags.seed}: {wrong}", flush=True)
        print(
            said(f"hostile {kind}", made, len(failures), time.monotonic() - began, flags.seed),
            flush=True,
        )
        failed += len(failures)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
