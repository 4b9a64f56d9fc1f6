"""One training per seed, each in a process of its own, as many at a time as there are cores for."""

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
from td3_robot.sweep.relaunch import build_resume_command
from td3_robot.sweep.seed_summary import compute_spreads, format_table, plot_band, read_outcomes
from td3_robot.utils.console import STOPPED, get_command_line, say
from td3_robot.utils.output import UNWRITTEN
from td3_robot.utils.signals import stop_on_signal


def train_seeds(
    script: Path, words: Sequence[str], arguments: TrainArguments, trusted: Sequence[str] = ()
) -> int:
    """Train a run for each of `config.seeds`, in the folders seedN of one folder.

    Each run is trained by the command that a user would write for it, so it is looked at and
    resumed like any other; a seed that fails costs the others nothing. In the end the folder has a
    `summary.json` with mean and spread of those that finished, and their `learning_curve.png`.

    Args:
        script: what trains one run.
        words: its command line, which each run gets too.
        arguments: what it says.
        trusted: words of it that a resume needs again, as they name code to run.

    Returns:
        The exit code: 0 where all have finished.

    Raises:
        ConfigError, CheckpointError: the folder cannot be had.
    """
    config = arguments.config
    if config.run is not None and "/" in config.run:
        raise ConfigError(f"run {config.run!r} with seeds is a folder of runs: its name has no /")
    if config.mlflow:
        open_store()  # made by one: seeds that begin at once would all make it
    folder = arguments.resume or (
        claim_run(RUNS, config.run) if config.run is not None else make_next_run(RUNS)
    )
    at_once = min(max(1, count_cores() // config.threads), len(config.seeds))
    with lock_run(folder):
        save_config(config, folder / CONFIG_NAME, arguments.environment)
        commands = [
            [sys.executable, str(script), *_build_words(words, folder, seed)]
            for seed in config.seeds
        ]
        listed = ", ".join(map(str, config.seeds))
        say(f"seeds {listed} in {folder}, {at_once} in parallel, threads of each: {config.threads}")
        processes = SeedProcesses(config.threads)
        with ThreadPoolExecutor(at_once) as pool, stop_on_signal(processes.stop):
            try:
                codes = dict(zip(config.seeds, pool.map(processes.run, config.seeds, commands)))
            finally:
                processes.stop()  # a second signal asks again
        # not of an earlier session
        done = read_outcomes(
            folder, [seed for seed, code in codes.items() if code in (0, UNWRITTEN)]
        )
        written = _write_report(folder, arguments, done)
    again = get_command_line("train", "--resume", run_name(folder), *trusted)
    end = f"the curve is in {folder}" if len(done) == len(codes) else f"continue with: {again}"
    return _print_end(codes, end) or (0 if written else UNWRITTEN)


def count_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _build_words(words: Sequence[str], folder: Path, seed: int) -> list[str]:
    """Return the command line of one seed."""
    begin = ["--resume=null", f"--config={folder / CONFIG_NAME}", f"--seed={seed}"]
    return build_resume_command(folder / f"seed{seed}", [*words, "--seeds="], begin)


class SeedProcesses:
    """Processes that are stopped together; their lines are printed, each with its seed."""

    def __init__(self, threads: int):
        self._environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        self._running: list[subprocess.Popen[str]] = []
        # by whichever seed: what all say, headings and notes, is passed on once
        self._said: set[str] = set()
        self._saying = threading.Lock()
        self._stopped = False

    def run(self, seed: int, command: list[str]) -> int:
        """Run one to its end, in a thread; return its exit code, or 128 + N after signal N."""
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
            target=_print_lines, args=(not_none(process.stderr), seed, sys.stderr)
        )
        errors.start()
        _print_lines(self._filter_printed(not_none(process.stdout)), seed, sys.stdout)
        errors.join()
        code = process.wait()
        if code < 0 and not self._stopped:
            _print_line(f"seed {seed}: ended by {signal.Signals(-code).name}", sys.stderr)
        return code if code >= 0 else 128 - code

    def stop(self) -> None:
        """Make all save and end, and start no more."""
        self._stopped = True
        for process in self._running:
            process.send_signal(signal.SIGINT)

    def _filter_printed(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            with self._saying:
                new = line not in self._said
                self._said.add(line)
            if new:
                yield line


def _print_lines(lines: Iterable[str], seed: int, to: TextIO) -> None:
    """Print all lines of one seed."""
    for line in lines:
        _print_line(f"seed {seed}: {line.rstrip()}", to)


def _print_line(line: str, to: TextIO) -> None:
    with contextlib.suppress(OSError):  # whoever reads along may have left
        to.write(f"{line}\n")  # at once: `print` writes the end of a line by itself
        to.flush()


def _write_report(folder: Path, arguments: TrainArguments, done: dict[int, dict[str, Any]]) -> bool:
    """Print table, write summary and curve of the finished seeds; return whether that succeeded."""
    if not done:
        return True
    say("\n".join(format_table(done)))
    seeds = arguments.config.seeds
    whole = {"seeds": list(seeds), "finished": len(done) == len(seeds)}
    write_summary(folder, {**arguments.environment.metadata, **compute_spreads(done), **whole})
    trackers = Trackers()
    trackers.try_write("the curve", plot_band, folder, list(done))
    return not trackers.failed


def _print_end(codes: dict[int, int], end: str) -> int:
    """Print which seeds have failed, and a last line; return the exit code."""
    failed = {seed: code for seed, code in codes.items() if code not in (0, STOPPED, UNWRITTEN)}
    if failed:
        _print_line(
            f"error: {len(failed)} of {len(codes)} seeds failed: {', '.join(map(str, failed))}",
            sys.stderr,
        )
    say(end)
    return next(iter(failed.values()), max(codes.values()))
