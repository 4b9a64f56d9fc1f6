"""What the scripts of this folder share: attempts that are drawn from a seed, processes that are
killed, one line.
"""

import argparse
import contextlib
import importlib
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # what is tried is what lies beside, whatever is installed
_asked: list[int] = []  # to end, and to say what was found so far: SIGTERM


def read_flags(about: str, kinds: tuple[str, ...] = (), count: int = 20) -> argparse.Namespace:
    """--count, --seed and, where there are several, --kind."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--count", type=int, default=count, help="attempts, of each kind")
    parser.add_argument(
        "--seed", type=int, default=0, help="fixes every attempt but for its timing"
    )
    if kinds:
        parser.add_argument("--kind", choices=kinds, action="append", help="by default all")
    flags = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: _asked.append(1))
    if kinds:
        flags.kind = flags.kind or list(kinds)
    return flags


def torture(
    name: str, count: int, seed: int, attempt: Callable[[random.Random, Path], str | None]
) -> int:
    """Make attempts, each in an empty folder, and print one line on them, after one for each
    failure.

    Args:
        attempt: gets its own random numbers, returns what did not hold, or None.

    Returns:
        The number of failures.
    """
    began = time.monotonic()
    failures = 0
    made = 0
    while made < count and not _asked:
        with tempfile.TemporaryDirectory(prefix="torture") as folder:
            try:
                found = attempt(random.Random(f"{seed} {name} {made}"), Path(folder))
            except Exception:
                found = traceback.format_exc()
        if found:
            failures += 1
            print(f"{name} {made} of seed {seed}: {found}", flush=True)
        made += 1
    print(said(name, made, failures, time.monotonic() - began, seed), flush=True)
    return failures


def said(name: str, made: int, failures: int, seconds: float, seed: int) -> str:
    """The one line."""
    return f"{name}: {made} attempts, {failures} failures, {seconds:.0f} s, seed {seed}"


def end_early() -> bool:
    """Whether this process was asked to end after the attempt it is at."""
    return bool(_asked)


def script(name: str) -> ModuleType:
    """Import what a script of the repository runs, "train" for example, as a module."""
    return importlib.import_module(f"td3_robot.commands.{name}")


class Fork:
    """A script that runs in a process of its own, with everything imported already.

    Args:
        folder: where it runs; what it says goes into its files `outN` and `errN`.
        module: of `script`.
        words: its command line.
        before: called in the new process first.
        told: where `out` and `err` are in place of `folder`.

    Attributes:
        seconds: of CPU that it has taken in all, once it has ended.
    """

    _count = 0

    def __init__(
        self,
        folder: Path,
        module: ModuleType,
        words: list[str],
        before: Callable[[], object] = lambda: None,
        told: Path | None = None,
    ):
        from td3_robot.utils.console import run_script

        Fork._count += 1
        self._told = [(told or folder) / f"{name}{Fork._count}" for name in ("out", "err")]
        self._code = None
        self.number = os.fork()
        if self.number:
            return
        try:
            os.chdir(folder)
            for stream, path in enumerate(self._told, 1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), stream)
            sys.argv = [f"{module.__name__.rpartition('.')[2]}.py", *words]
            for number in (signal.SIGTERM, signal.SIGHUP):  # the latter is ignored under nohup
                signal.signal(number, signal.SIG_DFL)
            before()
            run_script(module.main)  # does not come back
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(99)

    def send(self, number: int) -> None:
        """A signal, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.number, number)

    def poll(self) -> int | None:
        """Its exit code, minus the number of the signal that ended it; None while it runs."""
        if self._code is None:
            number, status, used = os.wait4(self.number, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if number else None
            self.seconds = used.ru_utime + used.ru_stime
        return self._code

    def wait(self, seconds: float = 3600.0) -> int:
        """The same once it has ended.

        Raises:
            TimeoutError: it takes longer; it is killed then.
        """
        if not self.ends_within(seconds):
            self.send(signal.SIGKILL)
            os.waitpid(self.number, 0)
            raise TimeoutError(f"still running after {seconds} s: {self.err}")
        return self._code or 0

    def ends_within(self, seconds: float) -> bool:
        """Wait so long for its end."""
        until = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        return self.poll() is not None

    @property
    def out(self) -> str:
        """What it said."""
        return self._told[0].read_text(errors="replace") if self._told[0].exists() else ""

    @property
    def err(self) -> str:
        """What it said on stderr."""
        return self._told[1].read_text(errors="replace") if self._told[1].exists() else ""
