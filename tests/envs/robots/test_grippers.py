"""Grippers: open at the start, every joint where its driver puts it, and fingers where the maker
says.
"""

import numpy as np
import pytest
import torch
import trimesh
import yaml

from envs.robots import gripper, make_robot
from envs.robots.assembly import load_model
from envs.robots.gripper import Gripper, gripper_names, make_gripper
from envs.simulation import grasp
from td3_robot.errors import ConfigError

PAD_THICKNESS = 0.00635  # [m] of the boxes in airo-models' URDF


@pytest.mark.parametrize("name", gripper_names())
def test_every_registered_gripper_is_whole(name):
    gripper = make_gripper(name)
    m = len(gripper.joints)
    assert gripper.name == name
    assert (
        gripper.q.shape == gripper.mimic.shape == (m,)
        and len(gripper.links) == len(set(gripper.joints)) == m
    )
    assert len(set(gripper.drivers)) == 2 and all(0 <= index < m for index in gripper.drivers)
    assert gripper.closed != gripper.opened and gripper.speed > 0
    np.testing.assert_allclose(gripper.q, gripper.mimic * gripper.opened)
    assert make_gripper(name).q is not gripper.q


def test_the_panda_hand_is_as_its_manual_says():
    hand = make_gripper("panda_hand")
    assert hand.joints == ("panda_leftfinger", "panda_rightfinger") and hand.drivers == (0, 1)
    assert (hand.closed, hand.opened, hand.speed) == (0.0, 0.04, 0.05)  # m, m, m/s for each finger
    np.testing.assert_array_equal(hand.q, [0.04, 0.04])


@pytest.mark.parametrize(("name", "opened"), [("wx250s_fingers", 0.037), ("vx300s_fingers", 0.057)])
def test_interbotix_fingers_slide_against_each_other(name, opened):
    hand = make_gripper(name)
    assert hand.joints == ("left_finger", "right_finger") and hand.drivers == (1, 0)
    np.testing.assert_array_equal(hand.q, [opened, -opened])


@pytest.mark.parametrize("arm", ["wx250s", "vx300s"])
def test_the_pads_of_interbotix_fingers_are_where_the_model_draws_them(arm):
    """In the gripper's base: x along the fingers, which slide along y."""
    robot = make_robot(arm)
    hand = robot.gripper
    drawn = {link.name: link for link in robot.rtb.grippers[0].links}
    pads = hand.pads
    tcp = hand.tcp[0, 3]

    def mesh(name: str, driver: float = 0.0) -> trimesh.Trimesh:
        shape = drawn[name].geometry[0]
        link = drawn[name]
        T = shape.T
        q = dict(zip(hand.links, hand.mimic * driver))
        while link.name != hand.root:
            T = link.A(q.get(link.name, 0.0)).A @ T
            link = link.parent
        return trimesh.load(shape.filename).apply_scale(shape.scale).apply_transform(T)

    def cut(solid: trimesh.Trimesh, x: float) -> np.ndarray:
        return solid.section(plane_origin=[x, 0, 0], plane_normal=[1, 0, 0]).vertices

    bar = mesh("/gripper_bar_link")
    finger = mesh(pads.links[0], hand.closed)
    end = bar.bounds[1, 0]
    tip = finger.bounds[1, 0]
    for driver in (hand.closed, 0.5 * (hand.closed + hand.opened), hand.opened):
        gap = grasp.compute_gap(grasp.compile_hand(hand, 0.04), torch.tensor([driver])).item()
        for x in (end + 1e-3, tip - 1e-3):
            left, right = (cut(mesh(link, driver), x) for link in pads.links)
            assert gap == pytest.approx(left[:, 1].min() - right[:, 1].max(), abs=1e-4)
    assert (pads.tip, pads.palm[0], pads.size[1]) == pytest.approx(
        (tip - tcp, tcp - end, tip - end), abs=1e-4
    )
    assert pads.finger == pytest.approx(np.ptp(cut(finger, end + 1e-3)[:, 1]), abs=1e-3)
    assert pads.size[0] == pytest.approx(np.ptp(cut(finger, tip - 0.01)[:, 2]), abs=1e-3)
    assert pads.palm[2] == pytest.approx(cut(bar, end - 1e-3)[:, 1].max(), abs=2e-3)


def test_joints_follow_their_driver():
    linkage = Gripper(
        "claw", ("driver", "tip"), (0, 1), np.array([1.0, -0.5]), closed=0.8, opened=0.2, speed=1.0
    )
    np.testing.assert_allclose(linkage.q, [0.2, -0.1])


@pytest.fixture(scope="module")
def robotiq():
    """The gripper, and pose of a link in its base at a driver coordinate: (4, 4)."""
    hand = make_gripper("robotiq_2f_85")
    model = load_model("gripper", hand.source)
    links = {link.name: link for link in model.links}

    def pose(name: str, driver: float) -> np.ndarray:
        q = dict(zip(hand.links, hand.mimic * driver))
        T = np.eye(4)
        link = links[name]
        while link is not None:
            T = link.A(q[link.name] if link.isjoint else 0.0).A @ T
            link = link.parent
        return T

    return hand, pose


