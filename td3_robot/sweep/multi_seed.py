"""One training for each of several seeds, each a process of its own, as many at once as there are
cores for.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

from td3_robot.checkpoint import RUNS, claim_run, lock_run, make_next_run, run_name
from td3_robot.checkpoint.summary import write_summary
from td3_robot.cli.arguments import CONFIG_NAME, TrainArguments, save_config
from td3_robot.errors import ConfigError, not_none
from td3_robot.loggers.base import Trackers
from td3_robot.loggers.mlflow import open_store
from td3_robot.sweep.relaunch import resume_command
from td3_robot.sweep.seed_summary import finished, plot_band, spreads, table
from td3_robot.utils.console import STOPPED, UNWRITTEN, say
from td3_robot.utils.signals import stop_on_signal


def train_seeds(script: Path, words: Sequence[str], arguments: TrainArguments) -> int:
    """Train a run for each of `config.seeds`, in the folders seedN of one folder.

    Each run is trained by the command that a user would write for it, so it is looked at and
    resumed like any other; a seed that fails costs the others nothing. In the end the folder has a
    `summary.json` with mean and spread of those that finished, and their `learning_curve.png`.

    Args:
        script: what trains one run.
        words: its command line, which each run gets too.
        arguments: what it says.

    Returns:
        The exit code: 0 where all have finished.

    Raises:
        ConfigError, CheckpointError: the folder cannot be had.
    """
    config = arguments.config
    if config.run is not None and "/" in config.run:
        raise ConfigError(f"run {config.run!r} with seeds is a folder of runs: its name has no /")
    folder = arguments.resume or (
        claim_run(RUNS, config.run) if config.run is not None else make_next_run(RUNS)
    )
    at_once = min(max(1, cores() // config.threads), len(config.seeds))
    with lock_run(folder):
        save_config(config, folder / CONFIG_NAME, arguments.environment)
        if config.mlflow:
            open_store()  # made by one: seeds that begin at once would all make it
        commands = [
            [sys.executable, str(script), *_own(words, folder, seed)] for seed in config.seeds
        ]
        listed = ", ".join(map(str, config.seeds))
        say(f"seeds {listed} in {folder}, {at_once} at once, threads of each: {config.threads}")
        crew = _Crew(config.threads)
        with ThreadPoolExecutor(at_once) as pool, stop_on_signal(crew.stop):
            try:
                codes = dict(zip(config.seeds, pool.map(crew.run, config.seeds, commands)))
            finally:
                crew.stop()  # a second signal asks again
        done = finished(
            folder, [seed for seed, code in codes.items() if code in (0, UNWRITTEN)]
        )  # not of a sitting before
        written = _report(folder, arguments, done)
    return _end(folder, codes, len(done) == len(codes)) or (0 if written else UNWRITTEN)


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _own(words: Sequence[str], folder: Path, seed: int) -> list[str]:
    """The command line of one seed."""
    begin = ["--resume=null", f"--config={folder / CONFIG_NAME}", f"--seed={seed}"]
    return resume_command(folder / f"seed{seed}", [*words, "--seeds="], begin)


class _Crew:
    """Processes that are stopped together; what they print is passed on, each line with its
    seed.
    """

    def __init__(self, threads: int):
        self._environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        self._running: list[subprocess.Popen[str]] = []
        self._said: set[str] = (
            set()
        )  # by whichever seed: what all say, headings and notes, is passed on once
        self._saying = threading.Lock()
        self._stopped = False

    def run(self, seed: int, command: list[str]) -> int:
        """Run one to its end, in a thread of its own. Returns its exit code, or as a shell tells a
        signal.
        """
        if self._stopped:
            return STOPPED
        pipes: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        process = subprocess.Popen(command, text=True, env=self._environment, **pipes)
        self._running.append(process)
        if self._stopped:  # just now
            process.send_signal(signal.SIGINT)
        errors = threading.Thread(
            target=_pass_on, args=(not_none(process.stderr), seed, sys.stderr)
        )
        errors.start()
        _pass_on(self._new(not_none(process.stdout)), seed, sys.stdout)
        errors.join()
        code = process.wait()
        if code < 0 and not self._stopped:
            _tell(f"seed {seed}: ended by {signal.Signals(-code).name}", sys.stderr)
        return code if code >= 0 else 128 - code

    def stop(self) -> None:
        """Ask all to save and end; no more are begun."""
        self._stopped = True
        for process in self._running:
            process.send_signal(signal.SIGINT)

    def _new(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            with self._saying:
                new = line not in self._said
                self._said.add(line)
            if new:
                yield line


def _pass_on(lines: Iterable[str], seed: int, to: TextIO) -> None:
    """Print the lines of one seed, to the last."""
    for line in lines:
        _tell(f"seed {seed}: {line.rstrip()}", to)


def _tell(line: str, to: TextIO) -> None:
    with contextlib.suppress(OSError):  # whoever reads along may have left
        print(line, file=to, flush=True)


def _report(folder: Path, arguments: TrainArguments, done: dict[int, dict[str, Any]]) -> bool:
    """Table, summary and picture of the seeds that have finished. Returns whether all could be
    written.
    """
    if not done:
        return True
    say("\n".join(table(done)))
    seeds = arguments.config.seeds
    whole = {"seeds": list(seeds), "finished": len(done) == len(seeds)}
    write_summary(folder, {**arguments.environment.metadata, **spreads(done), **whole})
    trackers = Trackers()
    trackers.try_write("the curve", plot_band, folder, list(done))
    return not trackers.failed


def _end(folder: Path, codes: dict[int, int], finished: bool) -> int:
    """Say which seeds have failed, and how to go on. Returns the exit code."""
    failed = {seed: code for seed, code in codes.items() if code not in (0, STOPPED, UNWRITTEN)}
    if failed:
        _tell(
            f"error: {len(failed)} of {len(codes)} seeds failed: {', '.join(map(str, failed))}",
            sys.stderr,
        )
    say(
        f"the curve is in {folder}"
        if finished
        else f"go on with: python train.py --resume {run_name(folder)}"
    )
    return next(iter(failed.values()), max(codes.values()))
