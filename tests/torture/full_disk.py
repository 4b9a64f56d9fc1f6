"""A disk that is full at a random place of a training: in its first file, a checkpoint, a log or
the summary.

Where this user may mount one, the disk is a small tmpfs of a random size; elsewhere no file may
grow beyond a random size. The run ends by itself, with exit code 0, 2 or 3 and a line for each
thing that could not be written; what it leaves is whole, and with room again it is resumed to its
end.
"""

import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

from attempts import Fork, read_flags, script, torture
from runs import broken, line, warm_up

STEPS = 960


def mounted(disk: Path, size: int) -> bool:
    """Mount a disk of so many bytes, where that is allowed."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], capture_output=True
    )
    return done.returncode == 0


def short_files(size: int) -> None:
    """Let no file of this process grow longer."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def attempt(random: Random, folder: Path) -> str | None:
    """A training on a disk that is too small, then on with room."""
    kind = random.choice(["gymnasium", "gymnasium", "native"])
    disk = folder / "disk"
    roomy = folder / "roomy"
    disk.mkdir()
    size = random.randrange(20_000, 500_000)
    tmpfs = mounted(disk, size)

    def limit():
        return None if tmpfs else short_files(size // 8)

    try:
        process = Fork(disk, TRAIN, line(kind, STEPS), limit, told=folder)
        code = process.wait()
        shutil.copytree(disk, roomy)
    finally:
        if tmpfs:
            subprocess.run(["umount", "-l", disk], check=True)
    told = process.err.splitlines()
    where = f"{kind}, {'disk' if tmpfs else 'files'} of {size} bytes"
    if code not in (0, 2, 3) or (code == 0) == bool(told) or "Traceback" in process.err:
        return f"{where}: exit code {code}: {process.err}"
    if any(not text.startswith(("warning: ", "error: ")) for text in told) or len(set(told)) < len(
        told
    ):
        return f"{where}: not one line for each: {process.err}"
    run = roomy / "checkpoints" / "r"
    if run.exists() and (halves := [path for path in run.rglob(".*") if path.name != ".lock"]):
        return f"{where}: left behind: {halves}"
    wrong, _ = broken(run, 0)
    if wrong or not (run / "last").exists():
        return wrong and f"{where}: {wrong}"
    again = Fork(roomy, TRAIN, ["--resume", "r"], told=folder)
    if again.wait() != 0 or again.err:
        return f"{where}: resumed: {again.err}"
    return broken(run, STEPS)[0]


if __name__ == "__main__":
    flags = read_flags(__doc__ or "")
    warm_up()
    TRAIN = script("train")
    sys.exit(min(1, torture("full_disk", flags.count, flags.seed, attempt)))
