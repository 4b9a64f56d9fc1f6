"""Joints of an MJCF file that others lead: whom each follows does not depend on the file's order."""

import itertools

import pytest

from envs.robots.mjcf import load_mjcf

pytest.importorskip("mujoco")

ARM = """<mujoco><compiler angle="radian"/><worldbody><body name="foot"><geom size=".05"/>
<body name="upper" pos="0 0 .2"><joint name="a" axis="0 0 1" range="-2 2"/><geom size=".05"/>
<body name="rod" pos=".1 0 0"><joint name="r" ref=".1" range="-2 2"/><geom size=".02"/>
<body name="end" pos=".1 0 0"><joint name="s" range="-2 2"/><geom size=".02"/>
<body name="tip" pos=".1 0 0"><joint name="t" range="-2 2"/><geom size=".02"/></body></body></body>
<body name="fore" pos="0 0 .3"><joint name="b" axis="0 1 0" range="-2 2"/><geom size=".05"/>
<site name="tcp" pos="0 0 .1"/></body></body></body></worldbody>
<equality>{}</equality></mujoco>"""
CHAIN = (
    '<joint joint1="r" joint2="b" polycoef=".2 -1 0 0 0"/>',
    '<joint joint1="s" joint2="r" polycoef="0 2 0 0 0"/>',
    '<joint joint1="t" joint2="s" polycoef="0 .5 0 0 0"/>',
)


@pytest.fixture
def load(tmp_path):
    """Loads the arm with equalities; returns its joints by name."""

    def load(*equalities):
        path = tmp_path / "led.xml"
        path.write_text(ARM.format("".join(equalities)))
        return load_mjcf(str(path), velocity=(1.0,)).tree.joints

    return load


@pytest.mark.parametrize("order", itertools.permutations(range(3)))
def test_a_chain_of_followers_is_the_same_in_any_order(load, order):
    joints = load(*(CHAIN[i] for i in order))
    led = {name: joints[name].mimic for name in "rst"}
    assert {name: mimic.joint for name, mimic in led.items()} == {"r": "b", "s": "r", "t": "s"}
    assert [mimic.multiplier for mimic in led.values()] == [-1.0, 2.0, 0.5]
    # MuJoCo's polynomial is of the ways from the reference positions, of which that of r is 0.1.
    assert [mimic.offset for mimic in led.values()] == pytest.approx([0.3, -0.2, 0.0])


def test_of_a_circle_the_last_is_left_out(load):
    joints = load(*CHAIN, '<joint joint1="r" joint2="t" polycoef="0 1 0 0 0"/>')
    assert joints["r"].mimic.joint == "b" and joints["t"].mimic.joint == "s"


@pytest.mark.parametrize(
    "equality, notice",
    [
        (
            '<joint joint1="r" joint2="b" polycoef="0 .5 1 0 0"/>',
            "joint 'r' follows 'b' along a curve; only its straight part is taken, 0.5 times",
        ),
        (
            '<joint joint1="b" polycoef="0.5 0 0 0 0"/>',
            "joint 'b' moves, though an equality holds it in place",
        ),
    ],
)
def test_what_is_not_taken_of_an_equality_is_told(load, capsys, equality, notice):
    load(equality)
    assert notice in capsys.readouterr().err


def test_what_is_taken_as_it_is_needs_no_word(load, capsys):
    load(*CHAIN)
    assert "joint" not in capsys.readouterr().err


FLAP = """<site name="tcp" pos="0 0 .1"/>
<body name="flap"><joint name="f" axis="0 1 0" range="-2 2"/><geom size=".02"/></body>
<body name="{0}"><joint name="{0}" range="-2 2"/><geom size=".02"/></body>"""


def test_what_follows_the_arm_beyond_the_tcp_does_not_stand_still(tmp_path, capsys):
    """The joint of the flap is a hinge beyond the TCP, as `loose` is, but one of the arm leads it.

    Neither makes a gripper: nothing says of the flap that it has to follow the loose one.
    """
    path = tmp_path / "led.xml"
    text = ARM.replace('<site name="tcp" pos="0 0 .1"/>', FLAP.format("loose"))
    path.write_text(text.format('<joint joint1="f" joint2="b" polycoef="0 -1 0 0 0"/>'))
    load_mjcf(str(path), velocity=(1.0,))
    warning = capsys.readouterr().err
    assert "joints beyond the TCP stand still (loose): one jaw alone moves" in warning
