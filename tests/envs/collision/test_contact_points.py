"""Where an arm touches what is around it."""

import pytest
import torch

from envs.collision import (
    Obstacles,
    clearance,
    compile_collision,
    compiler,
    find_contact_points,
    link_clearance,
)
from envs.kinematics import fkine
from envs.robots import make_robot


@pytest.fixture(scope="module")
def robot():
    return make_robot("panda")


@pytest.fixture(scope="module")
def model(robot):
    return compile_collision(robot)


def test_an_arm_that_is_free_touches_nowhere(robot, model):
    home = torch.tensor(robot.home, dtype=torch.float32)[None]
    assert clearance(model, home, ground=0.0) > 0
    assert find_contact_points(model, home, ground=0.0).shape == (0, 3)


def test_a_ball_is_touched_half_way_into_the_overlap(robot, model):
    """Every point is within the ball, and as deep in it as in the link: half the depth of that link
    each.
    """
    home = torch.tensor(robot.home, dtype=torch.float32)[None]
    tcp = fkine(robot.chain, home)[0, :3, 3]
    radius = 0.08
    ball = Obstacles(spheres=torch.cat((tcp, torch.tensor([radius])))[None, None])
    points = find_contact_points(model, home, ball)
    deep = -link_clearance(model, home, ball).min().item()
    inside = radius - torch.linalg.vector_norm(points - tcp, dim=1)
    assert len(points) > 0 and deep > 0
    assert inside.max().item() == pytest.approx(deep / 2, abs=1e-5) and inside.min() > 0


def test_the_ground_is_touched_on_the_ground(robot, model):
    down = torch.tensor([[0.0, 1.7, 0.0, -0.2, 0.0, 1.5, 0.0]])
    assert clearance(model, down, ground=0.0) < 0
    points = find_contact_points(model, down, ground=0.0)
    assert (points[:, 2].abs() < 1e-6).any()


def test_an_arm_touches_itself_between_both_surfaces(robot, model):
    folded = torch.tensor([[0.0, -1.7, 0.0, -3.07, 0.0, 3.7, 0.0]])
    depth = clearance(model, folded)
    if depth < 0:
        points = find_contact_points(model, folded)
        moved = find_contact_points(model, folded + torch.tensor([[0.5, 0, 0, 0, 0, 0, 0]]))
        turn = torch.tensor([[0.87758, -0.47943, 0], [0.47943, 0.87758, 0], [0, 0, 1.0]])
        # it turns with the arm
        torch.testing.assert_close(moved, points @ turn.T, atol=1e-3, rtol=0)


def test_pairs_are_chosen_once_and_anew_for_what_differs(monkeypatch):
    """Other limits bring other links together; what was found for the former ones is not taken for
    them.
    """
    robot = make_robot("panda")
    first = compile_collision(robot)
    chosen = []
    real = compiler.choose_pairs
    monkeypatch.setattr(compiler, "choose_pairs", lambda *what: chosen.append(what) or real(*what))
    assert compile_collision(make_robot("panda")).pairs == first.pairs and not chosen
    robot.qlim = robot.home + 0.01 * (robot.qlim - robot.home)  # it can hardly move
    assert len(compile_collision(robot).pairs) < len(first.pairs) and len(chosen) == 2
