"""What a scene looks like, against its definition."""

import numpy as np
import pytest
import torch
from spatialmath import UnitQuaternion

import envs
from envs.collision import Obstacles
from envs.collision.obstacles import FAR
from envs.tasks.shapes import make_obstacle_shapes


@pytest.fixture(scope="module")
def env():
    return envs.make("panda", "reach", num_envs=2)


def shapes(env, **obstacles) -> list:
    """Those of the first arm's obstacles."""
    return make_obstacle_shapes(Obstacles(**obstacles), env.world.workspace)


def two(*first) -> torch.Tensor:
    """(2, 1, k): one thing for each arm, and the second one's is another."""
    return torch.tensor([[first], [[0.1] * len(first)]])


def test_a_position_goal_is_a_sphere(env):
    (goal,) = env.task.make_shapes(env.world, env.moment)
    assert goal.kind == "sphere"
    np.testing.assert_allclose(goal.T_bs[:3, 3], env.goal[0])


def test_a_pose_goal_has_axes_along_its_orientation():
    env = envs.make("panda", "reach_pose", num_envs=2)
    axes, sphere = env.task.make_shapes(env.world, env.moment)
    assert (axes.kind, sphere.kind) == ("axes", "sphere")
    goal = env.goal[0].double().numpy()
    np.testing.assert_allclose(axes.T_bs[:3, :3], UnitQuaternion(goal[3:]).R, atol=1e-6)
    np.testing.assert_allclose(axes.T_bs[:3, 3], goal[:3])


def test_obstacles_have_their_place_and_size(env):
    (ball,) = shapes(env, spheres=two(0.4, 0.1, 0.3, 0.07))
    assert ball.kind == "sphere" and ball.size == pytest.approx((0.07,))
    np.testing.assert_allclose(ball.T_bs[:3, 3], [0.4, 0.1, 0.3], atol=1e-7)
    turned = UnitQuaternion.Rz(0.5)
    (box,) = shapes(env, boxes=two(0.5, 0.0, 0.2, 0.1, 0.05, 0.02, *turned.vec.tolist()))
    assert box.kind == "box" and box.size == pytest.approx((0.2, 0.1, 0.04))
    np.testing.assert_allclose(box.T_bs[:3, :3], turned.R, atol=1e-6)
    np.testing.assert_allclose(box.T_bs[:3, 3], [0.5, 0.0, 0.2], atol=1e-7)


@pytest.mark.parametrize(
    "normal", [(0.0, 0.0, 1.0), (0.0, 0.0, -1.0), (0.6, -0.8, 0.0), (1.0, 0.0, 0.0)]
)
def test_a_wall_is_a_sheet_whose_outer_face_is_the_surface(env, normal):
    (wall,) = shapes(env, walls=two(*normal, -0.15))
    half = np.array(wall.size) / 2
    corners = [
        wall.T_bs @ [*(half * sides), 1]
        for sides in np.array(np.meshgrid(*[(-1, 1)] * 3)).T.reshape(-1, 3)
    ]
    along = np.sort(np.array(corners)[:, :3] @ normal)
    np.testing.assert_allclose(along[4:], -0.15, atol=1e-6)  # the surface
    assert (along[:4] < -0.15 - 1e-3).all()  # the other face is inside what is solid
    np.testing.assert_allclose(np.linalg.det(wall.T_bs[:3, :3]), 1)
    middle = env.world.workspace.mean(0).double().numpy()
    # beside the middle
    np.testing.assert_allclose(np.cross(wall.T_bs[:3, 3] - middle, normal), 0, atol=1e-6)
    assert wall.colour[3] < 0.5


def test_spare_obstacles_are_not_drawn(env):
    spare = shapes(
        env,
        spheres=two(FAR, FAR, FAR, 0.1),
        boxes=two(FAR, FAR, FAR, 0.1, 0.1, 0.1, 1.0, 0.0, 0.0, 0.0),
        walls=two(0.0, 0.0, 1.0, -FAR),
    )
    assert spare == []


def test_only_what_looks_another_way_is_another_shape(env):
    here, there = (shapes(env, spheres=two(x, 0.1, 0.3, 0.07))[0] for x in (0.4, 0.5))
    larger = shapes(env, spheres=two(0.4, 0.1, 0.3, 0.08))[0]
    assert here.look == there.look != larger.look


def test_a_moving_goal_has_its_path_and_a_cube_is_where_it_is():
    env = envs.make("panda", "track", num_envs=2)
    goal, line = env.task.make_shapes(env.world, env.moment)
    assert (goal.kind, line.kind) == ("sphere", "line")
    np.testing.assert_allclose(line.points, env.moment.scene["path"][0])
    env = envs.make("panda", "pick_place", num_envs=2)
    goal, cube = env.task.make_shapes(env.world, env.moment)
    assert (goal.kind, cube.kind, cube.size) == ("sphere", "box", (0.04,) * 3)
    np.testing.assert_allclose(cube.T_bs[:3, 3], env.moment.scene["object"][0])
