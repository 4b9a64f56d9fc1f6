"""Gymnasium ids take the keywords of `envs.make`, and make an environment of any robot's file."""

import inspect

import gymnasium
import numpy as np
import pytest
import torch

import envs
import envs.gymnasium_ids
from envs.config.disturbance_options import DISTURBANCES
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


KINDS = ["", "Sparse", "Goal"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("module", ["single", "vector"])
def test_every_keyword_of_envs_make_reaches_it(kind, module, monkeypatch):
    """Those that are added later, too: they are read from its signature."""
    given = {name: object() for name in inspect.signature(envs.make).parameters}
    given |= {name: object() for name in DISTURBANCES}
    del given["disturbance_options"]  # the keywords of DISTURBANCES
    given["num_envs"] = 1 if module == "single" else 5
    if kind == "Goal":  # its own observations have their own reward
        given["sparse"] = True
    taken = {}

    def make(*args, **named):
        taken.update(inspect.signature(envs.make).bind(*args, **named).arguments)
        raise InterruptedError

    monkeypatch.setattr(getattr(envs.gymnasium_ids, module), "make", make)
    chosen = {name: value for name, value in given.items() if name != "num_envs"}
    with pytest.raises(InterruptedError):
        if module == "single":
            gymnasium.make(f"td3_robot/PandaReach{kind}-v0", **chosen)
        else:
            gymnasium.make_vec(f"td3_robot/PandaReach{kind}-v0", 5, **chosen)
    taken |= taken.pop("disturbance_options")
    if kind == "Goal":
        taken["sparse"] = True
    assert taken == given


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_is_that_of_the_first_reset(kind):
    name = f"td3_robot/PandaReach{kind}-v0"
    pairs = [(gymnasium.make(name, seed=3), gymnasium.make(name))]
    pairs += [(gymnasium.make_vec(name, 2, seed=3), gymnasium.make_vec(name, 2))]
    for made, plain in pairs:
        first, _ = made.reset()
        again, _ = plain.reset(seed=3)
        np.testing.assert_equal(first, again)
        second, _ = made.reset()
        again, _ = plain.reset()
        np.testing.assert_equal(second, again)  # and both go on alike
        with pytest.raises(AssertionError):
            np.testing.assert_equal(first, second)


def test_what_an_id_cannot_be_is_refused_in_a_line():
    assert "make_vec" in get_refusal(gymnasium.make, "td3_robot/PandaReach-v0", num_envs=2)
    message = get_refusal(gymnasium.make, "td3_robot/PandaReachGoal-v0", sparse=False)
    assert "the id without Goal has the dense one" in message


def test_a_slip_is_named_with_what_was_meant():
    message = get_refusal(gymnasium.make, "td3_robot/PandaReach-v0", latancy=0.05)
    assert "unknown keyword of an environment 'latancy'; did you mean 'latency'?" in message
    assert "latency must be a number from 0" in get_refusal(
        envs.make, "panda", "reach", latency=-1.0
    )
    assert (
        "no TCP link"
        in (said := get_refusal(gymnasium.make, "td3_robot/PandaReach-v0", tcp="nowhere"))
        or "tcp" in said
    )
