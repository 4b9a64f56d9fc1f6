"""run_policy.py against the simulated arm, and what is done to both while they run: real processes,
really stopped.
"""

import dataclasses
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import envs
from benchmarks import faults
from td3_robot import TD3
from td3_robot.commands.exported import describe_simulated, find_policy
from td3_robot.commands.goal import check_goal, suggest_time
from td3_robot.commands.run import NOT_REACHED, Arguments, build_scene, replace_limits
from td3_robot.deploy import Obstacles, Policy, Robot
from td3_robot.deploy.arm import Reading
from td3_robot.deploy.errors import DeployError, OldExport
from td3_robot.deploy.planning.reachability import NearestPose
from td3_robot.deploy.robot.limits import FR3
from td3_robot.deploy.robot.rotations import to_quaternion
from td3_robot.deploy.runtime.arrival import Arrival, RecordedArm
from td3_robot.errors import ConfigError
from tests.support import get_refusal, make_command_schema

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def path(straight_policy):
    return straight_policy


def start(path, *flags, goal="0.5,0.1,0.5"):
    command = [sys.executable, "run_policy.py", "--policy", str(path), "--goal", goal, *flags]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return subprocess.Popen(command, cwd=ROOT, text=True, **pipes)


@pytest.fixture(scope="module")
def runs(path, tmp_path_factory):
    """Three at once, since each takes its time to start: what they print, how they end, and a log."""
    log = tmp_path_factory.mktemp("log") / "log.csv"
    flags = {
        "driven": ("--seconds", "3", "--log", str(log), "--delay", "0.01"),
        "stopped": ("--seconds", "60"),
        "dry": ("--seconds", "1.2", "--dry_run", "true"),
    }
    started = {name: start(path, *of) for name, of in flags.items()}
    started["stopped"].stdin.write("\n")
    started["stopped"].stdin.flush()
    done = {name: process.communicate(timeout=400) for name, process in started.items()}
    return {name: (*said, started[name].returncode) for name, said in done.items()}, log


def test_it_drives_the_simulated_arm(path, runs):
    (printed, error, _) = runs[0]["driven"]
    log = runs[1]
    assert printed.splitlines()[-1].startswith("the arm is at rest: "), error
    assert re.search(r"the TCP is at [\d.,-]+, [\d.]+ m?m from the goal: (not )?reached", printed)
    assert "assuming 25 ms of latency" in printed  # there and back, and a step of the simulated arm
    found = re.search(r"the arm's motion shows a latency of (\d+) ms", printed)
    assert found and 10 <= int(found[1]) <= 60  # a busy machine is later
    rows = np.genfromtxt(log, delimiter=",", skip_header=1, usecols=range(15))
    sent = rows[:, 8:]
    limits = Policy.load(path).robot.limits
    assert (np.abs(sent) <= 0.1 * limits.velocity).all() and not sent[-1].any()
    assert np.abs(sent).max() > 0.01 and np.ptp(rows[:, 1:8], axis=0).max() > 1e-4


@pytest.mark.parametrize(
    ("reason", "distance", "code", "line"),
    [
        ("the time is up", 0.004, 0, "4.0 mm from the goal: reached after 2.5 s (within 10.0 mm)"),
        ("the time is up", 0.3, NOT_REACHED, "0.30 m from the goal: not reached (within 10.0 mm)"),
        ("stopped by the operator", 0.3, 130, "0.30 m from the goal: not reached"),
        ("stopped by the operator", 0.0, 130, "0.0 mm from the goal: reached"),
        ("the policy has failed", 0.3, 1, "0.30 m from the goal: not reached"),
    ],
)
def test_the_exit_code_says_whether_the_goal_was_reached(
    path, in_process, monkeypatch, reason, distance, code, line
):
    arrival = Arrival(np.array([0.5, 0.1, 0.5]), distance, 0.0, distance < 0.01, 2.5)
    monkeypatch.setattr("td3_robot.commands.run.drive", lambda *_: (reason, arrival))
    words = ("--policy", str(path), "--goal", "0.5,0.1,0.5")
    found, out, err = in_process(ROOT, "run_policy", *words)
    assert (found, err) == (code, "") and f"the TCP is at 0.500,0.100,0.500, {line}" in out
    assert ("--seconds 20, or --speed 0.2" in out) == (code == NOT_REACHED)
    assert out.splitlines()[-1] == f"the arm is at rest: {reason}"


def test_an_arm_that_has_left_its_goal_is_given_less_time_not_more():
    arrival = Arrival(np.array([0.5, 0.1, 0.5]), 0.02, 0.0, False, 0.0, (1.0, 17.0))
    assert (
        suggest_time(arrival, 25.0, 0.1, 2.0)
        == "it was within that from 1.0 to 17.0 s: --seconds 9.0"
    )


