"""What an arm is measured wrongly by: all that stands in the world moves together, and the arm goes
by what it sees.
"""

import math

import pytest
import torch
from torch.testing import assert_close

import envs
from envs.config.env_options import KINEMATIC, MUJOCO
from envs.controllers import make_baseline
from envs.kinematics.rotations import rotation_error, rotation_vector, to_matrix
from envs.simulation.calibration import displace_scene, make_pose_error
from envs.simulation.disturbances import Disturbances

OFF = Disturbances(base_offset=0.004, base_turn=0.005)


def test_by_hand_a_base_that_is_a_quarter_turn_off():
    T = make_pose_error(torch.tensor([[0.1, 0.0, 0.0]]), torch.tensor([[0.0, 0.0, math.pi / 2]]))
    level = [1.0, 0.0, 0.0, 0.0]
    seen = displace_scene(
        {
            "goal": torch.tensor([[0.5, 0.0, 0.3, *level]]),
            "goal_velocity": torch.tensor([[0.2, 0.0, 0.0]]),
            "spheres": torch.tensor([[[0.0, 0.4, 0.1, 0.05]]]),
            "boxes": torch.tensor([[[0.5, 0.0, 0.3, 0.1, 0.2, 0.3, *level]]]),
            "walls": torch.tensor([[[1.0, 0.0, 0.0, -0.3]]]),  # solid behind x = -0.3
            "held": torch.tensor([True]),
        },
        T,
    )
    turned = [math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)]

    def close(name, *values):
        return assert_close(seen[name].flatten(), torch.tensor(values), atol=1e-6, rtol=0)

    close("goal", 0.1, 0.5, 0.3, *turned)
    close("goal_velocity", 0.0, 0.2, 0.0)
    close("spheres", -0.3, 0.0, 0.1, 0.05)
    close("boxes", 0.1, 0.5, 0.3, 0.1, 0.2, 0.3, *turned)
    close("walls", 0.0, 1.0, 0.0, -0.3)  # solid behind y = -0.3
    assert seen["held"].all()


@pytest.mark.parametrize("width", [1, 2])
def test_a_goal_that_is_no_place_is_seen_as_it_is(width):
    """A task of one's own may have an angle for its goal."""
    goal = torch.rand(4, width, generator=torch.Generator().manual_seed(0))
    T = make_pose_error(torch.full((4, 3), 0.1), torch.full((4, 3), 0.2))
    assert torch.equal(displace_scene({"goal": goal}, T)["goal"], goal)


@pytest.mark.parametrize(
    ("task", "engine"), [("reach_avoid", KINEMATIC), ("track", KINEMATIC), ("pick_place", MUJOCO)]
)
def test_what_stands_in_the_world_is_seen_elsewhere_as_one_for_a_whole_episode(task, engine):
    if engine == MUJOCO:
        pytest.importorskip("mujoco")
    env = envs.make("panda", task, 3, seed=2, engine=engine, disturbances=OFF)
    for _ in range(2):
        true = env.now.scene
        seen = env.moment.scene
        T = env.now.scene["base_error"]
        for name in {"object", "path"} & true.keys():
            assert_close(
                seen[name],
                (true[name].view(3, -1, 3) @ T[:, :3, :3].mT + T[:, None, :3, 3]).view_as(
                    true[name]
                ),
            )
        places = [scene["goal"][:, None] for scene in (true, seen)]
        if "spheres" in true:
            places = [
                torch.cat((place, scene["spheres"][:, :, :3]), 1)
                for place, scene in zip(places, (true, seen))
            ]
            near = true["spheres"][:, :, 0].abs() < 10.0  # others are parked
            apart = [
                torch.linalg.vector_norm(place[:, 1:] - place[:, :1], dim=2)[near]
                for place in places
            ]
            assert_close(*apart)
        assert (places[1] - places[0])[:, 0].norm(dim=1).min() > 1e-4
        env.step(torch.zeros(3, env.a_dim))
        assert torch.equal(env.now.scene["base_error"], T)


def test_errors_are_as_large_as_was_said():
    T = envs.make("panda", "reach", 4000, disturbances=OFF).now.scene["base_error"]
    assert T[:, :3, 3].std(0).tolist() == pytest.approx([0.004] * 3, rel=0.06)
    assert rotation_vector(T[:, :3, :3]).std(0).tolist() == pytest.approx([0.005] * 3, rel=0.06)


def test_an_arm_goes_where_it_takes_its_goal_to_be_and_that_is_what_it_is_judged_by():
    env = envs.make("panda", "reach", 20, seed=3, disturbances=OFF)
    observation = env.reset(3)
    controller = make_baseline("rrmc", env)
    goal = env.now.scene["goal"]
    seen = env.moment.scene["goal"]
    for _ in range(env.task.horizon):
        step = env.step(controller(observation))
        observation = step.observation
    off = torch.linalg.vector_norm(seen - goal, dim=1)
    assert_close(step.info["tcp"], seen, atol=1e-3, rtol=0)
    assert_close(step.info["position_error"], off, atol=1e-3, rtol=0)


def test_joint_positions_for_a_goal_are_those_of_the_goal_that_is_seen():
    env = envs.make("panda", "reach_pose", 20, seed=3, disturbances=OFF)
    T_be = env.fkine(env.moment.scene["solution"])
    seen = env.moment.scene["goal"]
    there = torch.linalg.vector_norm(T_be[:, :3, 3] - seen[:, :3], dim=1) < 1e-3
    assert there.float().mean() > 0.8  # a goal at the edge may be seen out of reach
    turned = rotation_error(T_be[:, :3, :3], to_matrix(seen[:, 3:]))[there]
    assert turned.abs().max() < 2e-3


@pytest.mark.parametrize("task", ["reach", "reach_pose", "track", "pick_place"])
def test_what_is_remembered_of_a_wrong_tcp_is_observed_and_pays_as_it_did(task):
    """Hindsight goes by the TCP that was measured, not by the true one."""
    env = envs.make("panda", task, 3, seed=1, disturbances=Disturbances(tcp_offset=0.01))
    env.rewards_observed = True
    observation = env.reset(1)
    for action in torch.rand(5, 3, env.a_dim, generator=torch.Generator().manual_seed(2)) * 2 - 1:
        before = env.memory()
        assert_close(env.observe(before), observation, rtol=1e-4, atol=1e-5)
        step = env.step(action)
        goal = step.next_observation[:, env.layout["goal"]]
        again = env.relabel(before, action, env.memory(arrived=True), goal)
        for mine, given in zip(again, (observation, step.next_observation, step.reward)):
            assert_close(mine, given, rtol=1e-4, atol=1e-5)
        observation = step.observation
