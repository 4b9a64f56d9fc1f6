"""A short run of each script in tests/torture; benchmarks/notes/torture-log.md has the long ones."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TORTURE = ROOT / "tests/torture"
# one after the other in one process: imports take longer than the attempts; seeds that draw short
# trainings
SHORT = [
    "exact_resume --count 1 --seed 47",
    "kills --count 1 --kind gymnasium",
    "full_disk --count 1 --seed 8",
    "faults --count 1 --kind power_cut --seed 5",
    "hostile_files --count 50 --kind command_line --kind dataset --kind checkpoint",
    "not_finite --count 3",
    "verified --count 3 --kind spoilt --kind constants",
    "viewer --count 40 --kind requests",
]
LONGER = [
    "faults --count 1",
    "full_disk --count 2",
    "hostile_files --count 25",
    "kills --count 2",
    "verified --count 2",
    "viewer --count 3",
]
EACH = f"""
import runpy, sys
sys.path.insert(0, {str(TORTURE)!r})
code = 0
for line in sys.argv[1:]:
    name, *sys.argv[1:] = line.split()
    try:
        runpy.run_path(f"{TORTURE}/{{name}}.py", run_name="__main__")
    except SystemExit as end:
        code |= bool(end.code)
sys.exit(code)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "lines", [SHORT, pytest.param(LONGER, marks=pytest.mark.slow)], ids=["short", "longer"]
)
def test_nothing_is_lost_and_nothing_runs(tmp_path, lines):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", EACH, *lines]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1800
    )
    said = [line for line in done.stdout.splitlines() if " attempts, " in line]
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(
        re.search(r": [0-9]+ attempts, 0 failures, [0-9]+ s, seed [0-9]+$", line) for line in said
    ), done.stdout
    for line in lines:
        assert any(told.startswith(NAMES.get(line.split()[0], line.split()[0])) for told in said), (
            done.stdout
        )


NAMES = {"hostile_files": "hostile"}  # as the scripts call themselves


def test_every_script_has_a_short_run():
    scripts = [path for path in TORTURE.glob("*.py") if "__main__" in path.read_text()]
    without = {"guided"}  # it needs atheris, 130 MB that nothing else asks for
    assert {path.stem for path in scripts} - without == {line.split()[0] for line in SHORT}
