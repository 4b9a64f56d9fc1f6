"""What else befalls a training: signals, power cuts, deleted and read-only folders, two at once, a
clock set back.
"""

import ctypes
import functools
import itertools
import os
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from random import Random

from attempts import Fork, read_flags, script, torture
from runs import broken, line, warm_up

import envs
from td3_robot import TD3, checkpoint
from td3_robot.loggers import learning_curve
from td3_robot.loggers.base import Trackers
from td3_robot.training import trainer
from td3_robot.training.periodic_evaluation import PeriodicEvaluation
from td3_robot.training.trainer import Trainer

STEPS = 960
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RUN = Path("checkpoints", "r")
ANSWER = 2.0  # [s] of CPU from a signal to the end, so that the machine's other work does not count
PHASES = {  # of a training, and the function that each begins with
    "the making of environments": (envs, "make_from_config"),
    "the making of the agent": (TD3, "__init__"),
    "a step": (Trainer, "_step"),
    "an evaluation": (Trainer, "_evaluate"),
    "an episode of it": (PeriodicEvaluation, "evaluate"),
    "a save": (Trainer, "_save"),
    "a checkpoint": (checkpoint, "write"),
    "the last evaluation": (Trainer, "_compute_final_scores"),
    "the summary": (trainer, "write_summary"),
    "the curve": (learning_curve, "plot_learning_curve"),
    "the last words": (Trackers, "close"),
}


def begun(folder: Path, random: Random, before=lambda: None) -> Fork:
    """A training, some way into it; it may have ended."""
    process = Fork(folder, TRAIN, line(random.choice(["native", "gymnasium"]), STEPS), before)
    process.ends_within(random.uniform(0.0, 4.0))
    return process


def resumes(folder: Path, steps: int = 0) -> str | None:
    """What is wrong with the run in a folder, or with what comes of it when it is resumed."""
    wrong, saved = broken(folder / RUN, steps)
    if wrong or not (folder / RUN / "last").exists():
        return wrong
    again = Fork(folder, TRAIN, ["--resume", "r"])
    code = again.wait()
    return (
        f"resumed: exit code {code}: {again.err}"
        if code or again.err
        else broken(folder / RUN, STEPS)[0]
    )


def signals(random: Random, folder: Path) -> str | None:
    """One or two signals in any phase: answered within seconds, saved."""
    numbers = [random.choice(SIGNALS) for _ in range(random.choice([1, 2]))]
    where = random.choice(list(PHASES))
    call = random.choice([1, 1, 2, 3, 5, 50])
    waits = [random.choice([0.0, random.uniform(0.0, 0.1)]) for _ in numbers]
    kind = random.choice(["native", "gymnasium"])
    process = Fork(
        folder,
        TRAIN,
        line(kind, STEPS),
        functools.partial(strike, folder, where, call, numbers, waits),
    )
    what = f"{kind}, {[number.name for number in numbers]} at call {call} of {where}"
    if not process.ends_within(120):
        process.send(signal.SIGKILL)
    code = process.wait()
    if code not in (0, 130) or process.err:
        return f"{what}: exit code {code}: {process.err}"
    struck = folder / "struck"
    if struck.exists() and (took := process.seconds - float(struck.read_text())) > ANSWER:
        return f"{what}: answered after {took:.1f} s of CPU"
    wrong = resumes(folder)
    return wrong and f"{what}: {wrong}"


def strike(folder: Path, where: str, call: int, numbers: list[int], waits: list[float]) -> None:
    """Send this process signals, once it has called the function that begins a phase so many
    times.
    """
    owner, name = PHASES[where]
    begins = getattr(owner, name)
    calls = itertools.count(1)

    def send() -> None:
        time.sleep(waits[0])
        (folder / "struck").write_text(str(time.process_time()))
        for number, wait in zip(numbers, [0.0, *waits[1:]]):
            time.sleep(wait)
            os.kill(os.getpid(), number)

    def instead(*arguments, **options):
        if next(calls) == call:
            threading.Thread(target=send, daemon=True).start()
        return begins(*arguments, **options)

    setattr(owner, name, instead)


def two_at_once(random: Random, folder: Path) -> str | None:
    """A second process on a run is refused by the name of the first one, and two new runs get two
    folders.
    """
    first = begun(folder, random)
    held = (folder / RUN / ".lock").exists()
    second = Fork(folder, TRAIN, ["--resume", "r"])
    code = second.wait()
    error = second.err
    alive = first.poll() is None
    third = [Fork(folder, TRAIN, [*line("gymnasium", 400), "--run", "r"]) for _ in range(2)]
    codes = [process.wait() for process in third]
    first.wait()
    if alive and (code != 2 or error.count("\n") != 1):
        return f"the second was not refused in one line: {code}: {error}"
    if alive and held and f"process {first.number} on {socket.gethostname()}" not in error:
        return f"the second was not told of the first: {error}"
    return (
        f"a run was trained over: {codes}"
        if codes != [2, 2] and (folder / RUN).exists() and alive
        else None
    )


