"""The readers of hostile_files.py, given what libFuzzer makes of good files on its way to new
branches of our code.

What must hold is the same, and heard by the same guard. In zip files (state files, datasets) a
member is changed and put back with a checksum that fits. `--count` is executions; libFuzzer's `cov`
is the branches of Python seen at the first look and at the last. What failed is kept in the folder
that it runs in.

Needs `pip install atheris` (Linux, macOS), of which the tests do without: 130 MB that nothing else
asks for.
"""

import contextlib
import hashlib
import io
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from pathlib import Path
from random import Random

import numpy.lib.format  # noqa: F401  # these are not watched
import torch  # noqa: F401
from attempts import end_early, read_flags, said

try:
    import atheris  # pyright: ignore[reportMissingImports]
except ImportError:
    sys.exit("error: guided.py needs atheris: pip install atheris")

KINDS = ("checkpoint", "records", "config", "command_line", "urdf", "xacro", "dataset", "onnx")
WATCHED = ["td3_robot", "envs", "yaml", "jsonargparse", "defusedxml"]  # packages, each as a whole
with atheris.instrument_imports(include=WATCHED), contextlib.redirect_stderr(io.StringIO()):
    import hostile_files
    import hostile_kinds
LINES = [
    "--robot panda --task reach",
    "--td3.hidden 8,8 --seed 1",
    "--env=Pendulum-v1 --steps=1e5",
    "--config a.yaml",
]
LINES += [
    "--checkpoint run1 --episodes 9 --json a",
    "--replay.hindsight future --resume run1",
    "--list tasks",
]
MOST = 10  # failures of one kind that are told
ZIP = b"PK\3\4"


class Target:
    """What libFuzzer calls: a kind's reader of files in which one is of its bytes.

    The first byte chooses, as the random numbers of hostile_files.py do, which file and which
    reader.
    """

    def __init__(self, kind: str, folder: Path, kept: Path):
        self._kind = kind
        self._folder = folder
        self._kept = kept
        self._failures = set()
        hostile_kinds.prepare([kind])
        hostile_kinds.spoilt = self._spoilt  # type: ignore[assignment]
        self._guard = hostile_files.Guard(str(folder), may_fork=kind == "xacro")
        self._data = b""
        self._good = b""

    def __call__(self, data: bytes) -> None:
        """One execution."""
        wrong = hostile_files.trial(self._reader(data), self._guard) if data else None
        if wrong and (told := wrong.strip().splitlines()[-1][:80]) not in self._failures:
            self._failures.add(told)
            path = self._kept / f"guided-{self._kind}-{hashlib.sha256(data).hexdigest()[:8]}"
            path.write_bytes(data)
            print(
                f"guided {self._kind}: {wrong}; its bytes are in {path}",
                file=sys.__stdout__,
                flush=True,
            )
            if len(self._failures) == MOST:
                os.kill(os.getpid(), signal.SIGUSR1)

    def _reader(self, data: bytes):
        self._data = data[1:]
        if self._kind == "command_line":
            return hostile_kinds.command_line(
                self._data.decode(errors="surrogateescape").split("\n"), data[0] % 2 == 0
            )
        return hostile_kinds.KINDS[self._kind](Random(data[0]), self._folder)

    def _spoilt(self, random: Random, content: bytes, as_text: bool) -> bytes:
        """libFuzzer's bytes in place of a file, or of what is in it."""
        if not content.startswith(ZIP):
            self._good = content
            return self._data or self._good
        file = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w") as new:
            names = old.namelist()
            changed = next(
                (name for name in names if name.endswith("data.pkl")), None
            ) or random.choice(names)
            self._good = old.read(changed)
            for name in names:
                new.writestr(
                    name, (self._data or self._good) if name == changed else old.read(name)
                )
        return file.getvalue()

    def corpus(self) -> list[bytes]:
        """The good files, each behind the first byte that chooses it."""
        if self._kind == "command_line":
            return [
                bytes([number]) + line.replace(" ", "\n").encode()
                for number, line in enumerate(LINES)
            ]
        found = {}
        for first in range(64):
            self._good = b""
            self._reader(bytes([first]))
            found.setdefault(self._good, bytes([first]) + self._good)
        return [content for good, content in found.items() if good]

    def words(self) -> str:
        """A dictionary for libFuzzer."""
        words = [*hostile_kinds.WORDS, *(f"--{name}=" for name in hostile_kinds.NAMES)]
        contents = [word.encode(errors="surrogatepass")[:60] for word in words]
        escaped = ["\\x" + content.hex("_").replace("_", "\\x") for content in contents]
        return "".join(f'"{each}"\n' for each in escaped)


def fuzz(kind: str, count: int, seed: int) -> None:
    """The process of one kind; does not come back."""
    kept = Path.cwd()
    folder = Path(tempfile.mkdtemp(prefix="guided"))
    for name in ("files", "corpus"):
        (folder / name).mkdir()
    target = Target(kind, folder / "files", kept)
    for number, content in enumerate(target.corpus()):
        (folder / "corpus" / str(number)).write_bytes(content)
    (folder / "words").write_text(target.words())
    os.chdir(folder / "files")
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    longest = max(path.stat().st_size for path in (folder / "corpus").iterdir())
    flags = (
        f"-runs={count} -seed={seed + 1} -max_len={2 * longest + 100} -rss_limit_mb={used + 1000}"
    )
    # the time is watched here, and that of the processor alone
    flags += " -timeout=600 -report_slow_units=600"
    places = [
        f"-dict={folder}/words",
        f"-artifact_prefix={kept}/guided-{kind}-",
        str(folder / "corpus"),
    ]
    sys.stdout = io.StringIO()
    atheris.Setup([sys.argv[0], *flags.split(), *places], target)
    atheris.Fuzz()


def run(kind: str, count: int, seed: int) -> int:
    """Fuzz one kind in a process of its own, and print a line on it. Returns the number of
    failures.
    """
    began = time.monotonic()

    def kept():
        return len([*Path().glob(f"guided-{kind}-*")])

    before = kept()
    with tempfile.TemporaryDirectory(prefix="guided") as place:
        log = Path(place) / "log"
        process = os.fork()
        if not process:
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
            os.environ["TMPDIR"] = tempfile.tempdir = place
            try:
                fuzz(kind, count, seed)
            finally:
                traceback.print_exc()
                os._exit(99)
        while not (ended := os.waitpid(process, os.WNOHANG))[0]:
            if end_early() and "INITED" in log.read_text(errors="replace"):
                os.kill(process, signal.SIGUSR1)  # by which libFuzzer ends with its figures
            time.sleep(0.5)
        text = log.read_text(errors="replace")
        code = os.waitstatus_to_exitcode(ended[1])
    failures = kept() - before or min(1, abs(code))
    branches = re.findall(r"cov: (\d+)", text)
    made = re.findall(r"^#(\d+)", text, re.MULTILINE)
    print(
        said(
            f"guided {kind}", int(made[-1]) if made else 0, failures, time.monotonic() - began, seed
        )
    )
    print(f"branches: {branches[0]}, then {branches[-1]}" if branches else text[-2000:], flush=True)
    return failures


if __name__ == "__main__":
    flags = read_flags(__doc__ or "", KINDS, count=10_000)
    sys.exit(
        min(1, sum(run(kind, flags.count, flags.seed) for kind in flags.kind if not end_early()))
    )