def opening(pose, driver: float) -> float:
    """Distance of the pads' faces [m]."""
    right, left = (pose(f"{side}_inner_finger_pad", driver) for side in ("right", "left"))
    return np.linalg.norm(right[:3, 3] - left[:3, 3]) - PAD_THICKNESS


def strokes(hand) -> np.ndarray:
    return np.linspace(hand.opened, hand.closed, 50)


def test_the_2f_85_has_its_eight_joints_in_order():
    hand = make_gripper("robotiq_2f_85")
    side = ("driver", "coupler", "spring_link", "follower")
    assert hand.joints == tuple(f"right_{part}" for part in side) + tuple(
        f"left_{part}" for part in side
    )
    assert hand.drivers == (0, 4)
    np.testing.assert_array_equal(hand.mimic, [1, 0, 1, -1] * 2)


def test_the_2f_85_opens_85_mm_and_shuts(robotiq):
    hand, pose = robotiq
    width = [opening(pose, driver) for driver in strokes(hand)]
    assert width[0] - width[-1] == pytest.approx(0.085, abs=1e-5)
    # the URDF's pads are thinner than the real ones
    assert width[0] == pytest.approx(0.085, abs=1.1e-3)
    assert width[-1] == pytest.approx(0.0, abs=1.1e-3)
    assert (np.diff(width) < 0).all()


def test_the_pads_of_the_2f_85_stay_parallel(robotiq):
    hand, pose = robotiq
    for driver in strokes(hand):
        right, left = (pose(f"{side}_inner_finger_pad", driver) for side in ("right", "left"))
        across = right[:3, 3] - left[:3, 3]
        for normal, toward in (
            (right[:3, 1], across),
            (left[:3, 1], -across),
        ):  # along y, away from the other pad
            angle = np.arctan2(np.linalg.norm(np.cross(normal, toward)), normal @ toward)
            assert angle < np.radians(1.0)


def test_driver_and_spring_link_hold_the_finger_of_the_2f_85_together(robotiq):
    """The pin that joins finger and spring link is one point, seen from either."""
    hand, pose = robotiq
    # in the finger: the follower joint of MuJoCo Menagerie's model
    pin = [0.0, -0.018, 0.0065, 1.0]
    for side in ("right", "left"):
        seen = [
            np.linalg.solve(pose(f"{side}_inner_knuckle", s), pose(f"{side}_inner_finger", s) @ pin)
            for s in strokes(hand)
        ]
        np.testing.assert_allclose(seen, np.broadcast_to(seen[0], (50, 4)), atol=2e-4)


def test_the_2f_85_keeps_to_its_fastest_speed(robotiq):
    hand, pose = robotiq
    step = 1e-4
    rates = [
        (opening(pose, s) - opening(pose, s + step)) / step * hand.speed for s in strokes(hand)
    ]
    assert max(rates) == pytest.approx(0.150, rel=1e-3)


def test_the_tcp_of_the_2f_85_is_between_the_shut_pads(robotiq):
    hand, pose = robotiq
    middle = np.mean(
        [pose(f"{side}_inner_finger_pad", hand.closed)[:3, 3] for side in ("right", "left")], axis=0
    )
    np.testing.assert_allclose(hand.tcp[:3, 3], middle, atol=2e-4)


def test_an_unknown_gripper_is_refused_with_the_valid_ones():
    with pytest.raises(ConfigError, match="gripper 'claw'; .*panda_hand, robotiq_2f_85"):
        make_gripper("claw")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"joints": {"a": [1]}}, "joints must map every joint to .link, multiple"),
        (
            {"joints": {"a": ["left", "one"], "b": ["right", 1]}, "drivers": ["a", "b"]},
            "joints must be numbers",
        ),
        (
            {"drivers": ["panda_leftfinger"]},
            "drivers must be two of the joints panda_leftfinger, panda_rightfinger",
        ),
        ({"drivers": ["panda_leftfinger", "thumb"]}, "drivers must be two of the joints .*thumb"),
        ({"opened": 0.0}, "closed and opened must differ"),
        ({"speed": 0.0}, "speed must be positive"),
        ({"speed": "fast"}, "speed must be numbers, got 'fast'"),
        ({"tcp": [0, 0, 0.1]}, "tcp must be finite with shape .6"),
        ({"colour": "red"}, "unknown key of gripper 'mine' 'colour'"),
        ({"root": None}, "root missing in configs/grippers/mine.yaml"),
    ],
)
def test_values_that_cannot_be_right_are_named(tmp_path, monkeypatch, changes, words):
    values = yaml.safe_load((gripper.GRIPPERS / "panda_hand.yaml").read_text()) | changes
    if values["root"] is None:
        del values["root"]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    monkeypatch.setattr(gripper, "GRIPPERS", tmp_path)
    with pytest.raises(ConfigError, match=words) as caught:
        make_gripper("mine")
    assert "\n" not in str(caught.value)