def same_moment(random: Random, folder: Path) -> str | None:
    """Trainings that start together get different folders."""
    words = [word for word in line("gymnasium", 400) if word not in ("--run", "r")]
    together = [Fork(folder, TRAIN, words) for _ in range(3)]
    codes = [process.wait() for process in together]
    names = sorted(path.name for path in (folder / "checkpoints").iterdir())
    return (
        None if (codes, names) == ([0, 0, 0], ["run1", "run2", "run3"]) else f"{codes} in {names}"
    )


def power_cut(random: Random, folder: Path) -> str | None:
    """SIGKILL, and every file loses, or has as zeros, what was never brought down to the disk."""
    synced = folder / "synced"

    def remember() -> None:
        fsync = os.fsync
        log = os.open(synced, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def logged(handle: int) -> None:
            fsync(handle)
            found = os.fstat(handle)
            os.write(log, f"{found.st_ino} {found.st_size}\n".encode())

        os.fsync = logged

    process = begun(folder, random, remember)
    process.send(signal.SIGKILL)
    process.wait()
    pairs = (text.split() for text in synced.read_text().splitlines()) if synced.exists() else ()
    kept = {int(inode): int(size) for inode, size in pairs}
    for path in (folder / "checkpoints").rglob("*"):
        if path.is_file() and path.name != ".lock":
            lose(path, kept.get(path.stat().st_ino, 0), random)
    return resumes(folder)


def lose(path: Path, kept: int, random: Random) -> None:
    """Cut a file after so many bytes, or make what follows zero."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(min(size, kept))
        if random.random() < 0.5:
            file.truncate(size)


def deleted(random: Random, folder: Path) -> str | None:
    """The run folder is removed in mid-run: said, and nothing is made anew by halves."""
    process = begun(folder, random)
    shutil.rmtree(folder / RUN, ignore_errors=True)
    code = process.wait()
    lines = process.err.splitlines()
    if "Traceback" in process.err or any(
        not text.startswith(("warning: ", "error: ")) for text in lines
    ):
        return f"exit code {code}: {process.err}"
    return broken(folder / RUN, 0)[0]


def read_only(random: Random, folder: Path) -> str | None:
    """The run folder becomes read-only in mid-run, or where it is to be made."""
    process = Fork(folder, TRAIN, line(random.choice(["native", "gymnasium"]), STEPS), obey)
    process.ends_within(random.uniform(0.0, 4.0))
    run = folder / RUN
    locked = (
        [run, *(path for path in run.rglob("*") if path.is_dir())] if run.exists() else [folder]
    )
    for place in locked:
        place.chmod(0o555)
    code = process.wait(60)
    for place in locked:
        place.chmod(0o755)
    if (
        code not in (0, 2, 3)
        or "Traceback" in process.err
        or len(set(told := process.err.splitlines())) < len(told)
    ):
        return f"exit code {code}: {process.err}"
    return resumes(folder)


def obey() -> None:
    """Root, too, is to heed permissions: https://man7.org/linux/man-pages/man2/capset.2.html"""
    version = (ctypes.c_uint32 * 2)(0x20080522, 0)
    none = (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset(version, none):
        raise OSError(ctypes.get_errno(), "capset")


def clock_back(random: Random, folder: Path) -> str | None:
    """The clock says another year at every sitting."""

    def another_year() -> None:
        shift = random.uniform(-3e9, 1e9)
        now = time.time
        time.time = lambda: max(0.0, now() + shift)

    process = begun(folder, random, another_year)
    process.send(signal.SIGTERM)
    code = process.wait(60)
    return (
        resumes(folder)
        if code in (0, 130) and not process.err
        else f"exit code {code}: {process.err}"
    )


KINDS = {
    kind.__name__: kind
    for kind in (signals, two_at_once, same_moment, power_cut, deleted, read_only, clock_back)
}

if __name__ == "__main__":
    flags = read_flags(__doc__ or "", tuple(KINDS))
    warm_up()
    TRAIN = script("train")
    failures = [
        torture(f"faults {kind}", flags.count, flags.seed, KINDS[kind]) for kind in flags.kind
    ]
    sys.exit(min(1, sum(failures)))
