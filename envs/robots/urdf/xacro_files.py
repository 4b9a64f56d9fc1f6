"""Turn a xacro file into URDF text, without trusting the file."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from td3_robot.errors import ConfigError

_CHILD = Path(__file__).with_name("xacro_child.py")
_TIME_LIMIT = 20.0  # [s]; real files take well under one
# all that the child gets to see
_KEPT = ("ROS_PACKAGE_PATH", "AMENT_PREFIX_PATH", "SYSTEMROOT", "LD_LIBRARY_PATH")


def expand_xacro(
    path: Path,
    packages: Mapping[str, str | Path] | None = None,
    arguments: Mapping[str, object] | None = None,
) -> str:
    """Expand a xacro file to URDF text.

    Args:
        path: the file.
        packages: package name -> folder, for those that are not found by themselves.
        arguments: values of the file's <xacro:arg>s.

    Raises:
        ConfigError: xacro cannot expand it, or it asks for more than a robot description needs:
            Python code, files outside its packages, environment variables, entities, or more than
            20 s or 2 GB.
    """
    request = {
        "file": str(path.resolve()),
        "packages": {name: str(folder) for name, folder in (packages or {}).items()},
        "arguments": {name: str(value) for name, value in (arguments or {}).items()},
    }
    try:
        done = subprocess.run(
            [sys.executable, "-E", "-s", str(_CHILD)],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=_TIME_LIMIT,
            env={name: os.environ[name] for name in _KEPT if name in os.environ}
            | {"PYTHONIOENCODING": "utf-8"},
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{path}: xacro took more than {_TIME_LIMIT:.0f} s") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:  # the child was killed, or has no xacro
        last = (
            done.stderr.strip().splitlines() or [f"it stopped with exit code {done.returncode}"]
        )[-1]
        raise ConfigError(f"{path}: xacro failed: {last}") from None
    if "error" in answer:
        raise ConfigError(f"{path}: {answer['error']}")
    return answer["urdf"]