@pytest.mark.parametrize(
    ("seconds", "needed", "flag"), [(2.0, 5.0, "8"), (10.0, 5.0, "20"), (0.0, 0.0, "10")]
)
def test_an_arm_short_of_its_goal_is_given_more_time_than_the_motion_takes(seconds, needed, flag):
    arrival = Arrival(np.array([0.5, 0.1, 0.5]), 0.3, 0.0, False, 0.0, None)
    words = suggest_time(arrival, seconds, 1.0, needed)
    assert words == f"it may need more time: --seconds {flag}"


def test_enter_is_the_emergency_stop(runs):
    printed, error, code = runs[0]["stopped"]
    assert "stopped by the operator" in printed and code == 130, error


def test_a_terminal_that_is_lost_brakes_the_arm(path, tmp_path):
    """The signal comes while it moves, and the last velocity that is sent is none."""
    for attempt in range(5):  # a busy machine: the watchdog may stop the arm before the signal
        log = tmp_path / f"log{attempt}.csv"
        process = start(path, "--seconds", "60", "--log", str(log), "--speed", "0.5")
        while process.poll() is None and count_lines(log) <= 100:
            time.sleep(0.02)
        process.send_signal(signal.SIGHUP)
        printed, error = process.communicate(timeout=60)
        if not re.search("sent no (state|command)|held up", printed):
            break
    sent = np.genfromtxt(log, delimiter=",", skip_header=1, usecols=range(8, 15))
    assert "stopped by the operator" in printed and process.returncode == 130, error
    assert np.abs(sent).max() > 0.05 and not sent[-1].any()


def count_lines(file):
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_a_dry_run_says_what_it_would_send(runs):
    printed, error, _ = runs[0]["dry"]
    assert "would send [" in printed, error


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--arm", "abb"), "unknown arm 'abb'"),
        (
            ("--arm", "franky", "--delay", "0.02", "--xacro", "side=left"),
            "leave --xacro, --delay out: only --arm simulated takes them",
        ),
        (("--host", "172.16.0.2"), "--host and --realtime need --arm, one of franky, ros2_control"),
        (("--realtime", "false"), "--host and --realtime need --arm, one of franky"),
        (("--speed", "0"), "speed must be above 0"),
        (("--latency", "2"), "latency must be in [0, 0.5]"),
        (
            ("--log", "/none/log.csv"),
            "log '/none/log.csv' cannot be written: No such file or directory",
        ),
        (("--log", "README.md"), "--log must end in .csv, got 'README.md'"),
        (("--limits", "fr4"), "no robot 'fr4'; give a .json file or one of "),
        (("--limits", "ur5e"), "limits 'ur5e' are of 6 joints, panda has 7"),
    ],
)
def test_one_line_for_what_cannot_be(path, flags, message):
    process = start(path, *flags)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 2 and message in error and len(error.strip().splitlines()) == 1


def test_another_arm_of_the_same_shape_is_kept_in_its_own_limits(path):
    robot = Policy.load(path).robot
    kept = replace_limits(robot, "fr3")
    assert kept.limits is FR3 and kept.joints[6] == "fr3_joint7"  # as its own messages have them
    assert dataclasses.replace(kept, limits=robot.limits, joints=robot.joints) == robot
    assert replace_limits(robot, None) is robot


@pytest.mark.parametrize(
    "words", ["0.4,-0.1,0.4", "0.4 -0.1 0.4", "0.4, -0.1, 0.4", "0.4 -.1 4e-1", "[0.4,-0.1,0.4]"]
)
@pytest.mark.parametrize("between", " =")
def test_a_goal_is_one_word_or_several_negative_numbers_too(words, between):
    schema = make_command_schema("run_policy.py")
    found = schema.read_flags(f"--goal{between}{words} --seconds 5".split())
    assert found == {"goal": (0.4, -0.1, 0.4), "seconds": 5.0}
    assert "cannot place '-s'" in get_refusal(schema.read_flags, f"--goal{between}0.4 -s".split())


def test_a_goal_of_another_shape_is_refused(path):
    process = start(path, goal="0.5,0.1")
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 2 and "goal must be 3 finite numbers" in error


@pytest.mark.parametrize("fault", ["corrupted", "reordered", "robot killed", "loop stopped"])
def test_whatever_goes_wrong_the_arm_comes_to_rest_within_its_limits(path, fault):
    """One run a fault; `python benchmarks/faults.py` makes thousands."""
    outcome = faults.run_once(str(path), Policy.load(path), envs.make_robot("panda"), fault, seed=1)
    assert outcome.wrong == "" and outcome.rest <= faults.REST, outcome


