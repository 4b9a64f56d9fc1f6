"""Start the scripts of this repository from a benchmark."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_script(
    script: str,
    *words: str,
    folder: str | Path,
    launcher: Sequence[str] = (),
    tree: Path = ROOT,
    threads: int | None = None,
    quiet: bool = True,
) -> None:
    """Run a script such as train.py in a folder; exit with its output if it fails.

    Args:
        script: path in the tree.
        words: its command line.
        folder: working directory, where a run's checkpoints/ lies.
        launcher: arguments of Python before the script.
        tree: checkout of this repository, whose package the script imports.
        threads: OpenMP threads; by default those of the environment.
        quiet: show its output only if it fails.
    """
    command = [sys.executable, *launcher, str(tree / script), *words]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=quiet, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout or ''}\n{done.stderr or ''}")
