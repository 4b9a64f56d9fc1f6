"""The cube and the pads: geometry by hand, and laws over random motions of a free hand."""

import dataclasses
import math

import numpy as np
import pytest
import torch
import yaml

from envs.kinematics.rotations import to_matrix
from envs.robots import gripper
from envs.robots.assembly import load_model
from envs.robots.gripper import make_gripper
from envs.simulation import grasp
from td3_robot.errors import ConfigError

HALF = 0.02
DOWN = torch.tensor([[1.0, 0, 0], [0, -1, 0], [0, 0, -1]])  # z down, y closes along -y of the base
WIDE = torch.tensor([0.08])
FREE = torch.tensor([False])
HELD = torch.tensor([True])


@pytest.fixture(scope="module")
def hand():
    """The Panda's, whose pads are 17 mm wide and fingers 14.4 mm thick, ending 8.9 mm beyond the
    TCP.
    """
    return grasp.compile_hand(make_gripper("panda_hand"), 2 * HALF)


def pose(x: float = 0.0, y: float = 0.0, z: float = 0.02, R: torch.Tensor = DOWN) -> torch.Tensor:
    T = torch.eye(4)
    T[:3, :3] = R
    T[:3, 3] = torch.tensor([x, y, z])
    return T[None]


def about_x(angle: float) -> torch.Tensor:
    """The hand turned so that its closing direction is no longer level."""
    c = math.cos(angle)
    s = math.sin(angle)
    return torch.tensor([[1.0, 0, 0], [0, c, -s], [0, s, c]]) @ DOWN


def at(x: float = 0.0, y: float = 0.0, z: float = HALF) -> torch.Tensor:
    return torch.tensor([[x, y, z]])


def near(value: torch.Tensor, *numbers: float) -> None:
    torch.testing.assert_close(value, torch.tensor([numbers]), atol=1e-5, rtol=0)


# The pads' distance


@pytest.mark.parametrize("name", ["panda_hand", "robotiq_2f_85"])
def test_driver_and_gap_are_each_others_inverse(name):
    gripper = make_gripper(name)
    made = grasp.compile_hand(gripper, 2 * HALF)
    for gap in np.linspace(0.001, made.gap[2], 7):
        driver = grasp.find_driver(made, gap)
        assert grasp.compute_gap(made, torch.tensor([driver])).item() == pytest.approx(
            gap, abs=1e-6
        )
    assert grasp.find_driver(made, made.gap[0]) == pytest.approx(gripper.closed, abs=1e-6)
    assert grasp.find_driver(made, made.gap[2]) == pytest.approx(gripper.opened, abs=1e-6)


def test_the_pads_of_the_panda_are_twice_its_driver_apart(hand):
    driver = torch.linspace(0, 0.04, 9)
    torch.testing.assert_close(grasp.compute_gap(hand, driver), 2 * driver)


def test_the_pads_of_the_2f_85_are_as_far_apart_as_in_its_urdf():
    """Whose pads are half a millimetre too thin, each: see configs/grippers/robotiq_2f_85.yaml."""
    gripper = make_gripper("robotiq_2f_85")
    links = {link.name: link for link in load_model("gripper", gripper.source).links}

    def place(name: str, driver: float) -> np.ndarray:
        position = dict(zip(gripper.links, gripper.mimic * driver))
        T = np.eye(4)
        link = links[name]
        while link is not None:
            T = link.A(position[link.name] if link.isjoint else 0.0).A @ T
            link = link.parent
        return T[:3, 3]

    made = grasp.compile_hand(gripper, 2 * HALF)
    for driver in np.linspace(gripper.closed, gripper.opened, 9):
        apart = place("right_inner_finger_pad", driver) - place("left_inner_finger_pad", driver)
        expected = abs(apart @ gripper.pads.closing) - 0.00635 - 0.001
        assert grasp.compute_gap(made, torch.tensor([driver])).item() == pytest.approx(
            expected, abs=5e-4
        )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"closing": [0, 2, 0]}, "closing and approach must be unit vectors at a right angle"),
        ({"approach": [0, 1, 0]}, "closing and approach must be unit vectors at a right angle"),
        ({"gap": [0.08, 0.04, 0.0]}, "gap must rise from shut to open"),
        ({"size": 1}, "size must be finite with shape .2"),
        ({"colour": 1}, "unknown key of pads of gripper 'mine' 'colour'"),
    ],
)
def test_pads_that_cannot_be_right_are_named(tmp_path, monkeypatch, changes, words):
    values = yaml.safe_load((gripper.GRIPPERS / "panda_hand.yaml").read_text())
    values["pads"] |= changes
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.setattr(gripper, "GRIPPERS", tmp_path)
    with pytest.raises(ConfigError, match=words):
        make_gripper("mine")


