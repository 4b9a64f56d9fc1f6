"""Expand one xacro file, in a process of its own that can do nothing else.

xacro hands every ${...} to Python's eval, and its own guard against code does not hold: it looks at
the names of the outermost expression only. What stands between a file and this machine:

1. every expression is parsed first and refused unless it is arithmetic, text, look-ups and the
functions listed below;
2. from the first line of the file on, an audit hook (PEP 578) lets Python open files of the
   packages for reading and nothing more: no other file, no import, no process, no network;
3. environment variables are not given out, memory is limited here, and the parent ends the process
when time is up.

Reads {"file", "packages", "arguments"} as JSON from standard input; writes {"urdf": text} or
{"error": line}.
"""

import ast
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import xacro
import xacro.substitution_args as substitution
import yaml  # noqa: F401  xacro imports it when it is first needed, which is too late here
from defusedxml.expatbuilder import parseString
from ros_packages import RosPackages  # beside this file, which runs as a script

MAX_BYTES = 10_000_000  # of one file, and of the result
MAX_LINE = 400  # characters of a message
MAX_MEMORY = 2 << 30  # [bytes]
FUNCTIONS = {name for name in dir(math) if not name.startswith("_")}
FUNCTIONS |= {
    "abs",
    "all",
    "any",
    "bool",
    "float",
    "int",
    "len",
    "max",
    "min",
    "round",
    "str",
    "sum",
}
FUNCTIONS |= {"arg", "error", "fatal", "load_yaml", "message", "warning"}
NAMESPACES = ("math", "python", "xacro")
NODES = (
    *(
        ast.Expression,
        ast.Constant,
        ast.Name,
        ast.Load,
        ast.Call,
        ast.Attribute,
        ast.Subscript,
        ast.Slice,
    ),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.List, ast.Tuple, ast.Dict),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)
DATA = (str, int, float, list, tuple, dict, type(None))
# audit events, refused outside the packages
READING = ("open", "os.listdir", "os.scandir", "glob.glob")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
WALLED = {
    "import",
    "os",
    "subprocess",
    "socket",
    "ctypes",
    "shutil",
    "glob",
    "pty",
    "tempfile",
    "urllib",
    "winreg",
}


class Refused(Exception):
    """The file asks for something that a robot description has no need of."""


def check_expression(expression: str) -> None:
    """Raise Refused unless an expression can do no more than compute a value from values."""
    tree = ast.parse(expression.strip(), mode="eval")
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        allowed = isinstance(node, NODES)
        if isinstance(node, ast.Name):
            allowed = not node.id.startswith("__") and (
                id(node) not in called or node.id in FUNCTIONS
            )
        elif isinstance(node, ast.Attribute):
            of_namespace = isinstance(node.value, ast.Name) and node.value.id in NAMESPACES
            allowed = (
                node.attr in FUNCTIONS
                if of_namespace
                else not node.attr.startswith(("_", "format"))
            )
            allowed = allowed and (of_namespace or id(node) not in called)
        elif isinstance(node, ast.Call):
            allowed = isinstance(node.func, ast.Name | ast.Attribute) and not node.keywords
        if not allowed:
            raise Refused(
                f"xacro may not evaluate {ast.unparse(node)!r}: only arithmetic, text and look-ups,"
            )


def evaluate_guarded(expression: str, symbols, local=None, _eval=xacro.safe_eval):
    """Evaluate like xacro.safe_eval, but only checked expressions that yield data."""
    check_expression(expression)
    value = _eval(expression, symbols, local)
    if not isinstance(value, DATA):
        raise Refused(f"${{{expression}}} is a {type(value).__name__}, not a value")
    return value


def refuse_eval(expression: str, context) -> str:
    """Refuse $(eval ...)."""
    raise Refused(f"xacro may not run $(eval {expression}); write it as ${{...}}")


def refuse_environment(name: str) -> str:
    """Refuse $(env ...)."""
    raise Refused(f"xacro may not read the environment variable {name!r}")


def parse(text, filename: str):
    """Parse like xacro.parse, but without entities, and with unbound prefixes as they are."""
    try:
        with open(filename, "rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        xacro.filestack.pop()
        raise xacro.XacroException("cannot include a file:", exc=error) from None
    if len(text) > MAX_BYTES:
        raise Refused(f"{filename} has more than {MAX_BYTES // 1_000_000} MB")
    return parseString(text, namespaces=False, forbid_dtd=True)  # pyright: ignore[reportArgumentType]  bytes do too


def restrict_reading(roots: list[Path]) -> None:
    """Let Python, from now on, only read files under `roots`, a list that may grow."""

    def inside(name: Any) -> bool:
        path = Path(os.path.realpath(os.fsdecode(name)))
        return any(path.is_relative_to(root) for root in roots)

    def hook(event: str, args: tuple) -> None:
        if event in READING and isinstance(args[0], str | bytes | os.PathLike):
            if (event == "open" and args[2] & WRITING) or not inside(args[0]):
                package = ", ".join(map(str, roots))
                raise Refused(
                    f"outside the package folders xacro may not open {os.fsdecode(args[0])}; "
                    f"they are {package}"
                )
        elif event.split(".")[0] in WALLED:
            raise Refused(f"xacro may not use {event} of Python")

    sys.addaudithook(hook)


def expand(file: str, packages: dict[str, str], arguments: dict[str, str]) -> str:
    """Expand a xacro file to URDF text.

    Args:
        file: its path.
        packages: package name -> folder, as `RosPackages` takes them.
        arguments: values of the file's <xacro:arg>s.
    """
    known = RosPackages(Path(file), packages)
    roots = [known.own]

    def find(name: str) -> str:
        folder = known.find(name)
        if known.is_trusted(folder):
            roots.append(folder)
        return str(folder)

    xacro.safe_eval = evaluate_guarded
    xacro.parse = parse
    substitution._eval = refuse_eval
    substitution._eval_env = refuse_environment
    substitution._eval_find = find
    substitution._eval_optenv = lambda name, default="": default
    limit_memory()
    restrict_reading(roots)
    document: Any = xacro.process_file(file, mappings=arguments, verbosity=0)
    text = document.toxml()
    if len(text) > MAX_BYTES:
        raise Refused(f"it expands to more than {MAX_BYTES // 1_000_000} MB")
    return text


def limit_memory() -> None:
    """Limit the memory of this process, except on Windows, which has no such limit."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))


def explain_error(error: Any) -> str:
    """Explain an exception in one line; xacro wraps those of expressions and nested files."""
    cause = error
    while getattr(cause, "exc", None) is not None:
        cause = cause.exc
    if isinstance(cause, RecursionError):
        return "its macros, includes or elements are nested too deeply"
    if isinstance(cause, MemoryError):
        return "it expands to more than fits in memory"
    line = " ".join(str(error).split()) or type(error).__name__
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}..."


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    answers = sys.stdout
    sys.stdout = sys.stderr  # xacro prints messages of the file
    try:
        answer = {"urdf": expand(**request)}
    except Exception as error:
        answer = {"error": explain_error(error)}
    json.dump(answer, answers)


if __name__ == "__main__":
    main()