def test_a_policy_that_stops_is_named(path):
    """A busy machine may keep the arm silent first; then the run is repeated."""
    policy = Policy.load(path)
    robot = envs.make_robot("panda")
    for seed in range(1, 6):
        outcome = faults.run_once(str(path), policy, robot, "policy stopped", seed)
        assert outcome.wrong == "" and outcome.rest <= faults.REST, outcome
        if not re.search("the arm has sent no state|held up", outcome.line):
            break
    assert "the policy has sent no command" in outcome.line, outcome


@pytest.mark.parametrize(
    ("clearance", "message"),
    [
        (-0.002, "without contact: .* touches itself or an obstacle, by 2.0 mm"),
        (0.004, "the arm is 4.0 mm from itself or an obstacle, and the safety filter keeps 5.0 mm"),
        (0.006, None),
    ],
)
def test_a_goal_nearer_to_something_than_the_filter_allows_is_refused(
    monkeypatch, clearance, message
):
    nearest = NearestPose(0.0, 0.0, np.zeros(3), 1.0, clearance)
    monkeypatch.setattr("td3_robot.commands.goal.find_nearest_pose", lambda *_: nearest)
    policy = SimpleNamespace(metadata={"task": {"constants": {"tolerance": 0.01}}})
    given = (policy, Robot.load("panda"), np.zeros(3), Obstacles(), 1.0, 10.0)
    if message is None:
        assert check_goal(*given) == 1.0
        return
    with pytest.raises(ConfigError, match=message):
        check_goal(*given)


def test_the_time_that_a_motion_takes_is_told_as_longer_than_what_it_has(monkeypatch, capsys):
    nearest = NearestPose(0.0, 0.0, np.zeros(3), 0.34, 1.0)
    monkeypatch.setattr("td3_robot.commands.goal.find_nearest_pose", lambda *_: nearest)
    policy = SimpleNamespace(metadata={"task": {"constants": {"tolerance": 0.01}}})
    check_goal(policy, Robot.load("panda"), np.zeros(3), Obstacles(), 0.1, 3.2)
    words = "at --speed 0.1 the motion to the goal takes at least 3.4 s, longer than --seconds 3.2"
    assert capsys.readouterr().err == f"warning: {words}\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "--goal 0.9,0.9,0.9",
            "goal 0.9,0.9,0.9 is out of reach of panda: the nearest position is",
        ),
        ("--goal 0.4,0.1,-0.1 --ground 0", "cannot be reached without contact"),
        ("--goal 0.5,0.1", "goal must be 3 finite numbers"),
        ("--goal nan,0,0", "goal must be a list, each a number"),
    ],
)
def test_a_goal_that_cannot_be_reached_is_refused_before_anything_moves(
    path, in_process, flags, message
):
    code, out, err = in_process(ROOT, "run_policy", "--policy", str(path), *flags.split())
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1


def test_a_goal_of_ones_own_task_that_is_no_place_is_refused_in_one_line():
    """Whether it can be reached, and was, nobody here knows."""

    class Turned:
        robot = Robot.load("panda")
        scene = {"goal": (2,)}
        metadata = {"task": {"name": "turn"}}

        def __call__(self, *state, goal):
            return np.zeros(7)

        def reset(self):
            pass

    with pytest.raises(ConfigError, match="goal of turn is neither a position nor a pose, and .*"):
        build_scene(Turned(), Arguments(policy=Path("turn"), goal=(0.3, 0.5)))


def test_an_arm_at_a_goal_whose_quaternion_was_rounded_is_not_turned_from_it(exported):
    """It was typed with digits too few, and has a length of 0.992."""
    path = exported("reach_pose")
    policy = Policy.load(path)
    q = policy.robot.home + 0.1
    T = policy.robot.chain.frames(q[None])[0, -1]
    typed = (*T[:3, 3], *(0.992 * to_quaternion(T[:3, :3])))
    scene = build_scene(policy, Arguments(policy=path, goal=typed))
    arm = SimpleNamespace(rate=100.0, latency=0.0, send=None, stop=None)
    arm.read = lambda: Reading(q, 0 * q, None, 0.0)
    recorded = RecordedArm(arm)
    recorded.read()
    assert recorded.measure_arrival(policy.robot, scene["goal"], 0.01, 0.09).turn < 1e-6


def test_a_goal_that_should_be_a_pose_says_what_a_pose_is(exported):
    arguments = Arguments(policy=exported("reach_pose"), goal=(0.4, 0.1, 0.4))
    with pytest.raises(DeployError, match=r"be 7 .*; a pose is x,y,z \[m\] and a unit quaternion"):
        build_scene(Policy.load(arguments.policy), arguments)


