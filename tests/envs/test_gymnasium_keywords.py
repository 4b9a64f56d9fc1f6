"""Gymnasium ids take the keywords of `envs.make`, and make an environment of any robot's file."""

import gymnasium
import numpy as np
import pytest
import torch

import envs
import envs.gymnasium_ids
from envs.simulation.disturbances import Disturbances
from tests.mesh_files import write_arm, write_dae
from tests.support import get_refusal


def test_keywords_make_what_envs_make_does():
    named = {"gripper": "none", "latency": 0.05, "noise": 0.001, "guard": True}
    one = gymnasium.make("td3_robot/PandaReach-v0", **named)
    many = gymnasium.make_vec("td3_robot/PandaReach-v0", num_envs=1, **named)
    ours = envs.make("panda", "reach", **named)
    observation, _ = one.reset(seed=3)
    first, _ = many.reset(seed=3)
    expected = ours.reset(3).numpy()
    np.testing.assert_array_equal([observation, first[0]], [expected[0]] * 2)
    action = np.full(one.action_space.shape, 0.7, np.float32)
    for _ in range(3):
        observation, *_ = one.step(action)
        rows, *_ = many.step(action[None])
        expected = ours.step(torch.tensor(action)[None]).observation.numpy()
        np.testing.assert_array_equal([observation, rows[0]], [expected[0]] * 2)
    assert ours.robot.gripper is None


def test_a_disturbance_by_name_is_that_of_disturbances():
    whole = envs.make("ur5e", "reach", 2, disturbances=Disturbances(latency=0.1, noise=0.01))
    named = envs.make("ur5e", "reach", 2, latency=0.1, noise=0.01)
    both = envs.make("ur5e", "reach", 2, latency=0.1, disturbances=Disturbances(noise=0.01))
    for env in (whole, named, both):
        env.reset(0)
        last = env.step(torch.ones(2, env.a_dim)).observation
        if env is whole:
            expected = last
        assert torch.equal(last, expected)


@pytest.mark.parametrize("kind", ["", "Sparse", "Goal"])
def test_an_arm_from_a_file_is_made_by_gymnasium_make(kind, tmp_path):
    write_dae(tmp_path)
    file = str(write_arm(tmp_path, "wing.dae"))
    env = gymnasium.make(f"td3_robot/Reach{kind}-v0", robot=file, tcp="fore", latency=0.05)
    assert env.action_space.shape == (2,)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    many = gymnasium.make_vec(f"td3_robot/PandaReach{kind}-v0", num_envs=2, robot=file, tcp="fore")
    assert many.action_space.shape == (2, 2)


def test_a_slip_is_named_with_what_was_meant():
    message = get_refusal(gymnasium.make, "td3_robot/PandaReach-v0", latancy=0.05)
    assert "unknown keyword of an environment 'latancy'; did you mean 'latency'?" in message
    assert "latency must be from 0" in get_refusal(envs.make, "panda", "reach", latency=-1.0)
    assert (
        "no TCP link"
        in (said := get_refusal(gymnasium.make, "td3_robot/PandaReach-v0", tcp="nowhere"))
        or "tcp" in said
    )
