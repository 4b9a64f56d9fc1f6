"""Limits of a URDF's joints that cannot be held as they stand: each is told or refused."""

import pytest

from envs.robots import make_robot
from tests.support import get_refusal

ARM = """<robot name='arm'><link name='base'/><link name='upper'/><link name='fore'/>
<link name='tool0'/>
<joint name='shoulder' type='revolute'><parent link='base'/><child link='upper'/>
<origin xyz='0 0 0.3'/><axis xyz='0 1 0'/>
<limit lower='-2' upper='2' velocity='2' effort='50' acceleration='10'/></joint>
<joint name='elbow' type='{kind}'><parent link='upper'/><child link='fore'/>
<origin xyz='0 0 0.3'/><axis xyz='0 1 0'/>
<limit {position} velocity='2' effort='{effort}' acceleration='{acceleration}'/></joint>
<joint name='tool' type='fixed'><parent link='fore'/><child link='tool0'/>
<origin xyz='0 0 0.3'/></joint></robot>"""
BOUNDED = "lower='-1' upper='1'"


@pytest.fixture
def write(tmp_path):
    """Writes the arm with an elbow of these limits, and returns its path."""

    def write(kind="revolute", position=BOUNDED, effort="50", acceleration="10"):
        path = tmp_path / "arm.urdf"
        path.write_text(
            ARM.format(kind=kind, position=position, effort=effort, acceleration=acceleration)
        )
        return str(path)

    return write


@pytest.mark.parametrize("effort", ["0", "-5"])
def test_an_effort_that_is_none_drops_the_others_with_a_word(write, capsys, effort):
    assert make_robot(write(effort=effort)).physics.torque is None
    message = "no torque limit is held, for want of a positive effort of elbow"
    assert message in capsys.readouterr().err


def test_position_limits_of_a_continuous_joint_are_not_held_with_a_word(write, capsys):
    robot = make_robot(write("continuous"))
    assert robot.qlim[1, 1] > 6.0
    message = "joint 'elbow': its position limits are not held: it is continuous"
    assert message in capsys.readouterr().err


def test_an_acceleration_that_no_arm_has_is_refused(write):
    message = get_refusal(make_robot, write(acceleration="1e-12"))
    assert "acceleration limits below 0.001 rad/s2 or m/s2" in message and "elbow" in message


@pytest.mark.parametrize("kind, position", [("revolute", BOUNDED), ("continuous", "")])
def test_what_is_as_it_should_be_needs_no_word(write, capsys, kind, position):
    assert make_robot(write(kind, position)).physics.torque.tolist() == [50.0, 50.0]
    assert capsys.readouterr().err == ""


def test_limits_in_degrees_are_suspected(write, capsys):
    make_robot(write(position='lower="-90" upper="90"'))
    message = "limits of many turns of elbow: they are in radians, not in degrees"
    assert message in capsys.readouterr().err
    message = get_refusal(make_robot, write(position='lower="-115" upper="115"'))
    assert "-115 to 115" in message and "in radians or metres" in message
