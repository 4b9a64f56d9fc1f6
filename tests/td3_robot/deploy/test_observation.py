"""The numpy observation beside the simulator's, over 10,000 states of every task that it knows."""

import numpy as np
import pytest
import torch

import envs
from envs.description import describe, describe_task
from td3_robot.deploy import DeployError, Robot
from td3_robot.deploy.observation import Observation, scene_of

STATES, ENVS = 10_000, 500


@pytest.mark.parametrize(
    ("name", "task"), [("panda", "reach"), ("panda", "reach_pose"), ("panda", "track"), ("ur5e", "reach")]
)
def test_it_is_the_simulators(name, task):
    env = envs.make(name, task, ENVS, "cpu", 0)
    about, robot = describe_task(task, env), Robot.of(describe(env.robot))
    see = Observation(robot, about)
    generator = torch.Generator().manual_seed(0)
    for _ in range(STATES // ENVS):
        expected = env.step(torch.rand(ENVS, env.a_dim, generator=generator) * 2 - 1).observation.numpy()
        state, scene = env.moment.state, env.moment.scene
        q, qd, gripper = (value.double().numpy() for value in (state.q, state.qd, state.gripper))
        told = {part: scene[part].double().numpy() for part in scene_of(task)}
        seen = [see(q[i], qd[i], gripper[i], {part: x[i] for part, x in told.items()}) for i in range(ENVS)]
        assert np.abs(np.array(seen) - expected).max() < 1e-5


def test_a_column_that_nobody_can_work_out_is_named():
    with pytest.raises(DeployError, match="reach_avoid.*nearness"):
        columns = [("q", 7), ("nearness", 9)]
        Observation(Robot.load("panda"), {"task": {"name": "reach_avoid"}, "observation": {"columns": columns}})
