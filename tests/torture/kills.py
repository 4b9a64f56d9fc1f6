"""SIGKILL at random moments of a training, again and again until it is through.

After each kill the folder holds a whole checkpoint or none, nothing that was saved is lost, and the run goes on; a run
of our own simulator ends exactly as one that nobody killed.
"""

import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from attempts import Fork, read_flags, script, torture
from runs import broken, differing, line, rows, warm_up, weights

STRAYS = (".next", ".commit", ".last.new", ".lock")


class Killer:
    """Kills one training over and over; `attempt` is one kill, or the end that it comes to."""

    def __init__(self, kind: str, folder: Path):
        self._kind, self._folder, self._train, self._runs = kind, folder, script("train"), 0
        self._begin()
        whole = Fork(self._work, self._train, line(kind))
        began = time.monotonic()
        assert whole.wait() == 0, whole.err
        self._seconds = time.monotonic() - began
        self._whole = self._run
        self._begin()

    def _begin(self) -> None:
        self._runs, self._saved = self._runs + 1, 0
        self._work = self._folder / str(self._runs)
        self._work.mkdir()
        self._run = self._work / "checkpoints" / "r"

    def attempt(self, random: Random, _: Path) -> str | None:
        """One sitting, which is killed at a moment that is as likely in each of its phases."""
        begun = (self._run / "config.yaml").exists() and (self._run / "last").exists()
        if not begun and self._run.exists():
            self._begin()  # killed before there was anything to resume
        process = Fork(self._work, self._train, ["--resume", "r"] if begun else line(self._kind))
        process.ends_within(random.uniform(0.0, 0.8 * self._seconds))
        process.send(signal.SIGKILL)
        code = process.wait()
        wrong, self._saved = broken(self._run, self._saved)
        if wrong or (code not in (0, -signal.SIGKILL)) or "Traceback" in process.err:
            self._begin()
            return wrong or f"exit code {code}: {process.err}"
        return self._end() if code == 0 else None

    def _end(self) -> str | None:
        """What is wrong with a run that came to its end after kills."""
        run = self._run
        self._begin()
        if strays := [name for name in STRAYS if list(run.rglob(name))]:
            return f"left behind: {strays}"
        if self._kind == "native":
            if different := [*differing(weights(run), weights(self._whole))]:
                return f"{different[0]} and others differ from the run that nobody killed"
            if rows(run) != rows(self._whole):
                return "the curve differs from that of the run that nobody killed"
        return None


def main() -> int:
    """Returns the exit code."""
    flags = read_flags(__doc__ or "", ("native", "gymnasium"))
    warm_up()
    failures = 0
    for kind in flags.kind:
        with tempfile.TemporaryDirectory(prefix="kills") as folder:
            failures += torture(f"kills {kind}", flags.count, flags.seed, Killer(kind, Path(folder)).attempt)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
