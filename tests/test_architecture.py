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
    return {
        name for name in found if name.split(".")[0] in ("td3_robot", "envs", "train", "evaluate")
    }


GRAPH = {name_of(path): imports_of(path) for path in SOURCES}


def reached_from(name: str) -> set[str]:
    """What a module imports, directly or through others."""
    seen = set()
    waiting = [name]
    while waiting:
        for other in GRAPH.get(waiting.pop(), ()):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


def test_the_parser_sees_imports():
    assert {"td3_robot.networks.mlp", "td3_robot.td3.losses"} <= GRAPH["td3_robot.td3.agent"]
    assert (
        "envs.simulation.kinematic" in GRAPH["envs.arm_env.arm_env"]
        and "td3_robot.vec_env" in GRAPH["envs.arm_env.arm_env"]
    )


def test_every_import_of_ours_exists():
    assert set().union(*GRAPH.values()) <= NAMES


def test_the_learning_half_never_heard_of_a_robot():
    learning = [
        path
        for path in SOURCES
        if name_of(path).startswith("td3_robot") and "commands" not in path.parts  # they join both
    ]
    assert [
        path.name for path in learning if any(name.startswith("envs") for name in imports_of(path))
    ] == []
    texts = {
        path.name: re.sub(
            r"(td3[_-]?|le)robot|gymnasium_robotics|panda_gym",
            "",
            path.read_text(),
            flags=re.IGNORECASE,
        )
        for path in learning
        if "deploy"
        not in path.parts  # a room of its own, for robots, which knows nothing of the learner
    }
    robotics = re.compile("robot|gripper|urdf|swift|spatialmath|panda", re.IGNORECASE)
    assert {
        name: found[0] for name, text in texts.items() if (found := robotics.search(text))
    } == {}


SEAM = {
    "td3_robot.config.field",
    "td3_robot.vec_env",
    "td3_robot.utils.legacy",
    "td3_robot.evaluation",
    "td3_robot.evaluation.rollout",
    "td3_robot.errors",
    "td3_robot.utils.progress",
    "td3_robot.utils.output",
    "td3_robot.utils.seeding",
}


def test_the_simulating_half_knows_the_seam_alone():
    strangers = {
        name: others
        for name in GRAPH
        if name.startswith("envs")
        and (others := {i for i in GRAPH[name] if i.startswith("td3_robot")} - SEAM)
    }
    assert strangers == {}
    assert reached_from("td3_robot.vec_env") == reached_from("td3_robot.errors") == set()
    # Both halves measure; whoever does is not to load the agent.
    assert reached_from("td3_robot.evaluation") <= SEAM


DEPLOYED = [path for path in SOURCES if name_of(path).startswith("td3_robot.deploy")]
# each in its adapter alone
VENDORS = {"rtde_control", "rtde_receive", "franky", "rclpy", "std_msgs", "sensor_msgs", "lerobot"}


def test_what_is_deployed_imports_nothing_else():
    """So that it can be copied onto a robot's computer: the standard library, numpy and
    onnxruntime.
    """
    allowed = set(sys.stdlib_module_names) | {"numpy", "onnxruntime", "td3_robot"}
    for path in DEPLOYED:
        assert all(name.startswith("td3_robot.deploy") for name in imports_of(path)), path.name
        modules = {
            n.module for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)
        }
        modules |= {
            a.name
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.Import)
            for a in n.names
        }
        strangers = {module.split(".")[0] for module in modules} - allowed
        assert strangers <= (VENDORS if "adapters" in path.parts else set()), (
            f"{path.name} imports {strangers}"
        )


def test_what_is_deployed_is_imported_without_the_rest():
    names = [
        name_of(path)
        for path in DEPLOYED
        if path.stem not in ("ur_rtde_arm", "franky_arm", "ros2_arm")
    ]
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


# From the ground up: a room imports from itself and from rooms before it, nothing else.
FLOORS = {
    "td3_robot": (
        *("errors", "vec_env", "utils", "config", "checkpoint", "networks", "replay", "td3"),
        *("evaluation", "data", "loggers", "training", "cli", "distributed", "sweep", "commands"),
    ),
    "envs": (
        *("config", "kinematics", "robots", "collision", "simulation", "world", "planning"),
        *("controllers", "tasks", "arm_env", "from_gymnasium", "registry", "evaluation", "view"),
        *("gymnasium_ids", "command_line"),
    ),
}
BESIDE = {  # rooms that no floor stands on, and all of ours that they may know
    "td3_robot": {"deploy": set(), "__main__": {"commands"}},
    "envs": {
        "export": {"robots", "collision", "simulation", "world", "arm_env"},
        "fit_collision": {"collision"},
        "legacy": set(),
    },
}
KNOWS_MORE = {("td3_robot", "commands"): {"deploy"}}  # they drive arms, too
KNOWS_LESS = {("envs", "from_gymnasium"): {"config"}}  # than its floor would allow


def room_of(name: str) -> str:
    """envs.tasks.reach -> tasks."""
    return (name.split(".") + [""])[1]


@pytest.mark.parametrize("half", FLOORS)
def test_every_room_has_its_floor(half):
    rooms = {room_of(name) for name in GRAPH if name.startswith(f"{half}.")}
    assert rooms == set(FLOORS[half]) | set(BESIDE[half])


ROOMS = [(half, room) for half in FLOORS for room in (*FLOORS[half], *BESIDE[half])]


@pytest.mark.parametrize(("half", "room"), ROOMS)
def test_rooms_import_downwards_alone(half, room):
    floors = FLOORS[half]
    below = set(floors[: floors.index(room)]) if room in floors else BESIDE[half][room]
    more = KNOWS_MORE.get((half, room), set())
    allowed = KNOWS_LESS.get((half, room), below) | more | {room}
    for name in GRAPH:
        if name.startswith(f"{half}.") and room_of(name) == room:
            seen = {room_of(other) for other in GRAPH[name] if other.startswith(f"{half}.")}
            assert seen <= allowed, f"{name} imports from {seen - allowed}"


def written_files(*suffixes: str) -> list[Path]:
    """What people write here, in folders and at the root."""
    folders = ("td3_robot", "envs", "configs", "tests", "benchmarks", "docs")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")] + list(
        ROOT.iterdir()
    )
    return [path for path in paths if path.suffix in suffixes]


def test_no_file_of_code_is_long():
    """400 lines at most, of tests 500."""
    lengths = {path: len(path.read_text().splitlines()) for path in written_files(".py")}

    def most(path):
        return 500 if "tests" in path.parts else 400

    assert {
        path.name: count for path, count in lengths.items() if count > most(path.relative_to(ROOT))
    } == {}


def test_nothing_is_left_to_do():
    marks = re.compile("[T]ODO|[F]IXME|[X]XX")  # so that this line is none
    files = written_files(".py", ".md", ".yaml", ".toml")
    assert [path.name for path in files if marks.search(path.read_text())] == []
