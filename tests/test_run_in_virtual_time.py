"""How run_policy.py ends where nothing goes wrong: all of it, but in virtual time."""

import itertools

import numpy as np
import pytest
import torch

from envs.kinematics.chain import fkine
from envs.robots import make_robot
from td3_robot.commands.run import NOT_REACHED
from td3_robot.deploy import Policy
from tests.straight_policy import write
from tests.support import ROOT
from tests.virtual_arm import replace_by_virtual

GOAL = "0.5,0.1,0.5"
TURN = 2.0 * np.pi
ARM = """<robot name="turner"><link name="base"/><link name="one"/><link name="two"/><link name="tcp"/>
<joint name="a" type="continuous"><parent link="base"/><child link="one"/><origin xyz="0 0 0.2"/>
<axis xyz="0 0 1"/><limit velocity="2" effort="9" acceleration="8"/></joint>
<joint name="b" type="revolute"><parent link="one"/><child link="two"/><origin xyz="0.3 0 0"/>
<axis xyz="0 0 1"/><limit lower="-2" upper="2" velocity="2" effort="9" acceleration="8"/></joint>
<joint name="t" type="fixed"><parent link="two"/><child link="tcp"/><origin xyz="0.3 0 0"/></joint>
</robot>"""


def test_it_ends_at_the_goal_with_exit_code_0(straight_policy, in_process, monkeypatch, tmp_path):
    arms = replace_by_virtual(monkeypatch, "panda")
    log = tmp_path / "log.csv"
    words = ("--policy", str(straight_policy), "--goal", GOAL, "--seconds", "4")
    words += ("--speed", "1", "--log", str(log))
    code, out, err = in_process(ROOT, "run_policy", *words)
    assert (code, err) == (0, ""), out
    assert out.splitlines()[-1] == "the arm is at rest: the time is up"
    assert " from the goal: reached after " in out and "it may need more time" not in out
    assert np.abs(arms[0].passed[-1] - arms[0].passed[0]).max() > 0.1
    assert len(log.read_text().splitlines()) > 800


def test_an_arm_at_rest_short_of_its_goal_ends_with_a_code_of_its_own(
    straight_policy, in_process, monkeypatch
):
    replace_by_virtual(monkeypatch, "panda")
    words = ("--policy", str(straight_policy), "--goal", GOAL, "--seconds", "0.5")
    code, out, err = in_process(ROOT, "run_policy", *words)
    assert code == NOT_REACHED == 4, (out, err)
    assert " from the goal: not reached (within " in out
    assert "it may need more time: --seconds 1, or --speed 0.2" in out
    assert out.splitlines()[-1] == "the arm is at rest: the time is up"


REPORTS = {  # how drivers report an endless joint at an angle [rad]
    "(-pi, pi]": lambda angle: np.pi - (np.pi - angle) % TURN,
    "[0, 2 pi)": lambda angle: angle % TURN,
    "one turn on": lambda angle: angle + TURN,
}


@pytest.fixture(scope="module")
def turner(tmp_path_factory):
    """An arm whose first joint has no ends, and a policy of it."""
    file = tmp_path_factory.mktemp("turner") / "turner.urdf"
    file.write_text(ARM)
    robot = make_robot(str(file), tcp="tcp")
    return robot, write(file.with_name("policy.onnx"), robot)


@pytest.mark.parametrize(
    ("home", "way", "report"),
    [
        (np.pi, 0.3, "(-pi, pi]"),
        (-np.pi, -0.3, "(-pi, pi]"),
        (0.0, -0.3, "[0, 2 pi)"),
        (-1.0, 0.3, "one turn on"),
    ],
)
def test_an_endless_joint_starts_and_moves_where_its_report_jumps(
    home, way, report, turner, in_process, monkeypatch
):
    """The arm stands where its report jumps between two states, and moves on over the seam."""
    robot, path = turner
    robot.home = np.array([home, 1.5])
    load = Policy.load

    def load_at_home(path: str) -> Policy:
        policy = load(path)
        policy.robot.home[:] = robot.home
        return policy

    flips = itertools.cycle((1e-5, -1e-5))
    monkeypatch.setattr(Policy, "load", load_at_home)
    arms = replace_by_virtual(
        monkeypatch, robot, lambda q: np.array([REPORTS[report](q[0] + next(flips)), q[1]])
    )
    pose = fkine(robot.chain, torch.tensor([[home + way, 1.5]]))
    goal = ",".join(f"{x:.6f}" for x in pose[0, :3, 3].tolist())
    words = ("--policy", str(path), f"--goal={goal}", "--seconds", "6", "--speed", "1")
    code, out, err = in_process(ROOT, "run_policy", *words)
    assert (code, err) == (0, ""), out
    assert arms[-1].passed[-1][0] - home == pytest.approx(way, abs=0.05)  # not round the other way
