"""xacro_child.py again and again, each time in a process of its own that is forked for it: a new
Python is dear.

Reads a request a line, as the child takes it, and answers with what the child writes, on a line.
"""

import io
import os
import resource
import sys

sys.path.insert(0, os.path.dirname(sys.argv[1]))

import xacro_child  # noqa: E402  # pyright: ignore[reportMissingImports]

while line := sys.stdin.readline():
    if child := os.fork():
        os.waitpid(child, 0)
        sys.stdout.write("\n")
        sys.stdout.flush()
        continue
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
    sys.stdin = io.StringIO(line)
    out = sys.stdout  # the child puts another in its place
    try:
        xacro_child.main()
        out.flush()
    finally:
        os._exit(0)
