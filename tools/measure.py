"""Measure the code of both packages: `make measure`; `--check` fails where a limit is exceeded.

python tools/measure.py                  the counts of this checkout
python tools/measure.py --root ../other  those of another checkout, to compare
python tools/measure.py --check          exit code 1 and one line for each exceeded limit
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("td3_robot", "envs")
# First words of function names that count as verbs, predicates and conversions included.
VERBS = frozenset(
    """
    abort accept accumulate activate adapt add adjust advance aggregate align allocate allow
    analyse animate anneal annotate answer append apply approximate arm ask assemble assert
    assign attach await backpropagate backup backward balance batch begin believe bind blend
    bootstrap brake broadcast build bump cache calculate calibrate call cancel cast catch
    categorise categorize center change check choose claim clamp classify clean clear click
    clip clone close collate collect combine commit compare compile complete compose
    compress compute concat concatenate configure connect consume contain continue control
    convert copy correct count crash create crop damp deactivate decay decide decode
    decompose decorate deduplicate define delegate delete deliver derive describe
    deserialize destroy detach detect determine differentiate disable discard disconnect
    discover dispatch display disturb divide double download draw drive drop dump edit embed
    emit enable encode end ensure enter enumerate escape estimate evaluate examine exchange
    exclude execute exit expand expect explain explore export expose extend extract fail
    fall feed fetch fill filter finalize find finish fit fix flatten flip flush fold follow
    follows forbid force forecast forget format forward free freeze gather generate get give
    go grasp grow guard guess halve handle have heal hide hold identify ignore import
    include increase increment index infer inform initialise initialize inject insert
    inspect install integrate interpolate interrupt intersect invert invoke iter iterate
    join judge jump keep kill launch learn leave lerp lift limit linearise linearize list
    listen load locate lock log look lose maintain make match maximize measure merge
    minimise minimize mix modify monitor move multiply mute need negate normalise normalize
    notify observe open optimise optimize override pack pad park parse pass pause penalise
    penalize perform perturb pick plan play plot poll pop populate post predict prepare
    press prevent print process produce profile project propagate propose prune publish pull
    push put query quit quote raise randomise randomize read rebuild recall receive
    recompute record recover redirect reduce refer refill refine refresh refuse register
    reject relabel relaunch release reload remember remove rename render renew reorder
    repair repeat replace replay reply report request require rescale reset reshape resize
    resolve respond restart restore restrict resume retrieve retry return reuse reveal
    reverse revert rewind rewrite roll rotate route run sample save say scale scan scatter
    scroll search seed seek select send sense serialise serialize serve set shard shorten
    show shrink shuffle shut shutdown simplify simulate skip slice smooth snap solve sort
    specify spin split spread squeeze standardise standardize start steer step stop store
    stretch strip sub subsample subscribe subtract suggest sum summarise summarize suppress
    swap sweep switch sync synchronise synchronize take talk tell terminate test throttle
    throw tidy tie tighten toggle touch track train transfer transform translate transpose
    traverse trigger trim trip truncate try tune turn unflatten unlock unpack unregister
    unroll unscale unwind unwrap update upload use validate verify visit wait wake walk warm
    warn watch weigh wrap write yield zero
    is has
    """.split()
)
RELATIVE_HEAD = re.compile(r"(What|Whether|Where|How|Who|Whose|Which|When|Why)\b")
SEE_HEAD = re.compile(r"(See\b|The same\b)")
LIMITS = {"longest file": 400, "longest function": 60}
PER_PACKAGE = {
    "verb share [%]": ("at least", 60.0),
    "relative heads": ("at most", 0),
    "heads that say See or The same": ("at most", 0),
    "parallel assignments per 1,000 lines": ("at most", 3.0),
}


class Module(NamedTuple):
    """One file of code."""

    path: Path
    name: str  # dotted
    lines: list[str]
    tree: ast.Module


def read_modules(root: Path, package: str) -> list[Module]:
    """Read every Python file of a package."""
    modules = []
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        modules.append(Module(path, name, text.splitlines(), ast.parse(text)))
    return modules


def iter_functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function and method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def count_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function, those of its docstring left out."""
    first = function.body[0]
    documented = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if documented else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def is_counted(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether a name should be a verb: not of a property, nor of Python's own protocols."""
    if function.name.startswith("__") and function.name.endswith("__"):
        return False
    return not any(
        "property" in ast.dump(decorator) or "setter" in ast.dump(decorator)
        for decorator in function.decorator_list
    )


def count_verbs(modules: list[Module]) -> tuple[int, int]:
    """Count the functions whose first word is a verb, and all functions."""
    names = [f.name for m in modules for f in iter_functions(m.tree) if is_counted(f)]
    return sum(name.strip("_").split("_")[0].lower() in VERBS for name in names), len(names)


def list_odd_names(modules: list[Module]) -> list[str]:
    """List the functions whose first word is no verb, each with its place."""
    return [
        f"{m.name}.{f.name}"
        for m in modules
        for f in iter_functions(m.tree)
        if is_counted(f) and f.name.strip("_").split("_")[0].lower() not in VERBS
    ]


def list_heads(modules: list[Module], pattern: re.Pattern[str]) -> list[str]:
    """List the docstrings whose first line matches a pattern, each with its place."""
    found = []
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                text = ast.get_docstring(node)
                if text and pattern.match(text):
                    name = getattr(node, "name", "(module)")
                    found.append(f"{module.name}.{name}: {text.splitlines()[0]}")
    return found


def list_parallel_assignments(modules: list[Module]) -> list[str]:
    """List the places of `a, b = x, y`: as many targets as values, written side by side."""
    return [
        f"{module.path}:{node.lineno}"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and any(isinstance(target, ast.Tuple) for target in node.targets)
    ]


def iter_imports(module: Module, names: set[str]) -> Iterator[str]:
    """Yield every module of ours that a file imports, wherever in the file it does."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in names:
                    yield full
                elif node.module in names:
                    yield node.module


def find_rooms(modules: list[Module], package: str) -> dict[str, set[str]]:
    """Map each room, a file or folder directly below the package, to the rooms it imports."""

    def find_room(name: str) -> str:
        parts = name.removeprefix(package).strip(".").split(".")
        return parts[0] or "__init__"

    names = {module.name for module in modules}
    rooms: dict[str, set[str]] = {find_room(name): set() for name in names}
    for module in modules:
        here = find_room(module.name)
        rooms[here] |= {find_room(other) for other in iter_imports(module, names)} - {here}
    return rooms


def count_floors(rooms: dict[str, set[str]]) -> int:
    """Count the rooms on the longest way down; a circle counts as one floor."""
    heights: dict[str, int] = {}

    def measure_height(room: str, above: tuple[str, ...] = ()) -> int:
        if room in above:
            return 0
        if room not in heights:
            heights[room] = 1 + max(
                (measure_height(other, (*above, room)) for other in rooms[room]), default=0
            )
        return heights[room]

    return max(map(measure_height, rooms))


def measure_package(root: Path, package: str) -> dict[str, float | str]:
    """Measure one package."""
    modules = read_modules(root, package)
    lines = sum(len(module.lines) for module in modules)
    verbs, functions = count_verbs(modules)
    rooms = find_rooms(modules, package)
    longest = max(modules, key=lambda module: len(module.lines))
    lengths = [
        (count_lines(f), f"{m.name}.{f.name}") for m in modules for f in iter_functions(m.tree)
    ]
    parallel = len(list_parallel_assignments(modules))
    return {
        "lines": lines,
        "files": len(modules),
        "rooms": len(rooms),
        "floors": count_floors(rooms),
        "arrows": sum(map(len, rooms.values())),
        "functions": functions,
        "verb share [%]": round(100 * verbs / functions, 1),
        "relative heads": len(list_heads(modules, RELATIVE_HEAD)),
        "heads that say See or The same": len(list_heads(modules, SEE_HEAD)),
        "parallel assignments per 1,000 lines": round(1000 * parallel / lines, 1),
        "longest file": len(longest.lines),
        "longest function": max(lengths)[0],
        "which file": longest.name,
        "which function": max(lengths)[1],
    }


def find_exceeded(package: str, measured: dict[str, float | str]) -> Iterator[str]:
    """Yield one line for each limit that is exceeded."""
    for name, most in LIMITS.items():
        if float(measured[name]) > most:
            yield f"{package}: {name} is {measured[name]}, at most {most} are allowed"
    for name, (kind, limit) in PER_PACKAGE.items():
        value = float(measured[name])
        if value < limit if kind == "at least" else value > limit:
            yield f"{package}: {name} is {value:g}, {kind} {limit:g} is asked"


def main() -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=Path, default=here, help="the checkout to measure")
    parser.add_argument("--check", action="store_true", help="fail where a limit is exceeded")
    parser.add_argument("--list", choices=("names", "heads", "parallel"), help="say which they are")
    parser.add_argument("--under", default="", help="with --list: only below this dotted name")
    options = parser.parse_args()
    measured = {package: measure_package(options.root, package) for package in PACKAGES}
    if options.list:
        for package in PACKAGES:
            modules = [
                module
                for module in read_modules(options.root, package)
                if module.name.startswith(options.under)
            ]
            lists = {
                "names": list_odd_names(modules),
                "heads": list_heads(modules, RELATIVE_HEAD) + list_heads(modules, SEE_HEAD),
                "parallel": list_parallel_assignments(modules),
            }
            print(*lists[options.list], sep="\n")
        return 0
    if options.check:
        exceeded = [line for name in PACKAGES for line in find_exceeded(name, measured[name])]
        print(*exceeded, sep="\n", file=sys.stderr)
        return 1 if exceeded else 0
    width = max(map(len, next(iter(measured.values()))))
    print(f"{'':{width}}", *(f"{package:>34}" for package in PACKAGES))
    for name in measured[PACKAGES[0]]:
        print(f"{name:{width}}", *(f"{measured[package][name]!s:>34}" for package in PACKAGES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