def test_the_lowest_corner_of_the_tips(hand):
    def height(T):
        return grasp.compute_tip_height(hand, T, torch.tensor([0.04])).item()

    assert height(pose(z=0.1)) == pytest.approx(0.1 - 0.0089, abs=1e-6)
    # lying on its side: pads above each other, the lower finger's outside is 0.04 + 0.0144 below
    assert height(pose(z=0.1, R=about_x(math.pi / 2))) == pytest.approx(0.1 - 0.0544, abs=1e-6)


# Pushing


def test_far_away_nothing_happens(hand):
    cube, held, gap = grasp.move_cube(hand, pose(0.3), pose(0.29), at(), FREE, WIDE, WIDE - 0.01)
    near(cube, 0, 0, HALF)
    assert not held.item() and gap.item() == pytest.approx(0.07)


def test_around_the_cube_without_touching_nothing_moves(hand):
    cube, held, _ = grasp.move_cube(hand, pose(z=0.1), pose(y=0.01), at(), FREE, WIDE, WIDE)
    near(cube, 0, 0, HALF)
    assert not held.item()


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_pad_takes_the_cube_along_on_its_inner_side(hand, sign):
    """The pads are 20 mm from the cube on either side: 30 mm sideways push it by 10."""
    cube, _, _ = grasp.move_cube(hand, pose(), pose(y=0.03 * sign), at(), FREE, WIDE, WIDE)
    near(cube, 0, 0.01 * sign, HALF)


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_finger_takes_the_cube_along_on_its_outer_side(hand, sign):
    """A finger's outside is 40 + 14.4 mm from the middle, so the cube stays 74.4 mm away."""
    cube, _, _ = grasp.move_cube(
        hand, pose(y=-0.1 * sign), pose(y=-0.05 * sign), at(), FREE, WIDE, WIDE
    )
    near(cube, 0, 0.0244 * sign, HALF)


def test_shut_fingers_push_across(hand):
    """Half a pad, 8.5 mm, and half a cube."""
    shut = torch.zeros(1)
    cube, _, _ = grasp.move_cube(hand, pose(-0.05), pose(-0.01), at(), FREE, shut, shut)
    near(cube, 0.0185, 0, HALF)


def test_a_cube_that_slips_goes_round_the_edge_of_a_finger_as_a_disc_does(hand):
    """Pushed by shut fingers across, 8.5 mm to either side: with its middle before them it stays
    there, beside them it touches the edge at 2 cm all the way, and moves to its own side.
    """
    slips = dataclasses.replace(hand, slips=True)
    shut = torch.tensor([0.0])
    face = hand.pad
    # closes along x of the base, and pushes along y
    turned = torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 0, -1]])
    reach = hand.finger  # of the shut fingers, to either side of the middle
    for aside in (0.5 * reach, -0.5 * reach, reach + 0.006, -reach - 0.006):
        cube = torch.tensor([[aside, 0.0, HALF]])
        for step in range(30):
            T = [pose(y=-0.05 + 0.003 * (step + i), R=turned) for i in (0, 1)]
            cube, _, _ = grasp.move_cube(slips, *T, cube, FREE, shut, shut)
        edge = torch.tensor([math.copysign(reach, aside), T[1][0, 1, 3] + face])
        if abs(aside) < reach:
            assert cube[0, 0].item() == pytest.approx(aside, abs=1e-6)
            assert cube[0, 1].item() == pytest.approx(edge[1].item() + HALF, abs=1e-5)
        else:
            assert abs(cube[0, 0]) > abs(aside) + 0.005
            assert torch.linalg.vector_norm(cube[0, :2] - edge).item() >= HALF - 1e-5


