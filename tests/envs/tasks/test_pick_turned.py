"""Picking a cube that lies turned and stops fingers: scenes, what a finger on it costs, and that it
can be done.
"""

import math
from dataclasses import replace

import torch

from envs.arm_env.arm_env import ArmEnv
from envs.controllers import ScriptedPick
from envs.robots import make_robot
from envs.tasks.registry import make_task

TASK = make_task("pick_turned")
ROBOT = make_robot("panda")


def test_cubes_are_turned_by_up_to_a_right_angle():
    yaw = ArmEnv(ROBOT, TASK, 500, "cpu", 0).scene["yaw"]
    assert (
        yaw.min() >= 0 and yaw.max() < math.pi / 2 and abs(yaw.mean().item() - math.pi / 4) < 0.05
    )


def test_a_finger_on_top_of_the_cube_moves_nothing_and_loses_the_episode():
    """Straight down on it, shut."""
    env = ArmEnv(ROBOT, TASK, 4, "cpu", 0)
    lower = torch.tensor([0.0, 0.0, -0.2, 0.0, 0.0, 0.0])
    place = torch.cat((env.tcp[:, :2], torch.full((4, 1), 0.02)), 1)
    env.moment = replace(env.moment, scene={**env.moment.scene, "object": place})
    for _ in range(60):
        qd = (torch.linalg.pinv(env.jacob0(env.state.q)) @ lower) / env.model.qdlim
        step = env.step(torch.cat((qd, torch.full((4, 1), -1.0)), 1))
        if step.info["touched"].all():
            break
    assert step.info["touched"].all() and not env.moment.scene["held"].any()
    assert torch.equal(env.moment.scene["object"], place)
    assert (step.info["reward/contact"] == -TASK.contact_weight).any()


def test_a_hand_that_comes_open_from_above_is_not_stopped():
    env = ArmEnv(ROBOT, TASK, 40, "cpu", 0)
    observation = env.reset(12345)
    pick = ScriptedPick(env)
    for _ in range(TASK.horizon):
        step = env.step(pick(observation))
        observation = step.observation
    assert step.info["success"].float().mean() >= 0.95
