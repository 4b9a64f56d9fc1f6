"""How the scripts end: exit codes, and one line for an error that was made on purpose."""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from td3_robot.errors import Td3RobotError


def cli(main: Callable[[list[str]], int | None]) -> NoReturn:
    """Run a script's main on the command line and end the process with its exit code.

    Python's own teardown is left out: it makes nanobind, which a viewer brings along, print a page of "leaked" lines.
    So `main` closes what it opened.
    """
    try:
        code = exit_code(main, sys.argv[1:])
    except Exception:  # a bug: the traceback is for whoever mends it
        traceback.print_exc()
        code = 1
    with contextlib.suppress(BrokenPipeError):  # the reader, `head` for one, has seen enough
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def exit_code(main: Callable[[list[str]], int | None], argv: list[str]) -> int:
    """Run a script's main; an error made on purpose becomes one line on stderr, Ctrl-C the exit code 130."""
    try:
        return main(argv) or 0
    except Td3RobotError as error:
        print("error:", " ".join(str(error).splitlines()), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # what reads our output, `head` for one, has seen enough
        return 0
