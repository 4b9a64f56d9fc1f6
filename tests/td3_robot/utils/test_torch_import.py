"""The import of torch leaves the garbage collector as it was."""

import subprocess
import sys

import pytest

PROGRAM = """
import gc
from td3_robot.utils.torch_import import import_torch
gc.{}()
import_torch()
frozen = gc.get_freeze_count()
objects = [[] for _ in range(1_000)]
import_torch()
print(gc.isenabled(), frozen > 100_000, gc.get_freeze_count() <= frozen)
"""


@pytest.mark.parametrize("before, enabled", [("enable", True), ("disable", False)])
def test_the_collector_is_as_before_and_only_the_import_is_exempt(before, enabled):
    command = [sys.executable, "-c", PROGRAM.format(before)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.stdout.split() == [str(enabled), "True", "True"], result.stderr
