"""A short run of each script in tests/torture; docs/reliability.md has the long ones."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHORT = {
    "exact_resume": "--count 1 --seed 1",
    "kills": "--count 2 --kind native",
    "faults": "--count 1 --kind signals",
    "hostile_files": "--count 50 --kind command_line --kind dataset",
    "viewer": "--count 40 --kind requests",
}
LONGER = {
    "full_disk": "--count 2",
    "faults": "--count 1",
    "hostile_files": "--count 25",
    "viewer": "--count 3",
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "name, flags", [*SHORT.items(), *(pytest.param(*item, marks=pytest.mark.slow) for item in LONGER.items())]
)
def test_nothing_is_lost_and_nothing_runs(tmp_path, name, flags):
    command = [sys.executable, str(ROOT / f"tests/torture/{name}.py"), *flags.split()]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1800)
    lines = [line for line in done.stdout.splitlines() if " attempts, " in line]
    assert done.returncode == 0 and lines, done.stdout + done.stderr
    assert all(re.search(r": [0-9]+ attempts, 0 failures, [0-9]+ s, seed [01]$", line) for line in lines), done.stdout


def test_every_script_has_a_short_run():
    scripts = [path for path in (ROOT / "tests/torture").glob("*.py") if "__main__" in path.read_text()]
    assert {path.stem for path in scripts} == {*SHORT, *LONGER}
