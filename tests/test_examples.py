"""examples/: programs that drive an arm from an exported file alone."""

import ast
import os
import subprocess
import sys

import onnx
import pytest

from tests.support import ROOT

EXAMPLES = ROOT / "examples"
GOOD = " ".join(["0.2"] + 13 * ["0.0"] + ["0.04"])  # of a Panda: q, qd and gripper


@pytest.fixture(scope="module")
def policy(exported):
    """An export of the shipped `reach` policy."""
    return exported("run1")


def test_the_python_program_imports_nothing_of_ours():
    tree = ast.parse((EXAMPLES / "controller.py").read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported == {"sys", "numpy", "onnxruntime"}
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


@pytest.mark.parametrize("goal", ("0.4 0.1 0.4", "0.5 -0.3 0.6"))
def test_the_python_program_brings_the_simulated_arm_to_its_goal(policy, goal):
    controller = [sys.executable, str(EXAMPLES / "controller.py"), str(policy), *goal.split()]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "simulated_arm.py"), *controller],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mm from the goal" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "A simulated Panda that another program controls"),
        ("./no_controller policy.onnx 0.4 0.1 0.4", "'./no_controller' cannot be started"),
        ("cat 0.4 0.1 x", "the last three words must be the goal x y z [m], got: 0.4 0.1 x"),
        ("true 0.4 0.1 0.4", "the program ended before the episode did"),
    ],
)
def test_the_simulated_arm_tells_in_one_line_why_it_does_not_move(words, told):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "simulated_arm.py"), *words.split()],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(told)
    assert words == "" or done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("goal", "state"),
    [
        ("0.4 0.1 nan", GOOD),
        ("0.4 0.1 x", GOOD),
        ("0.4 0.1", GOOD),
        ("0.4 0.1 0.4", GOOD.replace("0.2", "nan")),
        ("0.4 0.1 0.4", GOOD[:-5]),
        ("0.4 0.1 0.4", f"{GOOD} 0.1"),
        ("0.4 0.1 0.4", "off"),
    ],
)
def test_the_python_program_ends_in_one_line_where_no_command_follows(policy, goal, state):
    """What is good is answered before."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "controller.py"), str(policy), *goal.split()],
        input=f"{GOOD}\n{state}\n{GOOD}\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == (state != GOOD)
    what = "a state must be 15" if state != GOOD else "the goal must be 3"
    assert done.stderr.startswith(f"{what} finite numbers, got: ")
    assert len(done.stderr.splitlines()) == 1


def test_the_python_program_names_what_a_policy_does_not_take(tmp_path):
    """Such a file needs no network: the velocities are handed on."""
    path = tmp_path / "policy.onnx"
    velocity, command = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [6])
        for name in ("qd", "command")
    )
    node = onnx.helper.make_node("Identity", ["qd"], ["command"])
    graph = onnx.helper.make_graph([node], "policy", [velocity], [command])
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "controller.py"), str(path), "0.4", "0.1", "0.4"],
        input=f"{GOOD}\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    wanted = "this program gives joints and a goal; the policy takes no q, goal\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", wanted)