def test_the_palm_pushes_a_cube_that_no_finger_touches(hand):
    """A hand level above the table, its fingers reaching over the cube: the palm is 37.4 mm behind
    the TCP.
    """
    level = torch.tensor([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]])  # approach along x, closing along y
    cube, _, _ = grasp.move_cube(
        hand, pose(-0.02, R=level), pose(0.03, R=level), at(), FREE, WIDE, WIDE
    )
    near(cube, 0.03 - 0.0374 + HALF, 0, HALF)


def test_at_the_end_of_a_step_nothing_overlaps():
    """500 random hands, tilted, turned and opened at random, pass the cube, each on a straight
    line.
    """
    generator = torch.Generator().manual_seed(0)

    def draw(low, high):
        return low + (high - low) * torch.rand(500, generator=generator)

    hand = grasp.compile_hand(make_gripper("panda_hand"), 2 * HALF)
    zero = torch.zeros(500)
    angle = draw(0, 2 * math.pi)
    aside = draw(-0.05, 0.05)
    speed = draw(0.005, 0.08)
    gap = draw(0, 0.08)
    turn = torch.stack((torch.cos(angle), zero, zero, torch.sin(angle)), 1)
    tilt = draw(-0.1, 0.1)  # half of it; more, and finger and palm touch at once
    R = (
        to_matrix(turn)
        @ to_matrix(torch.stack((torch.cos(tilt), torch.sin(tilt), zero, zero), 1))
        @ DOWN
    )
    across = draw(0, 2 * math.pi)
    ahead = torch.stack((torch.cos(across), torch.sin(across)), 1)
    side = torch.stack((-torch.sin(across), torch.cos(across)), 1)
    gap = torch.where((gap - 2 * HALF).abs() < 2e-3, 0.06, gap)  # such pads may take hold of it
    cube = at().repeat(500, 1)
    held = torch.zeros(500, dtype=torch.bool)

    def hands(k: int) -> torch.Tensor:
        T = torch.eye(4).repeat(500, 1, 1)
        T[:, :3, :3] = R
        T[:, 2, 3] = 0.03
        T[:, :2, 3] = side * aside[:, None] + ahead * (speed * k)[:, None]
        return T

    moved = torch.zeros(500, dtype=torch.bool)
    for k in range(-40, 40):
        cube, held, _ = grasp.move_cube(hand, hands(k - 1), hands(k), cube, held, gap, gap)
        p = grasp.transform_to_hand(
            grasp.compute_hand_axes(hand, hands(k)), hands(k)[:, :3, 3], cube
        )
        # in each box, from each of its sides
        depth = grasp._make_boxes(hand, gap) - torch.cat((p, -p), 1).T
        assert depth.amin(1).max() < 1e-3
        assert not held.any() and (cube[:, 2] == HALF).all()
        moved |= (cube[:, :2] != 0).any(1)
    assert moved.float().mean() > 0.5


@pytest.mark.parametrize("speed", [0.01, 0.04, 0.08])
@pytest.mark.parametrize(
    ("angle", "front"), [(0.0, 0.0085), (math.pi / 2, 0.0144), (math.pi, 0.0085)]
)
def test_no_shut_hand_passes_through_the_cube(hand, speed, angle, front):
    """At up to 1.6 m/s, and wherever its steps begin, it has the cube ahead of it."""
    ahead = (math.cos(angle), math.sin(angle))
    shut = torch.zeros(1)
    for begin in np.linspace(-0.12, -0.12 + speed, 7):
        cube = at()
        where = begin
        while where < 0.2:
            T = [pose(ahead[0] * d, ahead[1] * d) for d in (where, where + speed)]
            cube, _, _ = grasp.move_cube(hand, *T, cube, FREE, shut, shut)
            where += speed
        assert cube[0, 0] * ahead[0] + cube[0, 1] * ahead[1] == pytest.approx(
            where + front + HALF, abs=1e-4
        )


