"""Queries on whole arms: what one configuration gets in a batch and alone, obstacles, the ground,
the pairs.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
import roboticstoolbox as rtb
import torch
from torch.testing import assert_close

import envs.collision.files
from envs.collision import (
    Obstacles,
    clearance,
    compile_collision,
    ground_distance,
    link_poses,
    obstacle_distance,
    pair_distances,
    self_distance,
)
from envs.collision.compiler import place_capsules
from envs.collision.files import Shapes, read_capsules
from envs.collision.obstacles import FAR
from envs.collision.pairs import choose_pairs
from envs.collision.queries import CACHE_ROWS, compute_segments
from envs.collision.surroundings import measure_obstacles, obstacle_distances
from envs.kinematics import compile_ets
from envs.robots import Robot, make_robot
from envs.robots.body import take_links
from td3_robot.errors import ConfigError


@pytest.fixture(scope="module")
def panda():
    robot = make_robot("panda")
    return robot, compile_collision(robot)


def draw(robot, count: int) -> torch.Tensor:
    lower, upper = torch.tensor(robot.qlim, dtype=torch.float32)
    return lower + (upper - lower) * torch.rand(count, robot.n)


def random_obstacles(count: int) -> Obstacles:
    def near(*shape: int) -> torch.Tensor:
        return torch.rand(count, *shape, 3) * 1.6 - 0.8

    quaternions = torch.nn.functional.normalize(torch.randn(count, 3, 4), dim=2)
    normals = torch.nn.functional.normalize(torch.randn(count, 1, 3), dim=2)
    return Obstacles(
        spheres=torch.cat((near(2), 0.1 * torch.rand(count, 2, 1)), 2),
        boxes=torch.cat((near(3), 0.02 + 0.2 * torch.rand(count, 3, 3), quaternions), 2),
        walls=torch.cat((normals, torch.full((count, 1, 1), -0.7)), 2),
    )


@pytest.mark.parametrize("name", ["panda", "ur5e", "wx250s"])
def test_no_pair_is_near_wherever_the_arm_is(name):
    """Else a guard brakes for it in every position."""
    robot = make_robot(name)
    distances = pair_distances(compile_collision(robot), draw(robot, 2000))
    assert (distances.amax(0) > 0.05).all()


def test_link_poses_are_roboticstoolboxs(panda):
    robot, model = panda
    q = draw(robot, 20)
    found = link_poses(model, q)
    names = {link.name: link.number for link in robot.rtb.links}
    for row, T in zip(q.numpy(), found.numpy()):
        poses = robot.rtb.fkine_all(row.astype(float))
        for link, pose in zip(model.links, T):
            if link in names:
                np.testing.assert_allclose(pose, poses[names[link]].A, atol=1e-5)


def test_a_batch_is_its_rows_one_by_one_whatever_pieces_it_is_cut_into(panda):
    robot, model = panda
    q = draw(robot, 2 * CACHE_ROWS + 3)
    obstacles = random_obstacles(len(q))
    for rows in (slice(0, 1), slice(CACHE_ROWS - 1, CACHE_ROWS + 1), slice(len(q) - 1, None)):
        alone = obstacles.select_rows(rows)
        assert_close(pair_distances(model, q)[rows], pair_distances(model, q[rows]))
        assert_close(self_distance(model, q)[rows], self_distance(model, q[rows]))
        assert_close(ground_distance(model, q)[rows], ground_distance(model, q[rows]))
        assert_close(
            obstacle_distance(model, q, obstacles)[rows], obstacle_distance(model, q[rows], alone)
        )
        assert_close(
            clearance(model, q, obstacles, 0.0)[rows], clearance(model, q[rows], alone, 0.0)
        )


def test_clearance_is_the_least_of_all_that_is_asked_for(panda):
    robot, model = panda
    q = draw(robot, 300)
    obstacles = random_obstacles(300)
    own = self_distance(model, q)
    ground = ground_distance(model, q, 0.1)
    around = obstacle_distance(model, q, obstacles)
    assert_close(own, pair_distances(model, q).amin(1))
    assert_close(clearance(model, q), own)
    assert_close(clearance(model, q, ground=0.1), torch.minimum(own, ground))
    assert_close(clearance(model, q, obstacles), torch.minimum(own, around))
    assert_close(
        clearance(model, q, obstacles, 0.1), torch.minimum(torch.minimum(own, around), ground)
    )


def test_obstacles_add_up_and_parked_ones_do_not_count(panda):
    robot, model = panda
    q = draw(robot, 50)
    all_kinds = random_obstacles(50)
    kinds = [
        replace(Obstacles(), **{name: getattr(all_kinds, name)})
        for name in ("spheres", "boxes", "walls")
    ]
    one_by_one = torch.stack([obstacle_distance(model, q, kind) for kind in kinds])
    assert_close(obstacle_distance(model, q, all_kinds), one_by_one.amin(0))
    parked = Obstacles(
        spheres=torch.tensor([[[FAR, 0, 0, 0.1]]]),
        boxes=torch.tensor([[[0, FAR, 0, 0.1, 0.1, 0.1, 1, 0, 0, 0]]]),
        walls=torch.tensor([[[0, 0, 1, -FAR]]]),
    )
    assert (obstacle_distance(model, q, parked) > 0.9 * FAR).all()
    assert (obstacle_distance(model, q, Obstacles()) == torch.inf).all()


def test_shared_obstacles_are_the_same_for_every_environment(panda):
    robot, model = panda
    q = draw(robot, 700)
    one = random_obstacles(1)
    each = Obstacles(
        *(getattr(one, name).expand(700, -1, -1) for name in ("spheres", "boxes", "walls"))
    )
    assert_close(obstacle_distance(model, q, one), obstacle_distance(model, q, each))


def test_a_wall_moved_up_comes_nearer_by_as_much(panda):
    robot, model = panda
    q = draw(robot, 50)
    walls = [Obstacles(walls=torch.tensor([[[0.0, 0, 1, height]]])) for height in (-1.0, -0.75)]
    far, near = (obstacle_distance(model, q, wall) for wall in walls)
    assert_close(far - near, torch.full((50,), 0.25))
    assert_close(
        ground_distance(model, q, -1.0) - ground_distance(model, q, -0.75), torch.full((50,), 0.25)
    )


def test_ground_distance_is_the_lowest_point_of_what_can_be_lifted(panda):
    robot, model = panda
    q = draw(robot, 200)
    hand = sum(read_capsules("panda_hand").links.values(), [])
    capsules = {**read_capsules("panda").links, "panda_hand": hand}
    lowest = torch.full((200,), torch.inf)
    for link, T in zip(model.links, link_poses(model, q).unbind(1)):
        if link not in ("panda_link0", "panda_link1"):
            for *ends, radius in torch.tensor(
                np.array(capsules[link]), dtype=torch.float32
            ).tolist():
                heights = T[:, 2, :3] @ torch.tensor(ends).view(2, 3).T + T[:, 2, 3:]
                lowest = torch.minimum(lowest, heights.amin(1) - radius)
    assert_close(ground_distance(model, q, 0.05), lowest - 0.05)


def test_nothing_waits_for_the_device(panda):
    """On the meta device a tensor has no values: whoever asks for one raises."""
    robot, model = panda
    q = draw(robot, 8).to("meta")
    obstacles = random_obstacles(8)
    obstacles = Obstacles(
        *(getattr(obstacles, name).to("meta") for name in ("spheres", "boxes", "walls"))
    )
    assert clearance(model.to("meta"), q, obstacles, 0.0).shape == (8,)
    assert pair_distances(model.to("meta"), q).shape == (8, len(model.pairs))


def test_clearance_has_a_gradient(panda):
    robot, model = panda
    q = draw(robot, 5).double().requires_grad_()
    model = replace(
        model,
        chain=model.chain.to(dtype=torch.float64),
        points=tuple((body, local.double()) for body, local in model.points),
        length_squared=model.length_squared.double(),
        radius=model.radius.double(),
    )
    clearance(model, q).sum().backward()
    step = 1e-6 * torch.randn(5, robot.n, dtype=torch.float64)
    change = (clearance(model, q + step) - clearance(model, q - step)).detach() / 2
    assert_close((q.grad * step).sum(1), change, atol=1e-10, rtol=1e-3)


def test_the_panda_is_clear_at_home_and_not_when_folded(panda):
    robot, model = panda
    q = torch.tensor(
        np.stack((robot.home, [0, 1.76, 0, -2.9, 0, 2.0, 0], [0, 0, 0, -3.07, 0, -0.01, 0])).astype(
            "f4"
        )
    )
    assert self_distance(model, q)[0] > 0.02
    assert ground_distance(model, q)[0] > 0.2
    assert ground_distance(model, q)[1] < 0
    assert self_distance(model, q)[2] < 0.02


def planar_arm(reach: float) -> Robot:
    """Four links of 1 m that turn in the plane, the last joints by so much; a gripper it has
    none.
    """
    ets = rtb.ETS([part for _ in range(4) for part in (rtb.ET.Rz(), rtb.ET.tx(1))])
    chain = compile_ets(ets)
    qlim = np.array([[-3.0, -reach, -reach, -reach], [3.0, reach, reach, reach]])
    home = np.array([0.0, 0.1, 0.1, 0.1])
    box = np.array([[-4.0, -4.0, -1.0], [4.0, 4.0, 1.0]])
    model = rtb.Robot(ets)
    limits = (home, qlim, np.ones(4), None, box, None)
    return Robot("planar", lambda: model, take_links(model), chain, *limits)


def compiled(robot: Robot, radius: float):
    """A capsule along most of each link, from its joint on."""
    shapes = {link.name: [np.array([0, 0, 0, 0.8, 0, 0, radius])] for link in robot.rtb.links[:4]}
    return choose_pairs(place_capsules(robot, Shapes(shapes)), robot.qlim, robot.home)


def test_pairs_of_a_planar_arm():
    """Bending by 10 degrees a joint it cannot reach itself; by 150 degrees it can, but a neighbour
    is not checked.
    """
    stiff = planar_arm(0.17)
    free = planar_arm(2.6)
    names = [link.name for link in stiff.rtb.links]
    far = {(names[0], names[2]), (names[0], names[3]), (names[1], names[3])}
    model = compiled(stiff, 0.05)
    assert (
        model.pairs == []
        and {pair[:2] for pair in model.allowed if pair[2] == "never close"} == far
    )
    model = compiled(free, 0.05)
    assert set(model.pairs) == far and {pair[2] for pair in model.allowed} == {"neighbours"}
    model = compiled(stiff, 0.65)  # links two apart overlap even when it is nearly straight
    assert {pair for pair in model.allowed if pair[2] == "touch at home"} == {
        (names[0], names[2], "touch at home"),
        (names[1], names[3], "touch at home"),
    }


def test_an_arm_with_nothing_to_check_is_infinitely_clear_of_itself():
    robot = planar_arm(0.17)
    model = compiled(robot, 0.05)
    q = torch.zeros(3, 4)
    assert (self_distance(model, q) == torch.inf).all()
    assert pair_distances(model, q).shape == (3, 0)
    assert (
        ground_distance(model, q) == torch.inf
    ).all()  # it turns in a level plane: nothing is lifted


def test_pairs_are_the_same_every_time(panda):
    robot, model = panda
    again = compile_collision(robot)
    assert again.pairs == model.pairs and again.allowed == model.allowed
    assert torch.equal(again.over_ground, model.over_ground)


def test_pairs_that_the_file_says_never_come_close_are_not_checked(panda):
    _, model = panda
    assert ("panda_link5", "panda_link7", "meshes never close") in model.allowed
    assert not {pair[:2] for pair in model.allowed} & set(model.pairs)


def test_the_base_is_not_held_against_the_ground(panda):
    _, model = panda
    names = {model.links[model.capsule_links[capsule]] for capsule in model.over_ground.tolist()}
    assert {"panda_hand", "panda_link4"} <= names
    assert not names & {"panda_link0", "panda_link1"}


@pytest.mark.parametrize(
    "text, named",
    [
        ("links: {}", "links"),
        ("capsules: {}", "links"),
        ("links: {panda_link0: [[0, 0, 0, 0, 0, 1]]}", "panda_link0"),
        ("links: {panda_link0: []}", "panda_link0"),
        ("links: {panda_link0: [[0, 0, 0, 0, 0, 1, 0]]}", "radius"),
        ("links: {panda_link0: [[0, 0, 0, 0, 0, 1, .nan]]}", "panda_link0"),
        ("links: {elbow: [[0, 0, 0, 0, 0, 1, 0.1]]}", "elbow"),
        (
            "links: {panda_link0: [[0, 0, 0, 0, 0, 1, 0.1]]}\nnever_close: [[panda_link0, elbow]]",
            "elbow",
        ),
        (
            "links: {panda_link0: [[0, 0, 0, 0, 0, 1, 0.1]]}\nnever_close: [panda_link0]",
            "never_close",
        ),
        (
            "links: {panda_link0: [[0, 0, 0, 0, 0, 1, 0.1]]}\nmoving: "
            "{finger: [[0, 0, 0, 0, 0, 1, 0.1]]}",
            "corners",
        ),
        (
            "links: {panda_link0: [[0, 0, 0, 0, 0, 1, 0.1]]}\nmoving: "
            "{finger: [[0, 0, 0, 0, 0, 1, 0.1]]}\n"
            "corners: {thumb: [[0, 0, 1]]}",
            "thumb",
        ),
    ],
)
def test_a_file_that_is_wrong_is_named_with_its_fault(tmp_path, monkeypatch, panda, text, named):
    monkeypatch.setattr(envs.collision.files, "CAPSULES", tmp_path)
    (tmp_path / "panda.yaml").write_text(text)
    (tmp_path / "panda_hand.yaml").write_text("links: {panda_hand: [[0, 0, 0, 0, 0, 1, 0.1]]}")
    with pytest.raises(ConfigError, match=named) as caught:
        compile_collision(panda[0])
    assert "\n" not in str(caught.value) and "panda" in str(caught.value)


def test_a_robot_without_a_file_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setattr(envs.collision.files, "CAPSULES", tmp_path)
    with pytest.raises(ConfigError, match="python -m envs.collision.fitting panda"):
        read_capsules("panda")


@pytest.mark.parametrize("field, size", [("spheres", 3), ("boxes", 6), ("walls", 3)])
def test_obstacles_of_a_wrong_shape_are_refused(field, size):
    with pytest.raises(ValueError, match=field):
        Obstacles(**{field: torch.zeros(2, 1, size)})


@pytest.mark.parametrize("shape", [(7,), (5, 6), (2, 5, 7)])
def test_configurations_of_another_shape_are_refused(shape):
    model = compile_collision(make_robot("panda"))
    with pytest.raises(ConfigError, match=re.escape(f"q must have shape (B, 7), got {shape}")):
        self_distance(model, torch.zeros(shape))


def test_of_one_environment_none_may_be_chosen():
    one = Obstacles(spheres=torch.ones(1, 2, 4))
    for mask, count in (
        (torch.tensor([False]), 0),
        (torch.tensor([True]), 1),
        (torch.tensor([True, False]), 1),
    ):
        assert len(one.select_rows(mask).spheres) == count
    assert len(one.select_rows(slice(3, 7)).spheres) == 1  # shared by all


@pytest.mark.parametrize("within", [-0.05, 0.02, 0.3, torch.inf])
def test_boxes_that_are_too_far_to_matter_are_bounded(panda, within):
    """What is nearer than asked for is as without bounds, and nothing else seems so."""
    robot, model = panda
    q = draw(robot, 500)
    obstacles = random_obstacles(500)
    segments = compute_segments(model, q)
    exact = torch.cat([each for each, _, _ in measure_obstacles(model, *segments, obstacles)], 1)
    found = obstacle_distances(model, *segments, obstacles, within)
    near = exact < within
    assert near.any() and torch.equal(found[near], exact[near])
    assert (found[~near] >= within).all()
    least = torch.minimum(self_distance(model, q), exact.flatten(0, 1).amin(0))
    assert torch.equal(clearance(model, q, obstacles, within=within), least.clamp(max=within))
