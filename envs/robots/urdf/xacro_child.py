"""Expand one xacro file, in a process of its own that can do nothing else.

xacro hands every ${...} to Python's eval, and its own guard against code does not hold: it looks at
the names of the outermost expression only. What stands between a file and this machine:

1. every expression is parsed first and refused unless it is arithmetic, text, look-ups and the
   functions and methods listed below;
2. from the first line of the file on, an audit hook (PEP 578) lets Python open files of the
   packages for reading and nothing more: no other file, no import, no process, no network. While a
   package is searched, folders may be listed and the names in their package.xml read;
3. environment variables are not given out, memory is limited here, and the parent ends the process
when time is up.

Reads {"file", "packages", "arguments"} as JSON from standard input; writes {"urdf": text} or
{"error": line}.
"""

import ast
import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import xacro
import xacro.substitution_args as substitution
import yaml  # noqa: F401  xacro imports it when it is first needed, which is too late here
from defusedxml.expatbuilder import parseString
from ros_packages import MANIFEST, RosPackages  # beside this file, which runs as a script

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
FUNCTIONS |= {"dict", "list", "range", "sorted", "tuple"}
FUNCTIONS |= {"arg", "error", "fatal", "load_yaml", "message", "tokenize", "warning"}
# of text, dictionaries and lists: they compute, and change nothing
METHODS = {"capitalize", "count", "endswith", "find", "index", "isalnum", "isalpha", "isdigit"}
METHODS |= {"islower", "isspace", "isupper", "join", "lower", "lstrip", "partition", "removeprefix"}
METHODS |= {"removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split"}
METHODS |= {"splitlines", "startswith", "strip", "title", "upper", "zfill"}
METHODS |= {"copy", "get", "items", "keys", "values"}
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
        ast.keyword,
    ),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.List, ast.Tuple, ast.Dict),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)
UNDEFINED = re.compile(r"Undefined substitution argument (\S+)")
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
            if id(node) in called and not of_namespace:
                allowed = node.attr in METHODS
        elif isinstance(node, ast.Call):
            names_keys = isinstance(node.func, ast.Name) and node.func.id == "dict"
            allowed = isinstance(node.func, ast.Name | ast.Attribute)
            allowed = allowed and (names_keys or not node.keywords)
        elif isinstance(node, ast.keyword):  # of dict alone, see above
            allowed = node.arg is not None and not node.arg.startswith("__")
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


