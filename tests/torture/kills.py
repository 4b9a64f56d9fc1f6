"""SIGKILL at random moments of a training, again and again until it is through.

After each kill the folder holds a whole checkpoint or none, nothing that was saved is lost, and the
run goes on; a run of our own simulator ends exactly as one that nobody killed. Of two processes one
is killed, or both; the other then ends by itself and says so in one line.
"""

import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from attempts import Fork, read_flags, script, torture
from pair import Pair
from runs import broken, differing, line, rows, warm_up, weights

STRAYS = (".next", ".commit", ".last.new", ".lock", "replay")
PATIENCE = 60.0  # [s] for a process that has lost another one


class Killer:
    """Kills one training over and over; `attempt` is one kill, or the end that it comes to."""

    def __init__(self, kind: str, folder: Path):
        self._kind = kind
        self._folder = folder
        self._train = script("train")
        self._runs = 0
        self._processes = Pair.count if kind == "ranks" else 1
        self._begin()
        began = time.monotonic()
        whole = self._start(line(kind))
        assert set(whole.wait()) == {0}, whole.err
        self._seconds = time.monotonic() - began
        self._whole = self._run
        self._begin()

    def _begin(self) -> None:
        self._runs = self._runs + 1
        self._saved = 0
        self._work = self._folder / str(self._runs)
        self._work.mkdir()
        self._run = self._work / "checkpoints" / "r"

    def _start(self, words: list[str]) -> "Pair | One":
        return (Pair if self._kind == "ranks" else One)(self._work, self._train, words)

    def attempt(self, random: Random, _: Path) -> str | None:
        """One sitting, which is killed at a moment that is as likely in each of its phases."""
        begun = (self._run / "config.yaml").exists() and (self._run / "last").exists()
        if not begun and self._run.exists():
            self._begin()  # killed before there was anything to resume
        training = self._start(["--resume", "r"] if begun else line(self._kind))
        training.ends_within(random.uniform(0.0, 0.8 * self._seconds))
        some = random.sample(training.forks, random.randint(1, self._processes))
        for process in some if training.met else training.forks:
            process.send(signal.SIGKILL)
        try:
            codes = training.wait(PATIENCE)
        except TimeoutError as error:
            self._begin()
            return str(error)
        wrong, self._saved = broken(self._run, self._saved, self._processes)
        if wrong := wrong or _misspoken(codes, training.err):
            self._begin()
            return wrong
        return self._end() if set(codes) == {0} else None

    def _end(self) -> str | None:
        """What is wrong with a run that came to its end after kills."""
        run = self._run
        self._begin()
        if strays := [name for name in STRAYS if list(run.rglob(name))]:
            return f"left behind: {strays}"
        if self._kind != "gymnasium":
            if different := [*differing(weights(run), weights(self._whole))]:
                return f"{different[0]} and others differ from the run that nobody killed"
            if rows(run) != rows(self._whole):
                return "the curve differs from that of the run that nobody killed"
        return None


class One:
    """A training by one process, with the calls of a `Pair`."""

    met = True

    def __init__(self, *arguments):
        self.forks = [Fork(*arguments)]
        self.ends_within = self.forks[0].ends_within

    def wait(self, seconds: float = 3600.0) -> list[int]:
        """See `Pair`."""
        return [self.forks[0].wait(seconds)]

    @property
    def err(self) -> str:
        """See `Pair`."""
        return self.forks[0].err


def _misspoken(codes: list[int], said: str) -> str | None:
    """What is wrong with how processes ended some of which were killed: 1 is the exit code of who
    has lost another.
    """
    survivors = sum(code == 1 for code in codes)
    lines = said.splitlines()
    if (
        set(codes) - {0, 1, -signal.SIGKILL}
        or len(lines) != survivors
        or (survivors and len(codes) == 1)
    ):
        return f"exit codes {codes}: {said}"
    wrong = [
        text for text in lines if not text.startswith("error: ") or "lost another one" not in text
    ]
    return f"not one line of who was lost: {said}" if wrong else None


def main() -> int:
    """Returns the exit code."""
    flags = read_flags(__doc__ or "", ("native", "gymnasium", "ranks"))
    warm_up()
    failures = 0
    for kind in flags.kind:
        with tempfile.TemporaryDirectory(prefix="kills") as folder:
            failures += torture(
                f"kills {kind}", flags.count, flags.seed, Killer(kind, Path(folder)).attempt
            )
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
