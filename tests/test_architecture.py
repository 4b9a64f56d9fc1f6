"""Who may know whom: the layers of design and code, read from the imports themselves."""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [*(ROOT / "td3_robot").rglob("*.py"), *(ROOT / "envs").rglob("*.py")]


def name_of(path: Path) -> str:
    """envs/tasks/reach.py -> envs.tasks.reach; a package's own file has the name of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path) for path in SOURCES}


def imports_of(path: Path) -> set[str]:
    """Every module of ours that a file imports, wherever in the file it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in NAMES else node.module)
    return {name for name in found if name.split(".")[0] in ("td3_robot", "envs", "train", "evaluate")}


GRAPH = {name_of(path): imports_of(path) for path in SOURCES}


def reached_from(name: str) -> set[str]:
    """What a module imports, directly or through others."""
    seen, waiting = set(), [name]
    while waiting:
        for other in GRAPH.get(waiting.pop(), ()):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


def test_the_parser_sees_imports():
    assert {"td3_robot.networks", "td3_robot.losses"} <= GRAPH["td3_robot.agent"]
    assert "envs.simulation.kinematic" in GRAPH["envs.arm_env"] and "td3_robot.vec_env" in GRAPH["envs.arm_env"]


def test_every_import_of_ours_exists():
    assert set().union(*GRAPH.values()) <= NAMES


def test_the_learning_half_never_heard_of_a_robot():
    learning = [path for path in SOURCES if name_of(path).startswith("td3_robot")]
    assert [path.name for path in learning if any(name.startswith("envs") for name in imports_of(path))] == []
    texts = {
        path.name: re.sub(r"td3[_-]?robot", "", path.read_text(), flags=re.IGNORECASE)
        for path in learning
        if "deploy" not in path.parts  # a room of its own, for robots, which knows nothing of the learner
    }
    robotics = re.compile("robot|gripper|urdf|swift|spatialmath|panda", re.IGNORECASE)
    assert {name: found[0] for name, text in texts.items() if (found := robotics.search(text))} == {}


def test_the_simulating_half_knows_the_seam_alone():
    seam = {"td3_robot.vec_env", "td3_robot.evaluation", "td3_robot.errors"}
    strangers = {
        name: others
        for name in GRAPH
        if name.startswith("envs") and (others := {i for i in GRAPH[name] if i.startswith("td3_robot")} - seam)
    }
    assert strangers == {}
    assert reached_from("td3_robot.vec_env") == reached_from("td3_robot.errors") == set()
    assert reached_from("td3_robot.evaluation") <= seam | {"td3_robot.seeds"}  # both halves measure


DEPLOYED = [path for path in SOURCES if name_of(path).startswith("td3_robot.deploy")]
VENDORS = {"rtde_control", "rtde_receive", "franky", "rclpy", "std_msgs", "sensor_msgs"}  # each in its adapter alone


def test_what_is_deployed_imports_nothing_else():
    """So that it can be copied onto a robot's computer: the standard library, numpy and onnxruntime."""
    allowed = set(sys.stdlib_module_names) | {"numpy", "onnxruntime", "td3_robot"}
    for path in DEPLOYED:
        assert all(name.startswith("td3_robot.deploy") for name in imports_of(path)), path.name
        modules = {n.module for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)}
        modules |= {a.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Import) for a in n.names}
        strangers = {module.split(".")[0] for module in modules} - allowed
        assert strangers <= (VENDORS if "adapters" in path.parts else set()), f"{path.name} imports {strangers}"


def test_what_is_deployed_is_imported_without_the_rest():
    names = [name_of(path) for path in DEPLOYED if path.stem not in ("ur_rtde_arm", "franky_arm", "ros2_arm")]
    script = (
        "import sys, importlib\n"
        "for name in ('torch', 'roboticstoolbox', 'spatialmath', 'yaml', 'envs', 'td3_robot.errors', 'gymnasium'):\n"
        "    sys.modules[name] = None\n"  # importing it raises ImportError
        f"for name in {names}: importlib.import_module(name)\n"
        "from td3_robot.deploy import SafetyFilter\n"
        "safe = SafetyFilter.for_robot('panda'); safe.reset(safe.robot.home); print(safe([0.1] * 7).shape)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "(7,)", done.stderr


def test_no_module_imports_a_script():
    assert not {"train", "evaluate"} & set().union(*GRAPH.values())


def test_imports_run_one_way():
    graphlib.TopologicalSorter(GRAPH).prepare()  # raises CycleError where they go round


LAYERS = [["errors"], ["config", "vec_env"], ["networks", "losses", "replay"], ["agent"], ["trainer"]]


def test_no_lower_layer_of_the_learner_reaches_up():
    layers = [{f"td3_robot.{name}" for name in layer} for layer in LAYERS]
    assert set().union(*layers) <= NAMES, "a layer is gone"
    for height, layer in enumerate(layers):
        above = set().union(*layers[height:])
        for name in layer:
            assert not reached_from(name) & above, f"{name} reaches {reached_from(name) & above}"


FLOORS = (  # of envs, from the ground up: a room imports from itself and from floors below it, nothing else
    *(
        "values",
        "options",
        "kinematics",
        "robots",
        "collision",
        "simulation",
        "world",
        "controllers",
        "tasks",
        "constants",
        "foresight",
        "beginnings",
        "endings",
        "arm_env",
    ),
    *("registry", "evaluation", "view", "gymnasium_ids", "command_line"),
)
BESIDE = {  # rooms that stand on the floors without being one, and all of ours that they may know
    "from_gymnasium": {"options"},
    "fit_collision": {"robots", "collision"},
    "urdf": {"robots"},
    "description": {"robots", "collision"},
    "simulated_arm": {"robots", "simulation"},
}


def room_of(name: str) -> str:
    """envs.tasks.reach -> tasks."""
    return (name.split(".") + [""])[1]


def test_every_room_of_envs_has_its_floor():
    assert {room_of(name) for name in GRAPH if name.startswith("envs.")} == set(FLOORS) | set(BESIDE)


@pytest.mark.parametrize("room", [*FLOORS, *BESIDE])
def test_rooms_of_envs_import_downwards_alone(room):
    allowed = {room} | (BESIDE[room] if room in BESIDE else set(FLOORS[: FLOORS.index(room)]))
    if room == "registry":
        allowed |= {"from_gymnasium"}
    for name in GRAPH:
        if name.startswith("envs.") and room_of(name) == room:
            seen = {room_of(other) for other in GRAPH[name] if other.startswith("envs.")}
            assert seen <= allowed, f"{name} imports from {seen - allowed}"


def written_files(*suffixes: str) -> list[Path]:
    """What people write here, in folders and at the root."""
    folders = ("td3_robot", "envs", "configs", "tests", "benchmarks", "docs")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")] + list(ROOT.iterdir())
    return [path for path in paths if path.suffix in suffixes]


def test_no_file_of_code_is_long():
    """300 lines at most, of tests 400."""
    lengths = {path: len(path.read_text().splitlines()) for path in written_files(".py")}
    most = lambda path: 400 if "tests" in path.parts else 300  # noqa: E731
    assert {path.name: count for path, count in lengths.items() if count > most(path.relative_to(ROOT))} == {}


def test_nothing_is_left_to_do():
    marks = re.compile("[T]ODO|[F]IXME|[X]XX")  # so that this line is none
    files = written_files(".py", ".md", ".yaml", ".toml")
    assert [path.name for path in files if marks.search(path.read_text())] == []