class Expansion:
    """The knowledge of a file while it is expanded.

    Args:
        file: its path.
        packages: package name -> folder, as `RosPackages` takes them.
    """

    def __init__(self, file: str, packages: dict[str, str]):
        self._packages = RosPackages(Path(file), packages)
        self.roots = [self._packages.own]  # folders that may be read
        self.searching = False  # a package
        self.missing: list[str] = []  # packages that were not found
        self.declared: list[str] = []  # arguments
        self.used: set[str] = set()  # arguments that the file asked for
        self.values: dict[str, str] = {}  # of all arguments

    def find(self, name: str) -> str:
        """Find a package for $(find ...), and let its files be read."""
        self.searching = True
        try:
            folder = self._packages.locate(name)
        finally:
            self.searching = False
        if folder is None:
            self.missing.append(name)
            folder = self._packages.own
        if self._packages.is_trusted(folder):
            self.roots.append(folder)
        return str(folder)

    def get_argument(self, name: str, args: dict[str, str]) -> str:
        """Return the value of an argument for $(arg ...)."""
        self.used.add(name)
        self.values = args
        if name not in args:
            raise substitution.ArgException(name)
        return args[name]

    def parse(self, text, filename: str):
        """Parse like xacro.parse, but without entities, and with unbound prefixes as they are."""
        try:
            with open(filename, "rb") as file:
                text = file.read(MAX_BYTES + 1)
        except OSError as error:
            xacro.filestack.pop()
            raise xacro.XacroException("cannot include a file:", exc=error) from None
        if len(text) > MAX_BYTES:
            raise Refused(f"{filename} has more than {MAX_BYTES // 1_000_000} MB")
        document = parseString(text, namespaces=False, forbid_dtd=True)  # pyright: ignore[reportArgumentType]  bytes do too
        for element in document.getElementsByTagName("xacro:arg"):
            if (name := element.getAttribute("name")) not in self.declared:
                self.declared.append(name)
        return document

    def restrict_reading(self) -> None:
        """Let Python, from now on, only read files under `roots`, and search packages."""

        def is_inside(name: Any) -> bool:
            path = Path(os.path.realpath(os.fsdecode(name)))
            return any(path.is_relative_to(root) for root in self.roots)

        def is_searched(event: str, name: Any) -> bool:
            listed = event in ("os.listdir", "os.scandir")
            return self.searching and (listed or os.path.basename(os.fsdecode(name)) == MANIFEST)

        def hook(event: str, args: tuple) -> None:
            if event in READING and isinstance(args[0], str | bytes | os.PathLike):
                if (event == "open" and args[2] & WRITING) or not (
                    is_inside(args[0]) or is_searched(event, args[0])
                ):
                    package = ", ".join(map(str, self.roots))
                    raise Refused(
                        f"outside the package folders xacro may not open {os.fsdecode(args[0])}; "
                        f"they are {package}"
                    )
            elif event.split(".")[0] in WALLED:
                raise Refused(f"xacro may not use {event} of Python")

        sys.addaudithook(hook)

    def explain_error(self, error: Any) -> str:
        """Explain an exception in one line; xacro wraps those of expressions and nested files."""
        cause = error
        while getattr(cause, "exc", None) is not None:
            cause = cause.exc
        if isinstance(cause, RecursionError):
            return "its macros, includes or elements are nested too deeply"
        if isinstance(cause, MemoryError):
            return "it expands to more than fits in memory"
        if isinstance(cause, OSError) and self.missing:
            return (
                f"package {self.missing[-1]!r} is not found; put it into the workspace, or its "
                "folder into ROS_PACKAGE_PATH, which needs no ROS"
            )
        if isinstance(cause, FileNotFoundError) and (empty := self._list_empty()):
            names = " or ".join(f"--xacro {name}=VALUE" for name in empty)
            return f"there is no {cause.filename}; it may need {names}, which is empty"
        line = " ".join(str(error).split()) or type(error).__name__
        if line.startswith("<class "):  # of $(...), whose message xacro repeats after its type
            line = " ".join(str(cause).split())
        if match := UNDEFINED.search(line):
            return f"needs --xacro {match[1]}=VALUE; {self._describe_arguments()}"
        return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}..."

    def check_arguments(self, given: dict[str, str]) -> None:
        """Refuse a value for an argument that the file does not have."""
        for name in given:
            if name not in self.declared and name not in self.used:
                raise Refused(f"has no argument {name!r}; {self._describe_arguments()}")

    def _list_empty(self) -> list[str]:
        """List the arguments that the file asked for and found empty."""
        return [name for name in self.declared if name in self.used and not self.values.get(name)]

    def _describe_arguments(self) -> str:
        return f"it takes {', '.join(self.declared) or 'none'}"


def expand(expansion: Expansion, file: str, arguments: dict[str, str]) -> str:
    """Expand a xacro file to URDF text.

    Args:
        file: its path.
        arguments: values of the file's <xacro:arg>s.
    """
    xacro.safe_eval = evaluate_guarded
    xacro.parse = expansion.parse
    substitution._eval = refuse_eval
    substitution._eval_env = refuse_environment
    substitution._eval_find = expansion.find
    substitution._eval_arg = expansion.get_argument
    substitution._eval_optenv = lambda name, default="": default
    limit_memory()
    expansion.restrict_reading()
    document: Any = xacro.process_file(file, mappings=arguments, verbosity=0)
    expansion.check_arguments(arguments)
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


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    answers = sys.stdout
    sys.stdout = sys.stderr  # xacro prints messages of the file
    expansion = Expansion(request["file"], request["packages"])
    try:
        answer = {"urdf": expand(expansion, request["file"], request["arguments"])}
    except Exception as error:
        answer = {"error": expansion.explain_error(error)}
    json.dump(answer, answers)


if __name__ == "__main__":
    main()