# Pressing


def press(hand, T_before, T_after, gap=0.08, held=FREE, before=0.0) -> float:
    scene = {"object": at(), "held": held, "contact_depth": torch.tensor([before])}
    return grasp.compute_press_depth(hand, T_before, T_after, scene, torch.tensor([gap])).item()


def test_a_finger_from_above_is_on_the_cube_however_that_is_turned(hand):
    """Its tip 8.9 mm beyond the TCP, the cube's top at 40 mm, its corners 28.3 mm from its
    middle.
    """
    down = pose(z=0.1), pose(z=0.045)
    assert press(hand, *down, gap=0.08) == press(hand, *down, gap=0.057) == 0.0
    assert press(hand, *down, gap=0.056) == pytest.approx(0.0039, abs=1e-6)
    aside = pose(y=0.013, z=0.1), pose(y=0.013, z=0.045)  # 40 - 13 mm from the middle to the pad
    assert press(hand, *aside, gap=0.08) == pytest.approx(0.0039, abs=1e-6)
    assert press(hand, *down, gap=0.056, held=HELD) == 0.0


def test_a_finger_that_comes_from_beside_is_not(hand):
    assert press(hand, pose(y=0.2), pose(y=0.05)) == 0.0


def test_it_stays_on_the_cube_until_it_is_over_it_or_beside_it_again(hand):
    low = pose(y=0.04, z=0.03)
    assert press(hand, low, low) == 0.0
    assert press(hand, low, low, before=0.01) == pytest.approx(0.0189, abs=1e-6)
    assert press(hand, low, pose(y=0.04, z=0.06), before=0.01) == 0.0
    assert press(hand, low, pose(y=0.2, z=0.03), before=0.01) == 0.0


# Grasping


def shut_around(hand, T, cube, steps: int = 30, gap: torch.Tensor = WIDE):
    held = FREE
    for _ in range(steps):
        cube, held, gap = grasp.move_cube(hand, T, T, cube, held, gap, (gap - 0.005).clamp_min(0.0))
    return cube, held, gap


def test_shutting_pads_centre_the_cube_and_stop_at_it(hand):
    cube, held, gap = shut_around(hand, pose(), at(0.003, 0.015))
    near(cube, 0.003, 0, HALF)
    assert held.item() and gap.item() == pytest.approx(0.04)


def test_one_pad_alone_holds_nothing(hand):
    _, held, _ = grasp.move_cube(
        hand, pose(), pose(), at(0, 0.019), FREE, WIDE, torch.tensor([0.05])
    )
    assert not held.item()


@pytest.mark.parametrize(
    ("T", "cube", "holds"),
    [  # 10 mm of overlap needed: across of 8.5 + 20, down of 8.9 + 20, up of 8.1 + 20
        (pose(), at(0.0184), True),
        (pose(), at(0.0186), False),
        (pose(z=0.0388), at(), True),
        (pose(z=0.0390), at(), False),
        (pose(z=0.0020), at(), True),
        (pose(z=0.0018), at(), False),
        (pose(R=about_x(math.radians(29))), at(), True),
        (pose(R=about_x(math.radians(31))), at(), False),
    ],
)
def test_a_grasp_needs_a_centimetre_of_overlap_and_level_pads(hand, T, cube, holds):
    # the Panda's would touch the cube before the pads' upper end
    hand = dataclasses.replace(hand, palm=(0.1, 0.03, 0.1))
    _, held, gap = shut_around(hand, T, cube)
    assert held.item() == holds
    assert gap.item() == pytest.approx(0.04)  # held or not, the cube is in between