def test_obstacles_that_move_are_refused_before_anything_moves(path, in_process, tmp_path):
    around = tmp_path / "around.json"
    around.write_text('{"spheres": [[0.5, 0.2, 0.9, 0.1]], "sphere_velocities": [[0.3, 0, 0]]}')
    line = ("--policy", str(path), "--goal", "0.5,0.1,0.5", "--obstacles", str(around))
    code, out, err = in_process(ROOT, "run_policy", *line)
    assert (code, out) == (
        2,
        "",
    ) and "obstacles that stand: sphere_velocities must be left out" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("push", "object (centre of the cube"),
        ("track", "goal_velocity ("),
        ("insert", "searched, sunk, seated (time"),
    ],
)
def test_a_scene_that_it_cannot_know_is_asked_for_in_words(exported, in_process, task, words):
    """With every name and what to do, however long the meanings are."""
    line = ("--policy", str(exported(task)), "--goal", "0.5,0,0.03")
    code, out, err = in_process(ROOT, "run_policy", *line)
    assert (code, out) == (2, "") and f"a policy of {task} also needs {words}" in err
    assert "from your own program" in err and err.count("\n") == 1


def test_a_checkpoint_is_found_by_its_name(exported, tmp_path, in_process, monkeypatch):
    folder = tmp_path / "checkpoints" / "mine"
    shutil.copytree(ROOT / "checkpoints" / "run1", folder)
    shutil.copy(exported("run1"), folder / "policy.onnx")
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "checkpoints/mine", "checkpoints/mine/policy.onnx"):
        assert find_policy(Path(name)) == Path("checkpoints/mine/policy.onnx")


def test_a_policy_of_a_checkpoint_that_was_trained_on_is_refused_beside_it(
    exported, tmp_path, in_process, monkeypatch
):
    """Deployed alone it is driven, and so it is beside a checkpoint that is still its own."""
    arrival = Arrival(np.array([0.5, 0.1, 0.5]), 0.004, 0.0, True, 2.5)
    monkeypatch.setattr("td3_robot.commands.run.drive", lambda *_: ("the time is up", arrival))
    folder = tmp_path / "checkpoints" / "mine"
    shutil.copytree(ROOT / "checkpoints" / "run1", folder)
    for file in (folder / "policy.onnx", tmp_path / "alone.onnx"):
        shutil.copy(exported("run1"), file)

    def drive(name):
        return in_process(tmp_path, "run_policy", "--policy", name, "--goal", "0.5,0.1,0.5")

    def verify():
        code, out, _ = in_process(tmp_path, "evaluate", "--checkpoint", "mine", "--verify")
        return code, " ".join(out[out.index("export") :].replace("│", " ").split())

    assert drive("mine")[0] == drive("alone.onnx")[0] == 0
    with warnings.catch_warnings(action="error"):
        Policy.load(folder)
    assert verify()[1].startswith("export ok policy.onnx is of these networks")
    agent = TD3.from_checkpoint(folder)
    with torch.no_grad():
        next(agent.actor.parameters()).mul_(1.001)
    agent.save(folder)
    for name in ("mine", "checkpoints/mine/policy.onnx"):
        code, out, err = drive(name)
        assert (code, out) == (2, "") and err.count("\n") == 1
        assert err.startswith("error: checkpoints/mine/policy.onnx is not the policy of ")
        assert err.endswith("export it again: python export.py --checkpoint checkpoints/mine\n")
    with pytest.warns(OldExport, match="policy.onnx is not the policy of .*; export it again"):
        Policy.load(folder)
    assert drive("alone.onnx")[0] == 0
    code, found = verify()
    assert code == 0 and found.startswith("export differs") and "export it again" in found
    (folder / "policy.onnx").write_bytes(b"noise")
    code, found = verify()
    assert code == 2 and found.startswith("export wrong")


def test_the_file_of_a_simulated_robot_is_found_from_the_policy_s_folder_on(tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "checkpoints" / "mine").mkdir(parents=True)
    (project / "arm.urdf").touch()
    monkeypatch.chdir(tmp_path)
    path = Path("project/checkpoints/mine/policy.onnx")
    for name in ("arm.urdf", "/gone/arm.urdf"):
        simulator = {"robot": name, "xacro": ["a=1"]}
        policy = SimpleNamespace(metadata={"simulator": simulator}, robot=Robot.load("panda"))
        found = {"robot": str(project / "arm.urdf"), "xacro": ["a=1"]}
        assert describe_simulated(policy, path, ()) == found
        assert describe_simulated(policy, path, ("a=2",)) == found | {"xacro": ("a=2",)}
    shipped = SimpleNamespace(metadata={}, robot=Robot.load("panda"))
    assert describe_simulated(shipped, path, ()) == {"robot": "panda"}
