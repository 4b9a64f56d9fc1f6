"""Run the scripts: exit codes, and one-line messages for expected errors."""

import contextlib
import os
import shlex
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from td3_robot.errors import EXTRAS, ConfigError, Td3RobotError, missing_package
from td3_robot.utils.output import finish_output, open_output
from td3_robot.utils.progress import show_progress
from td3_robot.utils.signals import exit_on_signal, interrupt_on_signal

STOPPED = 130  # exit code: a signal, after saving
SCRIPTS = {  # command -> its script at the root of a checkout
    "train": "train.py",
    "evaluate": "evaluate.py",
    "export": "export.py",
    "run": "run_policy.py",
    "sweep": "sweep.py",
}

_PACKAGE = Path(__file__).resolve().parents[1]


def run_script(main: Callable[[list[str]], int | None]) -> NoReturn:
    """Run a script's main on the command line and end the process with its exit code.

    Python's teardown is skipped, since it makes nanobind, which the viewer uses, print a page of
    "leaked" lines. So `main` must close what it opened.
    """
    output = open_output()
    interrupt_on_signal()
    of_many = os.environ.get("RANK", "0") != "0"  # torchrun's other processes report nothing
    try:
        with contextlib.nullcontext() if of_many else show_progress():
            code = exit_code(main, sys.argv[1:])
        exit_on_signal(code)  # it is done, whatever comes now
    except KeyboardInterrupt:
        code = STOPPED
    except Exception:  # a bug: the traceback is for whoever mends it
        traceback.print_exc()
        code = 1
    os._exit(finish_output(output, code))


def find_script(command: str) -> Path:
    """Return the file that Python runs to start a command in a process of its own."""
    script = _PACKAGE.parent / SCRIPTS[command]
    return script if script.is_file() else _PACKAGE / "commands" / f"{command}.py"


def get_command_line(command: str, *words: object) -> str:
    """Return how a user starts a command: by `td3-robot` or by its script, as this process was.

    Args:
        words: that follow; those that a shell would take apart are quoted.
    """
    start = f"python {SCRIPTS[command]}"
    if sys.argv[0].startswith("td3-robot ") or find_script(command).parent != _PACKAGE.parent:
        start = f"td3-robot {command}"
    return " ".join([start, *(shlex.quote(str(word)) for word in words)])


def get_program(command: str) -> str:
    """Return the name of a command in its own help: "train.py" or "td3-robot train"."""
    return get_command_line(command).removeprefix("python ")


def say(text: str) -> None:
    """Print a line; `run_script` reports in the end if the output cannot be written."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


def warn(text: str | None) -> None:
    """Print a warning, if any, to stderr."""
    if text:
        with contextlib.suppress(OSError):
            print(f"warning: {text}", file=sys.stderr)


def exit_code(main: Callable[[list[str]], int | None], argv: list[str]) -> int:
    """Run a script's main; print an expected error in one line, and return the exit code."""
    try:
        return main(argv) or 0
    except Td3RobotError as error:
        print("error:", error, file=sys.stderr)
        return error.exit_code
    except ImportError as error:
        package = (error.name or "").split(".")[0]
        if package not in EXTRAS:
            raise
        print("error:", missing_package("this", package), file=sys.stderr)
        return ConfigError.exit_code
    except KeyboardInterrupt:
        return STOPPED
