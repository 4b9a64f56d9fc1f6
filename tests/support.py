"""Helpers that several test files share."""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from packaging.version import Version

from envs.command_line import EvaluateFlags, TrainFlags
from envs.config.env_options import EnvOptions
from envs.robots import shipped_robots
from envs.tasks.registry import list_tasks
from td3_robot.cli.arguments import _Start
from td3_robot.config.run import Config
from td3_robot.config.schema import Schema, make_schema
from td3_robot.errors import ConfigError
from td3_robot.utils.console import SCRIPTS

ROOT = Path(__file__).resolve().parent.parent

_HAS_MUJOCO = importlib.util.find_spec("mujoco") is not None
# gymnasium-robotics' Fetch cannot be made with a newer MuJoCo
needs_fetch = pytest.mark.skipif(
    _HAS_MUJOCO and Version(importlib.metadata.version("mujoco")) >= Version("3.12"),
    reason="the extra fetch needs MuJoCo below 3.12",
)


def mark_slow(task: str, value: Any) -> Any:
    """Return a parameter of a test, or its tuple, marked as slow if the task has slow scenes."""
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.slow if task == "reach_moving" else ())


def each_task(*left_out: str) -> list[Any]:
    """List the tasks of the kinematic engine as parameters of a test."""
    return [mark_slow(task, task) for task in list_tasks("kinematic") if task not in left_out]


def mark_robot(robot: str, value: Any) -> Any:
    """Return a parameter of a test, or its tuple, marked as slow for all robots but three."""
    values = value if isinstance(value, tuple) else (value,)
    marks = () if robot in ("panda", "ur5e", "wx250s") else pytest.mark.slow
    return pytest.param(*values, marks=marks)


def each_robot() -> list[Any]:
    """List the robots that ship as parameters of a test."""
    return [mark_robot(robot, robot) for robot in shipped_robots()]


def get_refusal(call, *args, **options) -> str:
    """Return the message, one line, of the ConfigError that a call raises."""
    with pytest.raises(ConfigError) as caught:
        call(*args, **options)
    assert str(caught.value).isprintable()
    return str(caught.value)


def get_file_refusal(read: Callable, path: Path, *args, **options) -> str:
    """Return the message of the ConfigError that reading a file raises, without its path."""
    message = get_refusal(read, path, *args, **options)
    assert message.startswith(f"{path}: "), message
    return message.removeprefix(f"{path}: ")


def wait_for(check: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait until a check returns something true, and return that."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := check():
            return found
        time.sleep(0.005)
    raise AssertionError(f"it did not come in {seconds} s")


def run_script(
    cwd: Path, name: str, *flags: str, timeout: float = 240, **environment: str
) -> subprocess.CompletedProcess:
    """Run a script of the repository, such as "train", in a folder."""
    command = [sys.executable, str(ROOT / f"{name}.py"), *flags]
    variables = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    return subprocess.run(
        command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=timeout
    )


def drop_progress(text: str) -> str:
    """Return a stderr without the lines of progress that a busy machine makes a command print."""
    return re.sub(r"^[\w ,.]+: .*\d+ s\b.*\n", "", text, flags=re.MULTILINE)


def load_script(path: str) -> ModuleType:
    """Import a script of the repository, such as "docs/make_api.py", as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_command(name: str) -> ModuleType:
    """Import what a script at the root runs, such as "run_policy"."""
    command = next(key for key, script in SCRIPTS.items() if script == f"{name}.py")
    return importlib.import_module(f"td3_robot.commands.{command}")


@contextlib.contextmanager
def set_default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Give torch another default dtype in the block, as a plugin of a user may."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def make_column(*values: float) -> torch.Tensor:
    """Return values as a column (N, 1)."""
    return torch.tensor(values)[:, None]


def make_command_schema(script: str) -> Schema:
    """Return the real parser of a script, such as "evaluate.py"."""
    if script == "train.py":
        classes = (EnvOptions, _Start, TrainFlags, Config)
    elif script == "evaluate.py":
        classes = (EvaluateFlags,)
    elif script == "sweep.py":
        classes = (load_command("sweep").SweepFlags,)
    else:
        classes = (load_command(script.removesuffix(".py")).Arguments,)
    return make_schema(script, "", *classes)