def test_a_held_cube_goes_and_turns_with_the_hand(hand):
    """A quarter turn about the vertical takes what was 5 mm along x of the TCP to 5 mm along y."""
    grip = torch.tensor([0.04])
    quarter = torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]) @ DOWN
    after = pose(0.3, 0.1, 0.25, quarter)
    cube, held, gap = grasp.move_cube(hand, pose(), after, at(0.005, 0), HELD, grip, torch.zeros(1))
    near(cube, 0.3, 0.105, 0.25)
    assert held.item() and gap.item() == pytest.approx(0.04)


def opening_to(hand, gap: float):
    """A step of a hand high up, which holds the cube and opens."""
    high = pose(0.1, 0.2, 0.3)
    grip = torch.tensor([0.04])
    return grasp.move_cube(hand, high, high, at(0.1, 0.2, 0.3), HELD, grip, torch.tensor([gap]))


def test_a_cube_let_go_falls_to_the_table(hand):
    cube, held, gap = opening_to(hand, 0.042)
    near(cube, 0.1, 0.2, HALF)
    assert not held.item() and gap.item() == pytest.approx(0.042)


def test_pads_that_open_by_less_than_they_are_soft_still_hold(hand):
    assert opening_to(hand, 0.0409)[1].item() and not opening_to(hand, 0.0411)[1].item()


@pytest.mark.parametrize("width", (0.036, 0.054))
def test_what_forces_hold_at_another_width_is_held_until_the_pads_open(hand, width):
    """A cube of 40 mm that is turned in the pads is 54 mm wide; one that is smaller than it is said
    to be, 36.
    """
    high = pose(0.1, 0.2, 0.3)
    for wanted, stays in ((0.0, True), (width + 0.0009, True), (width + 0.0011, False)):
        gaps = torch.tensor([width]), torch.tensor([wanted])
        cube, held, gap = grasp.move_cube(hand, high, high, at(0.1, 0.2, 0.3), HELD, *gaps)
        assert held.item() is stays and gap.item() == pytest.approx(max(width, wanted))
        assert cube[0, 2].item() == pytest.approx(0.3 if stays else HALF)


def test_a_held_cube_is_not_pressed_into_the_table(hand):
    grip = torch.tensor([0.04])
    cube, held, _ = grasp.move_cube(hand, pose(z=0.02), pose(z=0.01), at(), HELD, grip, grip)
    near(cube, 0, 0, HALF)
    assert held.item()
    cube, held, _ = grasp.move_cube(hand, pose(z=0.02), pose(z=-0.015), at(), HELD, grip, grip)
    assert not held.item()  # slid out of the pads


def test_hands_in_a_batch_do_not_know_each_other(hand):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.rand(*shape, generator=generator) - 0.5

    T = [
        torch.cat([pose(*(0.1 * draw(3)).tolist(), R=about_x(draw(1).item())) for _ in range(200)])
        for _ in range(2)
    ]
    cube = torch.cat((0.05 * draw(200, 2), torch.full((200, 1), HALF)), 1)
    held = draw(200) > 0.2
    gaps = [(0.04 + 0.08 * draw(200)).clamp(0, 0.08) for _ in range(2)]
    together = grasp.move_cube(hand, *T, cube, held, *gaps)
    alone = [
        grasp.move_cube(hand, *(x[i : i + 1] for x in (*T, cube, held, *gaps))) for i in range(200)
    ]
    for whole, parts in zip(together, zip(*alone)):
        torch.testing.assert_close(whole, torch.cat(parts), atol=1e-6, rtol=1e-5)


def test_the_axes_of_the_hand_are_right_handed_whichever_way_it_closes():
    for name, closing in (("panda_hand", 1), ("robotiq_2f_85", 0)):
        axes = grasp.compile_hand(make_gripper(name), 2 * HALF).axes
        torch.testing.assert_close(axes.T @ axes, torch.eye(3))
        assert torch.linalg.det(axes).item() == pytest.approx(1.0)
        assert axes[closing, 1] == 1.0 and axes[2, 2] == 1.0


def test_room_is_what_the_open_pads_leave(hand):
    assert hand.room == pytest.approx(0.04)
    assert dataclasses.replace(hand, half=0.03).room == pytest.approx(0.02)
