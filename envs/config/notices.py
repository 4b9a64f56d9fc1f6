"""Warnings that are worth a line, and no second one."""

import contextlib
import functools
import sys


@functools.cache
def warn_once(text: str) -> None:
    """Print a warning to stderr, unless this process has printed it before."""
    with contextlib.suppress(OSError):
        print(f"warning: {text}", file=sys.stderr)
